"""tilth bank: build, extend, index and check banks of sentences."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tilth import limits
from tilth.bank.ingest.cleaning import Rules
from tilth.cli import bank_search, options
from tilth.cli.app import App, Fields
from tilth.cli.checks import DATA, ENCODER, RUN_FOLDER
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import TilthError

app = App(no_args_is_help=True, help="Keep raw sentences by the million, and search them.")

app.command("search")(bank_search.search)

# Seconds to load the encoder and start the workers; shorter runs print no rate.
_STARTING = 4
_RULES = "Which sentences are kept"
_KEPT = ("min_chars", "max_chars", "min_words", "min_letters", "max_symbols", "markup")
_SHOWN_SOURCES = 30  # on a terminal; pipes and --json have all

_Sources = Annotated[
    list[str],
    DATA,
    typer.Argument(
        help="txt, jsonl, csv, tsv (also gz) or parquet files, folders of them, or hub data sets."
    ),
]
_Workers = Annotated[
    int | None,
    limits.CORES,
    typer.Option(
        help="Processes, no more than there is work for; default: one a core.",
        show_default=False,
    ),
]
_ShardMegabytes = Annotated[
    int,
    limits.SHARD_MEGABYTES,
    typer.Option(help="Raw text of a shard; for billions of sentences take 128 or more."),
]


@app.command("build")
def build(
    sources: _Sources,
    out: Annotated[Path, RUN_FOLDER, typer.Option("--out", "-o", help="The bank's folder.")],
    rules: Annotated[Rules, Fields(_RULES, _KEPT, flags={"markup": "--keep-markup"})],
    encoder: Annotated[
        str,
        ENCODER,
        typer.Option(
            "--encoder",
            "-e",
            help="starter-static (256 dimensions), a folder, a hub id, the run of a training, or "
            "word vectors: words:FILE, words-idf:FILE, words-sif:FILE, usif:FILE.",
        ),
    ] = "starter-static",
    format: Annotated[  # noqa: A002 - the option's name
        str,
        limits.FORMAT,
        typer.Option("--format", help="Of the vectors: int8, or compact: about a fifth of that."),
    ] = "int8",
    column: options.Column = None,
    split: options.Split = "train",
    language: Annotated[
        str,
        typer.Option(
            help="Whose sentences are kept (en, de, fr ...), or none: of all.",
            rich_help_panel=_RULES,
        ),
    ] = "en",
    no_near: options.NoNear = False,
    workers: _Workers = None,
    shard_megabytes: _ShardMegabytes = 16,
    seed: Annotated[
        int, limits.SEED, typer.Option(help="Of the random rotation of the vectors.")
    ] = 0,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Make a bank of raw text: sentences, cleaned, without duplicates, encoded.

    [dim]tilth bank build corpus/ notes.txt.gz --out runs/bank[/dim]
    """
    from tilth.bank.ingest.parts import BankSettings
    from tilth.workflows.bank_info import is_built
    from tilth.workflows.open_bank import build_named

    rules = replace(rules, language=None if language == "none" else language)
    was_built, fresh = is_built(out), overwrite or not (out / "run.json").exists()
    begun = time.monotonic()
    settings = BankSettings(
        format, rules, not no_near, column, split, seed, shard_megabytes, workers, quiet
    )
    build_named(out, sources, encoder, settings, device=device, overwrite=overwrite)
    if was_built and not overwrite:
        say(f"{out}: was built before, with the same settings: nothing to do")
    _print_made(out, time.monotonic() - begun if fresh else None, json=json)
    say(f'next: tilth bank search {out} "a sentence"')


@app.command("add")
def add(
    bank: options.Bank,
    sources: _Sources,
    encoder: options.BankEncoder = None,
    column: options.Column = None,
    split: options.Split = "train",
    no_near: options.NoNear = False,
    workers: _Workers = None,
    shard_megabytes: _ShardMegabytes = 16,
    device: options.Device = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Drop an unfinished addition of other sources.")
    ] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Add raw text to a bank, without what it holds already.

    [dim]tilth bank add runs/bank more.jsonl --column body[/dim]
    """
    from tilth.workflows.bank_info import describe_bank
    from tilth.workflows.open_bank import add_named

    before = describe_bank(bank)["sentences"]
    add_named(
        bank, sources, encoder=encoder, near=False if no_near else None, column=column, split=split,
        shard_megabytes=shard_megabytes, workers=workers, device=device, overwrite=overwrite,
        quiet=quiet,
    )  # fmt: skip
    _print_made(bank, None, json=json)
    say(f"{describe_bank(bank)['sentences'] - before:,} sentences were added")


@app.command("info")
def info(bank: options.Bank, json: options.Json = False) -> None:
    """Say what a bank holds.

    [dim]tilth bank info runs/bank[/dim]
    """
    from tilth.workflows.bank_info import describe_bank

    found = describe_bank(bank)
    if json:
        print_json(found)
        return
    rows = [
        *_counts(found),
        ("shards", f"{found['shards']:,}"),
        ("additions", f"{found['additions']:,}"),
        ("encoder", f"{found['encoder']} ({found['dimension']} dimensions)"),
        ("encoder's fingerprint", found["fingerprint"]),
        ("format", found["format"]),
        *((f"on disk: {name}", _size(size)) for name, size in found["bytes"].items()),
        *_index(found["index"]),
        *((f"rule: {name}", _plain(value)) for name, value in found["rules"].items()),
        ("created", found["created"]),
        *((f"made with {name}", version) for name, version in found["versions"].items()),
    ]
    print_table(str(bank), ("", ""), rows)
    sources = list(found["sources"].items())
    some = sources[:_SHOWN_SOURCES]
    print_table(
        "1 source" if len(sources) == 1 else f"{len(sources):,} sources",
        ("", "sentences"),
        [(name, "" if count is None else f"{count:,}") for name, count in some],
    )
    if len(some) < len(sources):
        say(f"{len(sources) - len(some):,} more sources: --json names all")


@app.command("index")
def index(
    bank: options.Bank,
    centroids: Annotated[
        int | None,
        limits.CELLS,
        typer.Option(help="Cells; default: 4 times the root of the sentences.", show_default=False),
    ] = None,
    codes: Annotated[
        str, typer.Option(help="Of a sentence: SQ4, SQ8, fp16, or PQ with bytes, such as PQ32.")
    ] = "SQ8",
    pca: Annotated[
        int | None,
        limits.DIMENSIONS,
        typer.Option(help="Dimensions kept; default: all.", show_default=False),
    ] = None,
    nprobe: Annotated[
        int | None,
        limits.CELLS,
        typer.Option(
            help="Cells that a query looks at; default: as find 0.95 of the 100 nearest.",
            show_default=False,
        ),
    ] = None,
    per_centroid: Annotated[
        int, limits.PER_CENTROID, typer.Option(help="Training sentences of a cell.")
    ] = 64,
    seed: Annotated[int, limits.SEED, typer.Option(help="Of the training.")] = 0,
    threads: Annotated[
        int | None, limits.CORES, typer.Option(help="Default: one per core.", show_default=False)
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Make an index beside a bank, for thousands of queries over millions of sentences (FAISS).

    [dim]tilth bank index runs/bank[/dim]
    """
    from tilth.workflows.open_bank import open_named

    made = open_named(bank).make_index(
        centroids=centroids, codes=codes, pca=pca, nprobe=nprobe, per_centroid=per_centroid,
        seed=seed, threads=threads, quiet=quiet,
    )  # fmt: skip
    about = made.info
    if json:
        print_json({"factory": about.factory, "nprobe": about.nprobe, "recall": about.recall})
        return
    print_table(
        f"{about.factory}, {_size(about.bytes)}",
        ("nprobe", "recall of 10", "recall of 100", "ms a query"),
        [
            (
                f"{row['nprobe']:.0f}",
                f"{row['recall_10']:.3f}",
                f"{row['recall_100']:.3f}",
                f"{row['milliseconds']:.2f}",
            )
            for row in about.recall
        ],
    )
    say(f'searches look at {about.nprobe} cells: tilth bank search {bank} "a sentence" --index')


@app.command("check")
def check(bank: options.Bank, quiet: options.Quiet = False, json: options.Json = False) -> None:
    """Read every byte of a bank and name each file that is not as it was written.

    [dim]tilth bank check runs/bank[/dim]
    """
    from tilth.bank.bank import check_bank

    found = check_bank(bank, quiet=quiet)
    if json:
        print_json({"files": found.files, "bytes": found.size, "damaged": found.damaged})
    else:
        for line in found.damaged:
            print(line)
    if found.damaged:
        raise TilthError(
            f"{bank}: {len(found.damaged):,} of {found.files:,} files are damaged or missing: "
            "restore them from a copy, or build the bank anew"
        )
    if not json:
        print(f"{found.files:,} files, {_size(found.size)}: all as they were written")


def _print_made(bank: Path, seconds: float | None, *, json: bool) -> None:
    """Print what a bank holds after it was built or extended."""
    from tilth.workflows.bank_info import describe_bank

    found = describe_bank(bank)
    rate = None
    if seconds is not None:
        rate = round((found["sentences"] + sum(found["dropped"].values())) / seconds)
        found |= {"seconds": round(seconds, 1), "sentences_a_second": rate}
    if json:
        print_json(found)
        return
    rows = _counts(found)
    if seconds is not None:
        said = f", {rate:,} sentences read a second" if seconds > _STARTING * 5 else ""
        rows.append(("this run", f"{seconds:,.0f} s{said}"))
    print_table(str(bank), ("", ""), rows)


def _counts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("sentences", f"{found['sentences']:,}"),
        *((f"dropped: {reason}", f"{count:,}") for reason, count in found["dropped"].items()),
        ("documents", f"{found['documents']:,}"),
        ("on disk", f"{_size(found['bytes']['all'])}, {found['bytes_a_sentence']} bytes each"),
    ]


def _index(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return [("index", "none")]
    covered = f"{found['sentences']:,} sentences, nprobe {found['nprobe']}"
    return [("index", f"{found['factory']}, {covered}"), ("on disk: index", _size(found["bytes"]))]


def _size(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _plain(value: Any) -> str:
    return "none" if value is None else str(value)
