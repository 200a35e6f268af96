"""Augment a training set with sentences of a bank: retrieved, labelled by a teacher, selected."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.bank import Bank
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.load import TaskData, TaskSources, read_task
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.classifiers.train import check_seeds, train_on_examples
from tilth.data.examples import Source
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.sources import load_folder
from tilth.errors import InputError
from tilth.evaluate.classify import answered, classify_scores, kind_of
from tilth.evaluate.tag import best_tags, tag_scores
from tilth.limits import TRAININGS, settings_of
from tilth.metrics.significance import check_resamples
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.names import CLASSIFIER
from tilth.report.augment import write_augment_report
from tilth.report.run_reader import refuse_edited
from tilth.report.systems import figure_cell, figures_of
from tilth.runs import RESULTS, Progress, Run, read_results, refuse_inside
from tilth.runs.cluster import Cluster
from tilth.selftrain.dataset import DATASET, AugmentedSet, blend_labels, is_written, write_set
from tilth.selftrain.pseudo_label import label_in_run, read_pseudo_labels
from tilth.selftrain.retrieve import bank_fingerprints, read_columns, retrieve_in_run
from tilth.selftrain.select import PseudoLabels, row_counts, select
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.storage import as_path
from tilth.urls import url_of
from tilth.workflows.evaluate_classifier import warn_of_training_rows
from tilth.workflows.open_bank import open_named

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_GIVES = {"class": "one class a text", "multi": "any number of classes a text",
          "tags": "tags of tokens"}  # fmt: skip
TEACHER, HITS, LABELS = "teacher", "hits", "labels"
# Below this retrieved sentences gained nothing in trials: a teacher of 52 gave +0.2 (-3.0 to +3.4).
# Teachers of 73 and more gave two to six points (docs/results.md).
_POOR_TEACHER, _FEWEST_ROWS = 60.0, 50
_FEWEST_TOLD, _CHANCE = 20, 0.05  # rows and p of a test whether a teacher tells the labels apart


def augment(
    train: Source,
    bank: Bank | str | Path,
    *,
    out: str | Path | None = None,
    teacher: str | Classifier = "starter-encoder",
    test: Source | None = None,
    validation: Source | None = None,
    text: str | None = None,
    label: str | None = None,
    seeds: int = 1,
    training: dict[str, Any] | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    quiet: bool = False,
    overwrite: bool = False,
    **settings: Any,
) -> Dataset:
    """Augment a training set with sentences of a bank that a teacher labels.

    Args:
        train: what `read_examples` reads: single texts with classes, or tokens with tags.
        out: the run folder; the same call resumes. None: nothing is kept.
        teacher: a base to fine-tune on `train`: `starter-encoder`, `starter-mlm`, a folder, a hub
            id; or a finished classifier, or its folder.
        test: a labelled set; none of its sentences is retrieved.
        validation: a labelled set that selects the teacher's weights; None: a tenth of `train`.
            None of its sentences is retrieved either.
        text: the column of texts or tokens; None: a usual name.
        label: the column of labels or tags; None: a usual name.
        seeds: number of teachers trained, of which the best is taken.
        training: fields of `tilth.classifiers.settings.Finetuning`, for the teacher.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        cluster: where the bank is scanned and sentences are labelled; None: in this process.
        overwrite: start the run folder anew.
        quiet: no progress bar.
        settings: fields of `Augmentation`: query, multiple, count, per_class, candidates, ...

    Returns:
        The kept sentences: text (or tokens), label (or tags), the teacher's probabilities, its
        confidence, similarity, query, source, document and id. The folder holds more.

    Raises:
        InputError: a set, the bank, the teacher or a value is wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2020, arXiv:2010.02194.
    """
    asked = settings_of(Augmentation, settings)
    sources = TaskSources(train, validation, test, text=text, label=label)
    how = TeacherSettings(teacher, seeds, training or {}, device, cluster or Cluster())
    bank = bank if isinstance(bank, Bank) else open_named(as_path(bank), device=device)
    with ExitStack() as held:
        if out is None:
            out = held.enter_context(tempfile.TemporaryDirectory(prefix="tilth-"))
        folder = as_path(out)
        augment_to_run(sources, bank, folder, asked, how, overwrite=overwrite, quiet=quiet)
        return load_folder(folder / DATASET)


def augment_to_run(
    sources: TaskSources,
    bank: Bank,
    out: Path,
    settings: Augmentation,
    teacher: TeacherSettings,
    *,
    bootstrap: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Augment a training set in a run folder, as `augment` does; return its results.json.

    The folder holds three nested runs (teacher/, hits/, labels/), the set (dataset/) and counts
    (results.json).

    Args:
        bootstrap: resamples of the intervals of the teacher's scores on test and validation rows,
            which are measured and reported with it, of a finished run anew if they differ; None:
            neither measured nor reported.
    """
    if bootstrap is not None:
        check_resamples(bootstrap, settings.seed)
    given = {
        "train": sources.train, "test": sources.test, "validation": sources.validation,
        "bank": url_of(bank.path) or bank.path,
    }  # fmt: skip
    names = {key: str(one) if isinstance(one, str | Path) else None for key, one in given.items()}
    refuse_inside(out, *names.values())
    finished = _finished_teacher(teacher)
    finetuning = settings_of(
        Finetuning, {"precision": settings.precision, "seed": settings.seed, **teacher.training}
    )
    task = read_task(
        sources, seed=settings.seed, labels=None if finished is None else finished.labels
    )
    _check_teacher(teacher, finished, task)
    base = str(teacher.model)
    if finished is not None:
        finished = replace(finished, labels=task.train.labels)
        for kind, rows in (("validation", task.validation), ("test", task.test)):
            if rows is not None:
                warn_of_training_rows(finished.name, f"{kind} set", rows.texts, sources.text)
    elif overwrite or not (out / TEACHER / "run.json").exists():
        # A base that cannot be trained is refused before anything is searched.
        new_classifier(base, kind=task.train.kind, labels=task.train.labels, device="cpu")
    count, ratio, candidates = row_counts(settings, task.train, len(bank))
    run = Run.open(
        out,
        command="augment",
        settings={
            **names, **asdict(settings), "teacher": getattr(teacher.model, "name", base),
            "text": sources.text, "label": sources.label,
            **({"seeds": teacher.seeds, "training": asdict(finetuning)}
               if finished is None else {}),
        },
        fingerprints={
            "training set": task.train.fingerprint(),
            "validation set": "none" if task.validation is None else task.validation.fingerprint(),
            "test set": "none" if task.test is None else task.test.fingerprint(),
            **bank_fingerprints(bank, index=settings.index),
            **({} if finished is None else {"teacher": fingerprint_classifier(finished)}),
        },
        parts=0,
        outputs=(TEACHER, HITS, LABELS, DATASET, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run:
        results = read_results(run.path, {"teacher": dict}) if is_written(run.path) else None
        if results is None or bootstrap not in (None, results.get("bootstrap")):
            # Retrieval comes first: if it fails, it fails early.
            hits = retrieve_in_run(
                run.path / HITS, bank, task.examples, candidates, settings,
                exclude=task.excluded_texts, cluster=teacher.cluster, quiet=quiet,
            )  # fmt: skip
            labeller = finished or train_on_examples(
                task.train, task.validation,
                ClassifierTraining(
                    base, finetuning, seeds=teacher.seeds, device=teacher.device, quiet=quiet
                ),
                run.path / TEACHER,
                facts={
                    "sources": {
                        key: name for key, name in names.items()
                        if key in ("train", "validation") and name is not None
                    },
                    "columns": {"text": sources.text, "label": sources.label},
                },
            )  # fmt: skip
            if results is None:
                made = _label_and_select(
                    run, task, hits, labeller, settings, (count, ratio), cluster=teacher.cluster,
                    quiet=quiet,
                )  # fmt: skip
                results = write_set(run, made, bank)
            scores = {} if bootstrap is None else {
                name: _teacher_scores(labeller, rows, bootstrap, settings, quiet=quiet)
                for name, rows in (("test", task.test), ("validation", task.validation))
                if rows is not None
            }  # fmt: skip
            results |= {"teacher": scores, "bootstrap": bootstrap}
            run.write_results(results)
    if bootstrap is not None:
        with refuse_edited(run.path):
            write_augment_report(run.path)
    return results


def _finished_teacher(teacher: TeacherSettings) -> Classifier | None:
    """Return a teacher that is already trained; None: it is a base to be fine-tuned."""
    if isinstance(teacher.model, Classifier):
        return teacher.model
    if teacher.model in CLASSIFIER.starters:
        return None
    try:
        return load_classifier(teacher.model, device=teacher.device)
    except InputError:
        return None  # as a base it is refused, with the reason, if it is nothing at all


def _check_teacher(teacher: TeacherSettings, finished: Classifier | None, task: TaskData) -> None:
    if finished is not None and finished.kind != task.train.kind:
        raise InputError(
            f"teacher {finished.name!r} gives {_GIVES[finished.kind]}, the training set has "
            f"{_GIVES[task.train.kind]}: give a teacher of such labels, or a base to fine-tune"
        )
    if finished is not None and (teacher.seeds != 1 or teacher.training):
        raise InputError(
            f"teacher {finished.name!r} is finished, it is not trained: leave seeds and settings "
            "of its training out, or give a base"
        )
    TRAININGS.check("seeds", teacher.seeds)
    check_seeds(teacher.seeds, task.validation)


def _label_and_select(
    run: Run,
    task: TaskData,
    hits: Run,
    teacher: Classifier,
    settings: Augmentation,
    wanted: tuple[int, NDArray[np.float64]],
    *,
    cluster: Cluster,
    quiet: bool,
) -> AugmentedSet:
    """Label the retrieved sentences, or what is left of them, and select among them."""
    labels = label_in_run(
        run.path / LABELS, hits, teacher, tokens=task.examples.tokens,
        precision=settings.precision, cluster=cluster, quiet=quiet,
    )  # fmt: skip
    probabilities = read_pseudo_labels(labels)
    table = read_columns(hits, ["text", "similarity"])
    keys = random_keys(settings.seed, "augment", text_hashes(table["text"].combine_chunks()))
    count, ratio = wanted
    selection = select(
        PseudoLabels(probabilities, keys, table["similarity"].to_numpy()), task.train, count,
        ratio=ratio, min_confidence=settings.min_confidence, by=settings.select, seed=settings.seed,
    )  # fmt: skip
    if not len(selection.kept):
        raise InputError(
            f"{run.path}: none of {len(table):,} labelled sentences is kept "
            f"({'; '.join(f'{number:,}: {why}' for why, number in selection.counts().items())}): "
            "lower --min-confidence, or train a better teacher"
        )
    for name, labelled in selection.empty.items():
        log.warning(
            "no sentence is kept of %s: %s", f"{name!r:.40}" if name else "rows without any",
            f"the teacher is below --min-confidence for the {labelled:,} that it gave this label: "
            "lower it" if labelled else "the teacher gave this label to no retrieved sentence; "
            "more --candidates or --query per-sentence may find some",
        )  # fmt: skip
    blended = blend_labels(task.train, teacher, precision=settings.precision)
    return AugmentedSet(task, teacher, hits, labels, probabilities, selection, blended)


def _teacher_scores(
    teacher: Classifier,
    rows: LabeledExamples,
    bootstrap: int,
    settings: Augmentation,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Return a teacher's scores on rows, as `classify_scores` or `tag_scores` does."""
    how: dict[str, Any] = {"bootstrap": bootstrap, "seed": settings.seed}
    with Progress(len(rows), quiet=quiet, what="rows") as progress:
        given = teacher.answers(rows, precision=settings.precision, progress=progress)
    if rows.tokens is not None:
        gold, _ = best_tags(list(rows.targets), rows.labels)
        said, sure = best_tags(given, teacher.labels)
        return tag_scores(gold, said, sure=sure, **how)
    kind = kind_of(teacher)
    right = answered(np.asarray(rows.targets), kind)
    return classify_scores(right, given, teacher.labels, kind=kind, **how)


def teacher_warning(results: Mapping[str, Any]) -> str | None:
    """Return a warning if a teacher is wrong too often to label sentences."""
    for name in ("test", "validation"):
        scores = results["teacher"].get(name)
        if scores is None:
            continue
        key, figure = ("f1", "F1") if "f1" in scores else ("accuracy", "accuracy")
        value = scores[key]["value"]
        problem = None
        if scores["n"] >= _FEWEST_ROWS and value is not None and value < _POOR_TEACHER:
            problem = "so many of its labels are wrong that a student hardly gains"
        elif scores["n"] >= _FEWEST_TOLD and _tells_nothing(scores.get("confusion")):
            counts = {label: one["predicted"] for label, one in scores["classes"].items()}
            label, count = max(counts.items(), key=lambda one: one[1])
            problem = (
                f"its answers do not surely go with the labels ({count} of {scores['n']} are "
                f"{label!r}), so that a student of them hardly gains"
            )
        if problem is not None:
            return (
                f"the teacher's {figure} on the {name} rows is {value:.1f}: {problem}; first give "
                "it more labelled rows or --epochs, or a larger --teacher"
            )
        if scores["n"] >= _FEWEST_ROWS:
            return None
    return None


def _tells_nothing(confusion: Sequence[Sequence[int]] | None) -> bool:
    """Return whether answers may be independent of the labels, by a chi-squared test (5%)."""
    from scipy.stats import chi2_contingency

    table = np.array(confusion if confusion is not None else [[0]])
    table = table[table.any(1)][:, table.any(0)]  # labels that occur, and those that are answered
    if len(table) < 2:
        return False  # of one label nothing can be told
    return table.shape[1] == 1 or bool(chi2_contingency(table).pvalue > _CHANCE)


def teacher_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a teacher's scores to print: set, rows, figure, its value and 95% interval."""
    return [
        (name, f"{scores['n']:,}", figure, *figure_cell(scores[key]))
        for name, scores in results["teacher"].items()
        for key, figure in figures_of(scores).items()
    ]
