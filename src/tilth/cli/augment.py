"""tilth augment: add retrieved and labelled sentences of a bank to a training set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tilth.classifiers.settings import Finetuning
from tilth.cli.app import Fields, changed
from tilth.cli.options import CLASSIFIER, DATA, ENCODER, Common, LabelledSet, Out, SearchedBank
from tilth.cli.screen import command_line, print_json, print_table, say
from tilth.runs.cluster import Cluster
from tilth.selftrain.settings import Augmentation
from tilth.workflows.settings import AugmentOptions

_SHOWN_CLASSES = 40


def augment(
    train: LabelledSet,
    bank: SearchedBank,
    out: Out,
    how: Augmentation,
    settings: Annotated[
        AugmentOptions,
        Fields(reads={"test": DATA, "validation": DATA, "teacher": CLASSIFIER, "encoder": ENCODER}),
    ],
    training: Annotated[Finetuning, Fields("Teacher", ("epochs", "batch", "learning_rate"))],
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    common: Common,
) -> None:
    """Add sentences of a bank to a labelled set: retrieve them, let a teacher label them, select.

    [dim]tilth augment train.jsonl --bank runs/bank --test test.jsonl --out runs/more[/dim]
    """
    cluster.check_head()
    from tilth.classifiers.load import TaskSources
    from tilth.report.run_reader import refuse_edited
    from tilth.selftrain.settings import TeacherSettings
    from tilth.workflows.augment import augment_to_run
    from tilth.workflows.open_bank import open_named

    sources = TaskSources(
        train, settings.validation, settings.test, text=settings.text, label=settings.label
    )
    teacher = TeacherSettings(
        settings.teacher, settings.seeds, changed(training), common.device, cluster
    )
    opened = open_named(bank, encoder=settings.encoder, device=common.device)
    results = augment_to_run(
        sources, opened, out, how, teacher, bootstrap=settings.bootstrap,
        overwrite=common.overwrite, quiet=common.quiet,
    )  # fmt: skip
    if common.json:
        print_json(results)
        return
    with refuse_edited(out):
        _show(results, out)


def print_classes(results: Mapping[str, Any], out: Path) -> None:
    """Print the rows of each class at each step."""
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
        say(f"{len(classes) - _SHOWN_CLASSES:,} more classes: see {out / 'results.json'}")


def _show(results: dict[str, Any], out: Path) -> None:
    from tilth.workflows.augment import teacher_lines, teacher_warning

    print_classes(results, out)
    if scores := teacher_lines(results):
        print_table("Teacher", ("on", "rows", "figure", "value", "95%"), scores, texts=3)
    if warning := teacher_warning(results):
        say(f"warning: {warning}")
    for reason, many in results["drops"].items():
        say(f"dropped, {reason}: {many:,}")
    for reason, many in results["left_out"].items():
        if many:
            say(f"never retrieved, {reason}: {many:,}")
    missing = sum(results["shortfall"].values())
    if missing:
        few = sorted(results["shortfall"].items(), key=lambda one: -one[1])[:5]
        named = ", ".join(f"{name} {count:,}" for name, count in few)
        say(
            f"too few sentences of some classes, {missing:,} rows are missing: {named}; more "
            "--candidates, or a larger bank, may give them"
        )
    say(f"data set: {out / 'dataset'}")
    say(f"report: {out / 'report.html'}")
    trained = "tagger" if results["kind"] == "tags" else "classifier"
    say(f"next: {command_line('train', trained, out)}")
