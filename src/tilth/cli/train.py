"""tilth train: encoders from graded pairs."""

from __future__ import annotations

from typing import Annotated

import typer

from tilth.cli import options, train_classifier, train_triplet
from tilth.cli.checks import App
from tilth.cli.screen import print_json, print_table, say
from tilth.encoders.settings import Training

_DEFAULT = Training()
app = App(no_args_is_help=True, help="Train encoders with generated or own data.")


@app.command("encoder")
def encoder(
    pairs: Annotated[
        str,
        typer.Argument(
            help="A curated set, the generate run that holds one, a labelled file (text_a, "
            "text_b, label 0 to 1) or a hub data set."
        ),
    ],
    out: options.Out,
    base: options.EncoderBase = "starter-encoder",
    epochs: options.PairEpochs = _DEFAULT.epochs,
    batch: Annotated[int, typer.Option(help="Pairs in a step.")] = _DEFAULT.batch,
    learning_rate: options.EncoderRate = _DEFAULT.learning_rate,
    warmup: options.Warmup = _DEFAULT.warmup,
    weight_decay: options.WeightDecay = _DEFAULT.weight_decay,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between checkpoints; the best on the validation part wins.")
    ] = _DEFAULT.evaluate_every,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    sts: Annotated[
        str | None,
        typer.Option(help="STS sets to measure base and result on (see tilth evaluate sts)."),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option("--drop-overlap", help="Leave out pairs that hold a sentence of these sets."),
    ] = False,
    seed: options.PairSeed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a sentence encoder so that cosines come near the labels of pairs.

    [dim]tilth train encoder runs/pairs --out runs/encoder[/dim]
    """
    from tilth.recipes.training import train_and_measure

    result = train_and_measure(
        pairs,
        out,
        base=base,
        sts=sts,
        drop_overlap=drop_overlap,
        device=device,
        overwrite=overwrite,
        quiet=quiet,
        training={
            "epochs": epochs, "batch": batch, "learning_rate": learning_rate, "warmup": warmup,
            "weight_decay": weight_decay, "evaluate_every": evaluate_every, "pooling": pooling,
            "max_length": max_length, "precision": precision, "seed": seed,
        },
    )  # fmt: skip
    if json:
        print_json(result.to_dict())
        return
    if result.table is not None:
        print_table(result.table.title, ("", *result.table.columns), result.table.lines())
    for line in (*result.warnings, *result.notes):
        say(line)
    kept = f"step {result.best}, {result.validation_words} {result.validation:.1f}"
    say(f"encoder: {out / 'model'} ({kept})")
    say(f"report: {out / 'report.html'}")


app.command("triplet")(train_triplet.triplet)
app.command("classifier")(train_classifier.classifier)
app.command("tagger")(train_classifier.tagger)
app.command("adapt")(train_classifier.adapt)
