"""tilth bank search: find the nearest sentences of texts, or of a task."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilth import limits
from tilth.cli import options
from tilth.cli.checks import DATA, RUN_FOLDER
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError

if TYPE_CHECKING:
    from tilth.workflows.search_bank import SearchResults

# On a terminal; pipes and --json print all.
_SHOWN_QUERIES = 12
_SHOWN_HITS = 10
_WIDTHS = (2, 10, 18)  # of the columns beside the text
_LINES = 13  # columns between and around four
_LEAST_WIDTH = 20
_ENDS = ("nearest", "farthest")


def search(
    bank: options.Bank,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="Queries, a sentence each.")
    ] = None,
    queries: Annotated[
        str | None, DATA, typer.Option(help="A file, folder or data set of queries.")
    ] = None,
    column: options.Column = None,
    task: Annotated[
        str | None,
        DATA,
        typer.Option(help="A labelled set that stands for a task: texts, pairs, tokens."),
    ] = None,
    kind: Annotated[
        str | None,
        limits.QUERY,
        typer.Option(
            help="Queries of the task: all-average (one), label-average (one per label or entity "
            "type; the default), per-sentence, clusters.",
            show_default=False,
        ),
    ] = None,
    text: options.Text = None,
    label: options.Label = None,
    clusters: Annotated[
        int | None,
        limits.CLUSTERS,
        typer.Option(help="Clusters per label; default 8.", show_default=False),
    ] = None,
    k: Annotated[
        int | None,
        limits.ROWS,
        typer.Option("-k", help="Sentences wanted of each query; default 10.", show_default=False),
    ] = None,
    min_similarity: Annotated[
        float | None,
        limits.SIMILARITY,
        typer.Option(help="Leave out less similar ones (cosine, -1 to 1)."),
    ] = None,
    source: options.Source = None,
    without: Annotated[
        list[str] | None,
        DATA,
        typer.Option(help="A set, such as the task's test set, whose texts are left out."),
    ] = None,
    no_near: Annotated[
        bool, typer.Option("--no-near", help="Let near duplicates of --without stay.")
    ] = False,
    no_own: Annotated[
        bool, typer.Option("--no-own", help="Leave out the queries' own texts.")
    ] = False,
    oversample: Annotated[
        float | None,
        limits.OVERSAMPLE,
        typer.Option(
            help="Sentences scored again for each one wanted; default 1.2, of compact banks 4.",
            show_default=False,
        ),
    ] = None,
    index: Annotated[
        bool,
        typer.Option("--index", help="Ask the bank's index (tilth bank index), for many queries."),
    ] = False,
    nprobe: Annotated[
        int | None,
        limits.CELLS,
        typer.Option(
            help="Cells of the index that a query looks at; default: as it was made.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        int | None, limits.CORES, typer.Option(help="Threads of the scan; default: one per core.")
    ] = None,
    seed: Annotated[int, limits.SEED, typer.Option(help="Of the clusters.")] = 0,
    encoder: options.BankEncoder = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None,
        RUN_FOLDER,
        typer.Option("--out", "-o", help="A run folder for all hits, as a data set."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Find the sentences of a bank that are nearest to texts, or to a task.

    [dim]tilth bank search runs/bank "Which river runs through Vienna?" -k 5[/dim]

    [dim]tilth bank search runs/bank --task train.jsonl --without test.jsonl -k 10000 -o runs/hits
    [/dim]
    """
    from tilth.report.run_reader import refuse_edited
    from tilth.workflows.open_bank import open_named
    from tilth.workflows.search_bank import QuerySource, SearchSettings
    from tilth.workflows.search_bank import search as find
    from tilth.workflows.search_bank import search_to_run as find_all

    if task is None and (kind, text, label, clusters) != (None,) * 4:
        raise InputError("--kind, --text, --label and --clusters go with --task: name one")
    if column is not None and queries is None:
        raise InputError("--column goes with --queries: name a file, or leave it out")
    if nprobe is not None and not index:
        raise InputError("--nprobe goes with --index: add it, or leave --nprobe out")
    source_of_queries = QuerySource(
        texts or (), queries, column, task, kind or "label-average",
        options.columns(text), label, 8 if clusters is None else clusters, seed,
    )  # fmt: skip
    opened = open_named(bank, encoder=encoder, device=device)
    settings = SearchSettings(
        min(_SHOWN_HITS, len(opened)) if k is None else k,
        min_similarity, source, without or (), not no_near, not no_own, oversample, index, nprobe,
    )  # fmt: skip
    if out is not None:
        found = find_all(
            opened, source_of_queries, settings, out, threads=threads, overwrite=overwrite, say=say
        )
        with refuse_edited(out):
            _print_kept(found, out, json=json)
        return
    searched = find(opened, source_of_queries, settings, threads=threads, say=say)
    if json:
        print_json({"bank": str(bank), "encoder": opened.manifest.encoder, **searched.to_dict()})
    elif sys.stdout.isatty():
        _show(searched)
    else:
        _print_lines(searched)
    _say_removed(searched.hits.removed)


def _show(searched: SearchResults) -> None:
    """Print a table per query, each hit on one line of the terminal."""
    console = Console()
    width = max(_LEAST_WIDTH, console.width - sum(_WIDTHS) - _LINES)
    for query in range(min(len(searched.hits), _SHOWN_QUERIES)):
        told = searched.summary(query)
        rows = searched.found(query, _SHOWN_HITS)
        if not rows:
            console.print(f"{told['query']}: no sentence is near enough", markup=False)
            continue
        title = Text(" ".join(told["query"].split()))
        table = Table(title=title, title_justify="left", title_style="bold")
        for name, columns in zip(
            ("", "similarity", "text", "source"), (*_WIDTHS[:2], width, _WIDTHS[2]), strict=True
        ):
            table.add_column(
                name,
                justify="left" if name in ("text", "source") else "right",
                width=columns,
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in rows:
            source = row["source"]
            if len(source) > _WIDTHS[2]:  # the end of a path says more
                source = f"…{source[1 - _WIDTHS[2] :]}"
            cells = (str(row["rank"]), f"{row['similarity']:.3f}", row["text"], source)
            table.add_row(*map(Text, cells))
        console.print(table)
        if told["hits"] > len(rows):
            say(f"{told['hits'] - len(rows):,} more: a pipe, --json or --out RUN has them all")
    if (more := len(searched.hits) - _SHOWN_QUERIES) > 0:
        say(f"{more:,} more queries: a pipe, --json or --out RUN has them all")


def _print_lines(searched: SearchResults) -> None:
    """Print a line per hit with tab-separated fields."""
    print("query", "rank", "similarity", "id", "text", "source", sep="\t")
    for query in range(len(searched.hits)):
        name = " ".join(searched.hits.names[query].split())
        for row in searched.found(query):
            text, source = (" ".join(row[key].split()) for key in ("text", "source"))
            print(name, row["rank"], row["similarity"], row["id"], text, source, sep="\t")


def _print_kept(found: Mapping[str, Any], out: Path, *, json: bool) -> None:
    if json:
        print_json(found)
    else:
        some: Sequence[Mapping[str, Any]] = found["queries"][:_SHOWN_QUERIES]
        print_table(
            "1 query" if len(found["queries"]) == 1 else f"{len(found['queries']):,} queries",
            ("", "averages", "hits", "nearest", "farthest"),
            [
                (
                    query["query"],
                    f"{query['sentences']:,}",
                    f"{query['hits']:,}",
                    *("" if query[end] is None else f"{query[end]:.3f}" for end in _ENDS),
                )
                for query in some
            ],
        )
        if len(some) < len(found["queries"]):
            say(f"{len(found['queries']) - len(some):,} more queries: see {out / 'results.json'}")
    _say_removed(found["removed"])
    say(f"data set: {out / 'dataset'}")


def _say_removed(removed: Mapping[str, int]) -> None:
    for reason, count in removed.items():
        say(f"left out, {reason}: {count:,}")
