"""tilth bank: build, extend, index and check banks of sentences."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from tilth.bank.settings import BankSettings, IndexSettings
from tilth.cli import bank_search
from tilth.cli.app import App, Fields
from tilth.cli.options import DATA, ENCODER, RUN_FOLDER, Bank, BankEncoder, Common, Json, Quiet
from tilth.cli.screen import command_line, print_json, print_table, say
from tilth.errors import TilthError
from tilth.limits import CORES

app = App(no_args_is_help=True, help="Keep raw sentences by the million, and search them.")

app.command("search")(bank_search.search)

# Seconds to load the encoder and start the workers; shorter runs print no rate.
_STARTING = 4
_FOREIGN = 0.1  # sentences of another language for each kept one, from which on a line says so
_SHOWN_SOURCES = 30  # on a terminal; pipes and --json have all

_ADDED = (
    "near", "column", "split", "shard_megabytes", "workers", "on", "cpus_per_worker",
    "gpus_per_worker",
)  # fmt: skip
_Sources = Annotated[
    list[str],
    DATA,
    "txt, jsonl, json, csv, tsv (also gz) or parquet files, folders of them, or hub data sets.",
]


@app.command("build")
def build(
    sources: _Sources,
    out: Annotated[Path, RUN_FOLDER, "--out -o", "The bank's folder."],
    settings: BankSettings,
    encoder: Annotated[
        str,
        ENCODER,
        "--encoder -e",
        "starter-static (256 dimensions), a folder, a hub id, the run of a training, or word "
        "vectors: words:FILE, words-idf:FILE, words-sif:FILE, usif:FILE.",
    ] = "starter-static",
    *,
    common: Common,
) -> None:
    """Make a bank of raw text: sentences, cleaned, without duplicates, encoded.

    [dim]tilth bank build corpus/ notes.txt.gz --out runs/bank[/dim]
    """
    settings.cluster.check_head()
    from tilth.bank.manifest import MANIFEST
    from tilth.workflows.open_bank import build_named

    was_built, fresh = (
        (out / MANIFEST).is_file(),
        common.overwrite or not (out / "run.json").exists(),
    )
    begun = time.monotonic()
    build_named(
        out, sources, encoder, replace(settings, quiet=common.quiet), device=common.device,
        overwrite=common.overwrite,
    )  # fmt: skip
    if was_built and not common.overwrite:
        say(f"{out}: was built before, with the same settings: nothing to do")
    _print_made(out, time.monotonic() - begun if fresh else None, json=common.json)
    say(f"next: {command_line('bank', 'search', out, 'a sentence')}")


@app.command("add")
def add(
    bank: Bank,
    sources: _Sources,
    settings: Annotated[BankSettings, Fields(only=_ADDED)],
    common: Annotated[Common, Fields(only=("device", "quiet", "json"))],
    encoder: BankEncoder = None,
    overwrite: Annotated[bool, "Drop an unfinished addition of other sources."] = False,
) -> None:
    """Add raw text to a bank, without what it holds already.

    [dim]tilth bank add runs/bank more.jsonl --column body[/dim]
    """
    settings.cluster.check_head()
    from tilth.bank.manifest import read_manifest
    from tilth.workflows.open_bank import add_named

    before = read_manifest(bank)
    near = None if settings.near else False  # None: as the bank was built
    add_named(
        bank, sources, encoder=encoder, near=near, column=settings.column, split=settings.split,
        shard_megabytes=settings.shard_megabytes, workers=settings.workers,
        cluster=settings.cluster, device=common.device, overwrite=overwrite, quiet=common.quiet,
    )  # fmt: skip
    _print_made(bank, None, json=common.json)
    after = read_manifest(bank)
    dropped = {
        reason: more
        for reason, count in after.dropped.items()
        if (more := count - before.dropped.get(reason, 0))
    }
    said = "".join(f"; {count:,} {reason}" for reason, count in dropped.items())
    say(f"{after.sentences - before.sentences:,} sentences were added{said}")


@app.command("info")
def info(bank: Bank, json: Json = False) -> None:
    """Say what a bank holds.

    [dim]tilth bank info runs/bank[/dim]
    """
    from tilth.workflows.open_bank import describe_bank

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
    print_table(str(bank), ("of the bank", "value"), rows)
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
    bank: Bank,
    settings: IndexSettings,
    threads: Annotated[int | None, CORES, "Default: one per core."] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make an index beside a bank, for thousands of queries over millions of sentences (FAISS).

    [dim]tilth bank index runs/bank[/dim]
    """
    from tilth.workflows.open_bank import open_named

    made = open_named(bank).make_index(**asdict(settings), threads=threads, quiet=quiet)
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
    searching = command_line("bank", "search", bank, "a sentence", "--index")
    say(f"searches look at {about.nprobe} cells: {searching}")


@app.command("check")
def check(bank: Bank, quiet: Quiet = False, json: Json = False) -> None:
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
    from tilth.bank.ingest.cleaning import LANGUAGE
    from tilth.workflows.open_bank import describe_bank

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
    print_table(str(bank), ("of the bank", "value"), rows)
    for name in [name for name, count in found["sources"].items() if count == 0][:_SHOWN_SOURCES]:
        say(f"no sentence is kept of {name}")
    if (foreign := found["dropped"].get(LANGUAGE, 0)) > _FOREIGN * found["sentences"]:
        say(
            f"{foreign:,} sentences are of another language than {found['rules']['language']}: "
            "--language builds a bank of theirs, or of any (none)"
        )


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
