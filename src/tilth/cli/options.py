"""Every option that several commands share, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[
    Path, typer.Option("--out", "-o", help="The run folder. The same command goes on in it.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Start the run folder anew.")]
Seed = Annotated[int, typer.Option("--seed", help="Same settings and seed, same rows.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="auto, float32, bfloat16 or float16; auto is bfloat16 where the hardware is fast "
        "at it.",
    ),
]
TrainingPrecision = Annotated[
    str,
    typer.Option(
        "--precision",
        help="auto, float32 or bfloat16 (autocast); auto is bfloat16 where the hardware is fast "
        "at it.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="starter, a model folder, a hub id, or an endpoint: openai:http://host:port/v1#model "
        "(openai-chat:... for chat).",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        "-i",
        help="First texts of a pair task: a txt, jsonl, csv, tsv or parquet file (plain or gz), "
        "a folder of them, or a hub data set.",
    ),
]
Column = Annotated[str | None, typer.Option("--column", help="The column that holds the texts.")]
Split = Annotated[str, typer.Option("--split", help="The split of a data set that has several.")]
Scorer = Annotated[
    str,
    typer.Option(
        "--scorer",
        help="What measures meaning: starter, a cross-encoder's folder or hub id, or "
        "cosine:ENCODER.",
    ),
]
Pooling = Annotated[
    str | None,
    typer.Option(
        help="How tokens become one vector: mean, cls or max; default: as saved, else mean."
    ),
]
Bank = Annotated[Path, typer.Argument(help="The bank's folder.")]
BankEncoder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="The bank's encoder, where the name it was built with leads elsewhere now.",
    ),
]
