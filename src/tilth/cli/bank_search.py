"""tilth bank search: find the nearest sentences of texts, or of a task."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tilth.cli.app import Fields
from tilth.cli.options import DATA, RUN_FOLDER, Bank, BankEncoder, Common
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError
from tilth.limits import CORES
from tilth.runs.cluster import Cluster
from tilth.workflows.settings import QuerySource, SearchSettings

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
    bank: Bank,
    queries: Annotated[QuerySource, Fields(reads={"queries": DATA, "task": DATA})],
    settings: Annotated[SearchSettings, Fields(reads={"without": DATA})],
    common: Annotated[Common, Fields(only=("device", "overwrite", "json"))],
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    threads: Annotated[int | None, CORES, "Threads of the scan; default: one per core."] = None,
    encoder: BankEncoder = None,
    out: Annotated[
        Path | None, RUN_FOLDER, "--out -o", "A run folder for all hits, as a data set."
    ] = None,
) -> None:
    """Find the sentences of a bank that are nearest to texts, or to a task.

    [dim]tilth bank search runs/bank "Which river runs through Vienna?" -k 5[/dim]

    [dim]tilth bank search runs/bank --task train.jsonl --without test.jsonl -k 10000 -o runs/hits
    [/dim]
    """
    cluster.check_head()
    if settings.index and cluster.on is not None:
        raise InputError("an index is searched in this process: leave --on or --index out")
    from tilth.workflows.open_bank import open_named
    from tilth.workflows.search_bank import BankSearch, search_to_run

    opened = open_named(bank, encoder=encoder, device=common.device)
    if settings.k is None:
        settings = replace(settings, k=min(_SHOWN_HITS, len(opened)))
    if out is not None:
        from tilth.report.run_reader import refuse_edited

        found = search_to_run(
            opened, queries, settings, out, threads=threads, cluster=cluster,
            overwrite=common.overwrite, say=say,
        )  # fmt: skip
        with refuse_edited(out):
            _print_kept(found, out, json=common.json)
        return
    searched = BankSearch(opened, queries, settings).run(threads, cluster, say)
    if common.json:
        print_json({"bank": str(bank), "encoder": opened.manifest.encoder, **searched.to_dict()})
    elif sys.stdout.isatty():
        _show(searched)
    else:
        _print_lines(searched)
    _say_removed(searched.hits.removed)


def _show(searched: SearchResults) -> None:
    """Print a table per query, each hit on one line of the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
