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
Text = Annotated[
    str | None,
    typer.Option(
        "--text", help="The column of texts, the two of pairs with a comma, or that of tokens."
    ),
]
Label = Annotated[
    str | None,
    typer.Option("--label", help="The column of labels, or of tags; default: a usual name."),
]
EncoderBase = Annotated[
    str,
    typer.Option(
        "--base", "-b",
        help="starter-encoder, starter-static (very fast, no transformer), starter-mlm (not "
        "trained for similarity), an encoder's folder, or a hub id.",
    ),
]  # fmt: skip
Epochs = Annotated[
    float | None,
    typer.Option(
        "--epochs", help="Passes over the rows; default: 3, of few rows up to 20 for 200 steps."
    ),
]
PairEpochs = Annotated[float, typer.Option("--epochs", help="Passes over the pairs.")]
EncoderRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        help="Highest learning rate; default: 2e-5, for starter-mlm 5e-4, starter-static 1e-3.",
    ),
]
Warmup = Annotated[
    float, typer.Option("--warmup", help="Share of the steps in which the learning rate rises.")
]
WeightDecay = Annotated[float, typer.Option("--weight-decay", help="Of AdamW.")]
MaxLength = Annotated[int | None, typer.Option("--max-length", help="Tokens read of a text.")]
PairSeed = Annotated[
    int, typer.Option("--seed", help="Same pairs, settings and seed, same weights.")
]
Bootstrap = Annotated[
    int, typer.Option("--bootstrap", help="Resamples of the 95% intervals and tests; 0: neither.")
]


def columns(names: str | None) -> list[str] | None:
    """Return the names of columns that an option gives with commas."""
    return [name.strip() for name in names.split(",")] if names is not None else None
