"""tilth augment: a training set, and the sentences of a bank that are like it, labelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say

if TYPE_CHECKING:
    from tilth.selftrain.augment import Augmented

_SHOWN_CLASSES = 40


def augment(
    train: Annotated[
        str,
        typer.Argument(
            help="Labelled texts, or tokens with tags: a jsonl, csv, tsv, conll or parquet file "
            "(plain or gz), a folder, or a hub data set."
        ),
    ],
    bank: Annotated[Path, typer.Option("--bank", help="The bank's folder (tilth bank build).")],
    out: options.Out,
    test: Annotated[
        str | None,
        typer.Option(
            "--test", help="A labelled set: the teacher is measured on it, nothing of it is used."
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(help="A labelled set to choose with; default: a tenth of TRAIN."),
    ] = None,
    query: Annotated[
        str,
        typer.Option(
            help="label-average (one query per label), all-average, per-sentence, clusters."
        ),
    ] = "label-average",
    clusters: Annotated[int, typer.Option(help="Per label, of --query clusters.")] = 8,
    teacher: Annotated[
        str,
        typer.Option(
            help="A base to fine-tune (starter-encoder, starter-mlm, a folder, a hub id), or a "
            "finished classifier or its run."
        ),
    ] = "starter-encoder",
    seeds: Annotated[int, typer.Option(help="Teachers to train; the best is taken.")] = 1,
    multiple: Annotated[
        float | None,
        typer.Option(
            help="Rows wanted for each of TRAIN; default: 100 for small sets, down to 10 for large "
            "ones, as far as the bank is large enough.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(help="Rows wanted.")] = None,
    per_class: Annotated[int | None, typer.Option(help="Rows wanted of each class.")] = None,
    select: Annotated[
        str,
        typer.Option(
            help="Which are kept of each class: random (a draw), confidence (the paper's way), "
            "margin or similarity; or all."
        ),
    ] = "random",
    floor: Annotated[float, typer.Option(help="Least confidence of the teacher, 0 to 1.")] = 0.0,
    candidates: Annotated[
        int | None,
        typer.Option(
            help="Sentences to retrieve and label; default: 2 for each wanted row.",
            show_default=False,
        ),
    ] = None,
    min_similarity: Annotated[
        float | None, typer.Option(help="Least cosine with the query, -1 to 1.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source", help="Only sentences of this source: its name, one with *, or a folder."
        ),
    ] = None,
    no_near: Annotated[
        bool, typer.Option("--no-near", help="Let near duplicates of test rows stay.")
    ] = False,
    index: Annotated[
        bool, typer.Option("--index", help="Ask the bank's index, for many queries.")
    ] = False,
    encoder: options.BankEncoder = None,
    text: Annotated[str | None, typer.Option(help="The column of texts or tokens.")] = None,
    label: options.Label = None,
    epochs: Annotated[
        float | None,
        typer.Option(
            help="Passes of the teacher over TRAIN; default: 3, of few rows up to 20.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Rows in a step; default 16.", show_default=False)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Of the teacher; default: as its base wants.", show_default=False),
    ] = None,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the 95% intervals; 0: none.")] = 2000,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Add sentences of a bank to a labelled set: retrieve them, let a teacher label them, select.

    [dim]tilth augment train.jsonl --bank runs/bank --test test.jsonl --out runs/more[/dim]
    """
    from tilth.report.run_reader import refuse_edited
    from tilth.selftrain.settings import Augmentation
    from tilth.workflows.augment import augment_and_measure

    training = {"epochs": epochs, "batch": batch, "learning_rate": learning_rate}
    made = augment_and_measure(
        train,
        bank,
        out,
        Augmentation(
            query=query, clusters=clusters, multiple=multiple, count=count, per_class=per_class,
            candidates=candidates, select=select, floor=floor, min_similarity=min_similarity,
            sources=tuple(source) if source else None, near=not no_near, index=index,
            precision=precision, seed=seed,
        ),
        teacher=teacher, test=test, validation=validation, text=text, label=label, seeds=seeds,
        training={name: value for name, value in training.items() if value is not None},
        encoder=encoder, bootstrap=bootstrap, device=device, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    if json:
        print_json(made.results)
        return
    with refuse_edited(made.path):
        _show(made)


def _show(made: Augmented) -> None:
    from tilth.workflows.augment import teacher_lines

    results = made.results
    classes = list(results["classes"].items())
    print_table(
        f"{results['kept']:,} of {results['retrieved']:,} retrieved sentences kept",
        ("", "in training", "retrieved", "labelled as", "kept"),
        [
            (name, *("" if one[step] is None else f"{one[step]:,}"
                     for step in ("training", "retrieved", "labelled", "kept")))
            for name, one in classes[:_SHOWN_CLASSES]
        ],
    )  # fmt: skip
    if len(classes) > _SHOWN_CLASSES:
        say(f"{len(classes) - _SHOWN_CLASSES:,} more classes: see {made.path / 'results.json'}")
    if scores := teacher_lines(results):
        print_table("Teacher", ("on", "rows", "figure", "value", "95%"), scores, texts=3)
    for reason, many in results["drops"].items():
        say(f"dropped, {reason}: {many:,}")
    for reason, many in results["left_out"].items():
        if many:
            say(f"never retrieved, {reason}: {many:,}")
    missing = sum(results["shortfall"].values())
    if missing:
        few = sorted(results["shortfall"].items(), key=lambda one: -one[1])[:5]
        named = ", ".join(f"{name} {count:,}" for name, count in few)
        say(f"too few sentences of some classes, {missing:,} rows are missing: {named}")
    say(f"data set: {made.path / 'dataset'}")
    say(f"report: {made.path / 'report.html'}")
    trained = "tagger" if results["kind"] == "tags" else "classifier"
    say(f"next: tilth train {trained} {made.path}")
