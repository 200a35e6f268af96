"""Evaluate classifiers and a scorer on GLUE tasks, and write submission files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import LABEL, Examples, open_rows, read_examples
from tilth.data.sources import is_read
from tilth.errors import InputError
from tilth.evaluate.glue import (
    FILES,
    HIGHEST,
    HUB,
    TASKS,
    GlueTask,
    check_submission,
    glue_scores,
    write_submission,
)
from tilth.files import disk_errors
from tilth.models.classifier import Classifier, load_classifier
from tilth.models.scorer import load_scorer
from tilth.runs import RESULTS, Run, read_results

SUBMISSION = "submission"  # folder of the files for the server
# Names of the files of a split, without their endings.
_STEMS = {
    "validation": ("dev", "validation"),
    "validation_matched": ("dev_matched", "validation_matched", "dev"),
    "validation_mismatched": ("dev_mismatched", "validation_mismatched"),
    "test": ("test",), "test_matched": ("test_matched",), "test_mismatched": ("test_mismatched",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GlueResult:
    """Results of `tilth evaluate glue`.

    Attributes:
        tasks: task -> split -> metric x 100, score (their mean) and rows.
        files: the submission files that were written.
        missing: those that the server wants as well.
        notes: why a file was not written.
    """

    tasks: dict[str, dict[str, dict[str, float]]]
    files: list[str]
    missing: list[str]
    notes: list[str]


def parse_models(given: list[str]) -> dict[str, str]:
    """Return task -> model of arguments such as `rte=runs/rte`."""
    models: dict[str, str] = {}
    for one in given:
        task, equals, model = one.partition("=")
        name = task.lower().replace("-", "").replace("_", "")
        if not equals or not model or name not in TASKS:
            raise InputError(
                f"{one!r} names no task and model: write TASK=MODEL, such as rte=runs/rte; tasks "
                f"are {', '.join(TASKS)}"
            )
        if name in models:
            raise InputError(f"task {name!r} is named twice: name one model for each")
        models[name] = model
    return models


def evaluate_glue(
    models: Mapping[str, str],
    data: str,
    out: Path | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
    overwrite: bool = False,
) -> GlueResult:
    """Measure models on the development sets of their tasks; write the server's files.

    Args:
        models: task -> a classifier's run, folder or hub id; of `stsb` a scorer's.
        data: a folder with a folder for each task (dev and test files), or `hub`.
        out: the run folder, with `results.json` and `submission/`; the models of other tasks may be
            added by another call. None: nothing is written.
    """
    how: dict[str, Any] = {"device": device, "precision": precision}
    for name, model in models.items():  # a wrong one is found before any is measured
        _predictor(TASKS[name], model, **how)
        if data != "hub":
            _folder(data, name)
    if out is None:
        found = {name: _measure(name, model, data, None, how) for name, model in models.items()}
        return _joined(found)
    run = Run.open(
        out, command="evaluate glue", settings={"data": data}, fingerprints={}, parts=0,
        outputs=(SUBMISSION, RESULTS), overwrite=overwrite,
    )  # fmt: skip
    with run, disk_errors(run.path):
        folder = run.path / SUBMISSION
        folder.mkdir(exist_ok=True)
        found = {}
        for name, model in models.items():
            found[name] = _measure(name, model, data, folder, how)
            known = read_results(run.path, {"models": dict, "tasks": dict}) or {}
            run.write_results({
                "models": {**known.get("models", {}), name: model},
                "tasks": {**known.get("tasks", {}), name: found[name].scores},
            })  # fmt: skip
        return replace(_joined(found), missing=check_submission(folder))


@dataclass(frozen=True, slots=True)
class _Measured:
    """Scores of a task by split, the files that were written, and notes on those that were not."""

    scores: dict[str, dict[str, float]]
    files: list[str]
    notes: list[str]


def _joined(found: Mapping[str, _Measured]) -> GlueResult:
    return GlueResult(
        {name: one.scores for name, one in found.items()},
        [file for one in found.values() for file in one.files], list(FILES),
        [note for one in found.values() for note in one.notes],
    )  # fmt: skip


def _measure(
    name: str, model: str, data: str, folder: Path | None, how: Mapping[str, Any]
) -> _Measured:
    """Measure a model on its task, and write submission files into a folder, if there is one."""
    task, measured = TASKS[name], _Measured({}, [], [])
    predict = _predictor(task, model, **how)
    for split in task.splits:
        examples, where = _read(name, task, data, split, need_label=True)
        if examples is None:
            continue
        gold = _gold(task, examples, where)
        scores = glue_scores(task, gold, predict(examples))
        measured.scores[split] = {**scores, "rows": len(examples)}
    if not measured.scores:
        raise InputError(f"{data}: no development rows of {name}: put {name}/dev.jsonl there")
    if folder is None:
        return measured
    for file in task.tests:
        ending = "matched" if file.endswith("-m") else "mismatched"
        split = "test" if len(task.tests) == 1 else f"test_{ending}"
        examples, _ = _read(name, task, data, split, need_label=False)
        rows = 0 if examples is None else len(examples)
        if examples is None or rows != task.tests[file]:
            measured.notes.append(
                f"{file}.tsv is not written: the server has {task.tests[file]:,} test rows, "
                f"{data} has {rows:,}"
            )
            continue
        measured.files.append(str(write_submission(folder, file, predict(examples))))
    return measured


def _read(
    name: str, task: GlueTask, data: str, split: str, *, need_label: bool
) -> tuple[Examples | None, str]:
    """Return a task's rows and where they lie; None where there is no such split."""
    if data == "hub":
        source = f"{HUB}:{name}"
        return _examples(source, split, need_label=need_label, text=task.texts), source
    folder = _folder(data, name)
    found = (item for item in sorted(folder.iterdir()) if item.is_file() and is_read(item))
    files = {item.name.split(".")[0]: item for item in found}
    path = next((files[stem] for stem in _STEMS[split] if stem in files), None)
    if path is None:
        return None, str(folder)
    examples = _examples(str(path), "train", need_label=need_label)
    if len(examples.columns) != len(task.texts):
        raise InputError(
            f"{path}: the rows have {len(examples.columns)} texts, {task.title} has "
            f"{len(task.texts)}: name the columns {', '.join(task.texts)}"
        )
    return examples, str(path)


def _folder(data: str, name: str) -> Path:
    folder = Path(data).expanduser() / name
    if not folder.is_dir():
        raise InputError(f"{data}: no folder {name!r}: put the task's dev and test files there")
    return folder


def _examples(
    source: str, split: str, *, need_label: bool, text: tuple[str, ...] | None = None
) -> Examples:
    """Read labelled rows, or rows whose labels, which the hub gives as -1, are left out."""
    if need_label:
        return read_examples(source, text=text, split=split)
    rows, _ = open_rows(source, split)
    rows = rows.remove_columns([name for name in LABEL if name in rows.column_names])
    return read_examples(rows, text=text, need_label=False)


def _gold(task: GlueTask, examples: Examples, where: str) -> NDArray[Any]:
    """Return the expected label indices, or scores, (rows,)."""
    labels = examples.labels
    assert labels is not None  # `read_examples` refuses such a set
    if not task.labels:
        try:
            return np.array([float(value) for value in labels.values])
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: {task.title} has scores from 0 to 5: {error}") from error
    if labels.kind != "class":
        raise InputError(f"{where}: {task.title} has one label a row: {', '.join(task.labels)}")
    names = [str(name) for name in labels.classes]
    known = {name: task.label_of(name) for name in names}
    wrong = next((name for name, index in known.items() if index is None), None)
    if wrong is not None:
        raise InputError(
            f"{where}: label {wrong!r} is none of {task.title}: {', '.join(task.labels)}"
        )
    return np.array([known[names[ids[0]]] for ids in labels.class_ids])


def _predictor(task: GlueTask, model: str, device: str, precision: str) -> Any:
    """Return a function of examples that gives label indices, or scores, (rows,)."""
    if not task.labels:
        scorer = load_scorer(model, device=device, precision=precision)

        def score(examples: Examples) -> NDArray[Any]:
            first, second = zip(*examples.texts, strict=True)
            return scorer.scores(first, second) / 100 * HIGHEST

        return score
    classifier = load_classifier(model, device=device)
    if classifier.texts_per_input not in (None, len(task.texts)):
        raise InputError(
            f"{classifier.name!r} reads {classifier.texts_per_input} texts a row, {task.title} has "
            f"{len(task.texts)}: give a classifier of the task"
        )
    order = _order(task, classifier)

    def answer(examples: Examples) -> NDArray[Any]:
        found = classifier.probabilities(examples.texts, precision=precision)
        answers: NDArray[Any] = order[found.argmax(1)]
        return answers

    return answer


def _order(task: GlueTask, classifier: Classifier) -> NDArray[np.int64]:
    """Return the task's label index of each of a classifier's labels."""
    found = [task.label_of(label) for label in classifier.labels]
    known = [one for one in found if one is not None]
    if (
        classifier.kind != "class"
        or len(known) < len(found)
        or sorted(known) != list(range(len(task.labels)))
    ):
        raise InputError(
            f"{classifier.name!r} gives {', '.join(classifier.labels[:8])}, {task.title} has "
            f"{', '.join(task.names or task.labels)}: give a classifier of the task"
        )
    return np.array(found)
