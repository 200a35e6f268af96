"""Options that several commands share and no settings class holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth import limits
from tilth.cli.checks import BANK, DATA, ENCODER, RUN_FOLDER, SCORER

Out = Annotated[
    Path,
    RUN_FOLDER,
    typer.Option("--out", "-o", help="The run folder. The same command goes on in it."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start the run folder anew.")]
Seed = Annotated[int, limits.SEED, typer.Option(help="Same settings and seed, same rows.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[
    str,
    limits.PRECISION,
    typer.Option(
        help="auto, float32, bfloat16 or float16; auto is bfloat16 where the hardware is fast "
        "at it."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Column = Annotated[str | None, typer.Option(help="The column that holds the texts.")]
Split = Annotated[str, typer.Option(help="The split of a data set that has several.")]
Text = Annotated[
    str | None,
    typer.Option(help="The column of texts, the two of pairs with a comma, or that of tokens."),
]
Label = Annotated[
    str | None, typer.Option(help="The column of labels, or of tags; default: a usual name.")
]
Scorer = Annotated[
    str,
    SCORER,
    typer.Option(
        help="What measures meaning: starter, a cross-encoder's folder or hub id, or "
        "cosine:ENCODER."
    ),
]
Bootstrap = Annotated[
    int,
    limits.BOOTSTRAP,
    typer.Option(help="Resamples of the 95% intervals and tests; 0: neither."),
]
BootstrapSeed = Annotated[int, limits.SEED, typer.Option(help="Of the resamples.")]
# A bank, as an argument of its own commands and as an option of those that search it.
Bank = Annotated[Path, BANK, typer.Argument(help="The bank's folder.")]
SearchedBank = Annotated[Path, BANK, typer.Option("--bank", help="The bank's folder.")]
BankEncoder = Annotated[
    str | None,
    ENCODER,
    typer.Option(
        "--encoder",
        help="The bank's encoder, where the name it was built with leads elsewhere now.",
    ),
]
Source = Annotated[
    list[str] | None,
    typer.Option(help="Only sentences of this source: its name, one with *, or a folder."),
]
NoNear = Annotated[bool, typer.Option("--no-near", help="Keep near duplicates.")]
# Labelled sets.
LabelledSet = Annotated[
    str,
    DATA,
    typer.Argument(
        help="Labelled texts, or tokens with tags: a jsonl, csv, tsv, conll or parquet file (plain "
        "or gz), a folder of them, or a hub data set."
    ),
]
Validation = Annotated[
    str | None,
    DATA,
    typer.Option(help="A labelled set to choose with; default: a tenth of TRAIN."),
]
# Of commands that print their results, and keep them when asked.
ResultFolder = Annotated[
    Path | None,
    RUN_FOLDER,
    typer.Option("--out", "-o", help="A run folder for the results; default: none is kept."),
]


def columns(names: str | None) -> list[str] | None:
    """Split comma-separated column names."""
    return [name.strip() for name in names.split(",")] if names is not None else None
