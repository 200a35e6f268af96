"""tilth predict: label, tag or encode new texts with a trained model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilth.cli import options
from tilth.cli.checks import DATA, ENCODER, PREDICTOR
from tilth.cli.screen import print_json, print_table, say

_SHOWN_LABELS = 30


def predict(
    model: Annotated[
        str,
        PREDICTOR,
        typer.Argument(
            help="The run of a training, a folder or a hub id: of a classifier, a tagger or a "
            "sentence encoder; or a task file, to label by its descriptions without training."
        ),
    ],
    data: Annotated[
        str,
        DATA,
        typer.Argument(
            help="Texts: a txt, jsonl, csv, tsv, conll or parquet file (plain or gz), a folder of "
            "them, a run, or a hub data set."
        ),
    ],
    out: options.Out,
    column: Annotated[
        str | None,
        typer.Option(
            "--column",
            "--text",
            help="The column of texts, the two of pairs with a comma, or that of tokens.",
        ),
    ] = None,
    split: options.Split = "train",
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Write the probability of every label, too, of a task file the similarity.",
        ),
    ] = False,
    encoder: Annotated[
        str | None,
        ENCODER,
        typer.Option(help="Of a task file: gives the similarities; default: starter-encoder."),
    ] = None,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Label, tag or encode new texts with a trained model; all their columns are kept.

    [dim]tilth predict runs/student new.jsonl --out runs/labelled[/dim]
    """
    from tilth.workflows.predict import predict_to_run
    from tilth.workflows.predictors import Prediction

    asked = Prediction(options.columns(column), split, probabilities, encoder, precision)
    results = predict_to_run(
        model, data, out, asked, device=device, overwrite=overwrite, quiet=quiet
    )
    if json:
        print_json(results)
        return
    _show(model, results)
    say(f"data set: {out / 'dataset'}")


def _show(model: str, results: dict[str, Any]) -> None:
    labels = list(results["labels"].items())
    if labels:
        measure = "similarity" if results["kind"] == "described" else "confidence"
        head = ("type", "entities") if results["kind"] == "tags" else ("label", "rows")
        print_table(
            model,
            (*head, f"mean {measure}"),
            [
                (name, f"{found['rows']:,}", f"{found[measure]:.2f}")
                for name, found in labels[:_SHOWN_LABELS]
            ],
        )
    if len(labels) > _SHOWN_LABELS:
        say(f"{len(labels) - _SHOWN_LABELS:,} more: --json has all")
    say(f"{results['rows']:,} rows")
    if results.get("unrelated"):
        say(
            f"{results['unrelated']:,} of them are unlike every description: "
            "check those with the lowest similarity first"
        )
    if results["without_text"]:
        say(f"{results['without_text']:,} of them hold no text: nothing is predicted there")
