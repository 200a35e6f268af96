"""tilth train triplet: an encoder from pairs that mean the same."""

from __future__ import annotations

from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, say
from tilth.encoders.settings import TripletTraining

_DEFAULT = TripletTraining()


def triplet(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Pairs that mean the same: files, folders or hub data sets with two columns of "
            "texts (text_a, text_b; en, de) or one of lists (captions); triples have a third, "
            "negative."
        ),
    ],
    out: options.Out,
    base: options.EncoderBase = "starter-encoder",
    pivot: Annotated[
        str | None,
        typer.Option(
            help="The column that is not trained on: texts beside the same one are paraphrases."
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            help="Graded pairs (a column label or score) mean the same from this score on; "
            "those below are left out."
        ),
    ] = None,
    dimension: Annotated[
        int, typer.Option(help="Numbers of a sentence's vector.")
    ] = _DEFAULT.dimension,
    margin: Annotated[
        float, typer.Option(help="By how much a partner is to be nearer than the negative.")
    ] = _DEFAULT.margin,
    epochs: options.PairEpochs = _DEFAULT.epochs,
    batch: Annotated[
        int, typer.Option(help="Pairs in a step; negatives are looked for among these.")
    ] = _DEFAULT.batch,
    learning_rate: options.EncoderRate = _DEFAULT.learning_rate,
    warmup: options.Warmup = _DEFAULT.warmup,
    weight_decay: options.WeightDecay = _DEFAULT.weight_decay,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between checkpoints; the best on held-out pairs wins.")
    ] = _DEFAULT.evaluate_every,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    seed: options.PairSeed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a sentence encoder so that texts that mean the same are near: SentAugment's way.

    [dim]tilth train triplet paraphrases.jsonl --out runs/triplet[/dim]
    """
    from tilth.encoders.triplet import learned, train_triplet
    from tilth.runs import refuse_inside

    refuse_inside(out, *sources, named=[base])
    train_triplet(
        sources,
        base,
        out,
        pivot=pivot,
        min_score=min_score,
        device=device,
        overwrite=overwrite,
        quiet=quiet,
        dimension=dimension,
        margin=margin,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        evaluate_every=evaluate_every,
        pooling=pooling,
        max_length=max_length,
        precision=precision,
        seed=seed,
    )
    found = learned(out)
    if json:
        print_json(found.to_dict())
        return
    say(
        f"encoder: {out / 'model'} (step {found.best}, reciprocal rank "
        f"{found.reciprocal_rank[found.step.index(found.best)]:.1f})"
    )
    say(f"measure it: tilth evaluate sts {out} --data FOLDER")
