"""Augment a training set from files, measure the teacher, and write the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.load import TaskData, TaskSources
from tilth.evaluate.classify import answered, classify_scores, kind_of
from tilth.evaluate.tag import best_tags, tag_scores
from tilth.metrics.significance import RESAMPLES, check_resamples
from tilth.models.classifier import Classifier
from tilth.report.augment import write_augment_report
from tilth.report.run_reader import refuse_edited
from tilth.runs import Progress
from tilth.selftrain.augment import AugmentRun, augment_in_run
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.workflows.open_bank import open_named

# Below this retrieved sentences gained nothing in trials: a teacher of 52 gave +0.2 (-3.0 to +3.4).
# Teachers of 73 and more gave two to six points (docs/results.md).
_POOR_TEACHER, _FEWEST_ROWS = 60.0, 50
FIGURES = {"accuracy": "accuracy", "macro_f1": "macro F1", "micro_f1": "micro F1", "f1": "F1"}


def augment_and_measure(
    train: str,
    bank: Path,
    out: Path,
    asked: Augmentation,
    *,
    teacher: str,
    test: str | None = None,
    validation: str | None = None,
    text: str | None = None,
    label: str | None = None,
    seeds: int = 1,
    training: Mapping[str, Any] | None = None,
    encoder: str | None = None,
    bootstrap: int = RESAMPLES,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> AugmentRun:
    """Augment a training set in a run folder, with the teacher's scores and a report.

    Args:
        out: the run folder; the same call resumes.
        test: a labelled set to measure the teacher on; no sentence of it is retrieved.
        encoder: encoder of the bank, if the name in its manifest no longer resolves to it.
        bootstrap: resamples of the scores' intervals; 0: none.
    """
    check_resamples(bootstrap, asked.seed)

    def measure(classifier: Classifier, task: TaskData) -> dict[str, Any]:
        sets = {"test": task.test, "validation": task.validation}
        return {
            name: _scores(classifier, rows, bootstrap, asked, quiet=quiet)
            for name, rows in sets.items()
            if rows is not None
        }

    made = augment_in_run(
        TaskSources(train, validation, test, text=text, label=label),
        open_named(bank, encoder=encoder, device=device), out, asked,
        TeacherSettings(teacher, seeds, training or {}, device), measure=measure,
        overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    with refuse_edited(made.path):
        write_augment_report(made.path)
    return made


def _scores(
    classifier: Classifier,
    rows: LabeledExamples,
    bootstrap: int,
    asked: Augmentation,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Return a teacher's scores on rows, as `classify_scores` or `tag_scores` does."""
    how: dict[str, Any] = {"bootstrap": bootstrap, "seed": asked.seed}
    with Progress(len(rows), quiet=quiet, what="rows") as progress:
        given = classifier.answers(rows, precision=asked.precision, progress=progress)
    if rows.tokens is not None:
        gold, _ = best_tags(list(rows.targets), rows.labels)
        said, sure = best_tags(given, classifier.labels)
        return tag_scores(gold, said, sure=sure, **how)
    kind = kind_of(classifier)
    right = answered(np.asarray(rows.targets), kind)
    return classify_scores(right, given, classifier.labels, kind=kind, **how)


def teacher_warning(results: Mapping[str, Any]) -> str | None:
    """Return a warning if a teacher is wrong too often to label sentences."""
    for name in ("test", "validation"):
        scores = results["teacher"].get(name)
        if scores is not None and scores["n"] >= _FEWEST_ROWS:
            key = "f1" if "f1" in scores else "accuracy"
            value = scores[key]["value"]
            if value is not None and value < _POOR_TEACHER:
                return (
                    f"the teacher's {FIGURES[key]} on the {name} rows is {value:.0f}: so many of "
                    "its labels are wrong that a student hardly gains; first give more labelled "
                    "rows, or a larger --teacher"
                )
            return None
    return None


def teacher_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a teacher's scores to print: set, rows, figure, its value and 95% interval."""
    lines: list[tuple[str, ...]] = []
    for name, scores in results["teacher"].items():
        for key, figure in FIGURES.items():
            if key in scores and not (key == "accuracy" and "f1" in scores):
                one = scores[key]
                ends = "" if one.get("low") is None else f"{one['low']:.1f} to {one['high']:.1f}"
                value = "" if one["value"] is None else f"{one['value']:.1f}"
                lines.append((name, f"{scores['n']:,}", figure, value, ends))
    return lines
