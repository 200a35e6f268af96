"""Augments a training set with sentences of a bank: retrieved, labelled by a teacher, selected."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

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
from tilth.limits import TRAININGS
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.names import CLASSIFIER
from tilth.models.trainer import settings_of
from tilth.runs import RESULTS, Run, read_results, refuse_inside
from tilth.selftrain.dataset import DATASET, AugmentedSet, is_written, write_set
from tilth.selftrain.pseudo_label import (
    bank_fingerprints,
    blend_labels,
    label_in_run,
    read_columns,
    read_pseudo_labels,
    retrieve_in_run,
)
from tilth.selftrain.select import class_ratio, multiple_of, select
from tilth.selftrain.settings import Augmentation, TeacherSettings

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_GIVES = {"class": "one class a text", "multi": "any number of classes a text",
          "tags": "tags of tokens"}  # fmt: skip
TEACHER, HITS, LABELS = "teacher", "hits", "labels"
# Scores of a teacher: name of the set it was measured on -> figures.
Measure: TypeAlias = Callable[[Classifier, TaskData], Mapping[str, Any]]
_CANDIDATES_PER_ROW = 2
_FEWEST_CANDIDATES = 2_000
# More than this part of a bank is hardly near the task: the paper takes some millions of a hundred
# millions to some billions.
_PART_OF_BANK = 10


@dataclass(frozen=True, slots=True)
class AugmentRun:
    """Describe a finished run.

    Attributes:
        results: content of results.json.
        teacher: loads the teacher.
    """

    path: Path
    task: TaskData
    results: dict[str, Any]
    teacher: Callable[[], Classifier]


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
    how = TeacherSettings(teacher, seeds, training or {}, device)
    if out is not None:
        run = augment_in_run(sources, bank, Path(out), asked, how, overwrite=overwrite, quiet=quiet)
        return load_folder(run.path / DATASET)
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        run = augment_in_run(sources, bank, Path(folder), asked, how, quiet=quiet)
        return load_folder(run.path / DATASET)


def augment_in_run(
    sources: TaskSources,
    bank: Bank | str | Path,
    out: Path,
    settings: Augmentation,
    teacher: TeacherSettings,
    *,
    measure: Measure | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> AugmentRun:
    """Augment a training set in a run folder, as `augment` does.

    The folder holds three nested runs (teacher/, hits/, labels/), the set (dataset/) and counts
    (results.json), with the scores of the teacher that `measure` returns.
    """
    bank = bank if isinstance(bank, Bank) else Bank.open(bank, device=teacher.device)
    given = {
        "train": sources.train, "test": sources.test, "validation": sources.validation,
        "bank": bank.path,
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

    def load_teacher() -> Classifier:
        if finished is not None:
            return finished
        return train_on_examples(
            task.train, task.validation,
            ClassifierTraining(
                base, finetuning, seeds=teacher.seeds, device=teacher.device, quiet=quiet
            ),
            run.path / TEACHER,
            sources={key: name for key, name in names.items() if name is not None},
        )  # fmt: skip

    with run:
        results = read_results(run.path)
        if results is None or not is_written(run.path):
            # Retrieval comes first: if it fails, it fails early.
            hits = retrieve_in_run(
                run.path / HITS, bank, task.examples, candidates, settings.retrieval,
                exclude=task.excluded_texts, quiet=quiet,
            )  # fmt: skip
            made = _label_and_select(
                run, task, hits, load_teacher(), settings, count, ratio, quiet=quiet
            )
            scores = measure(made.teacher, task) if measure is not None else {}
            results = write_set(run, made, bank, scores)
    return AugmentRun(run.path, task, results, load_teacher)


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


def row_counts(
    settings: Augmentation, train: LabeledExamples, bank: int
) -> tuple[int, NDArray[np.float64], int]:
    """Return the rows wanted, the share of each class, (classes,), and sentences to retrieve.

    Args:
        bank: number of sentences of the bank.
    """
    ratio = class_ratio(train)
    if settings.per_class is not None:
        occurs = ratio > 0  # a class that the training set lacks is not wanted either
        count = settings.per_class * int(occurs.sum())
        ratio = occurs / occurs.sum()
    elif settings.count is not None:
        count = settings.count
    elif settings.multiple is not None:
        count = max(1, round(settings.multiple * len(train)))
    else:
        usual = multiple_of(len(train)) * len(train)
        most = min(bank, max(_FEWEST_CANDIDATES, bank // _PART_OF_BANK))
        count = min(usual, max(1, (settings.candidates or most) // _CANDIDATES_PER_ROW))
        if count < usual:
            log.warning(
                "%s rows are wanted, not %s (%d for each row of the training set): the bank's %s "
                "sentences are few for that; --multiple, --count or --per-class asks for others",
                f"{count:,}", f"{usual:,}", multiple_of(len(train)), f"{bank:,}",
            )  # fmt: skip
    needed = settings.candidates or _CANDIDATES_PER_ROW * count
    if needed > bank:
        log.warning(
            "the bank holds %s sentences, %s were to be retrieved: all are", f"{bank:,}",
            f"{needed:,}",
        )  # fmt: skip
    return count, ratio, min(settings.candidates or max(_FEWEST_CANDIDATES, needed), bank)


def _label_and_select(
    run: Run,
    task: TaskData,
    hits: Run,
    teacher: Classifier,
    settings: Augmentation,
    count: int,
    ratio: NDArray[np.float64],
    *,
    quiet: bool,
) -> AugmentedSet:
    """Label the retrieved sentences, or what is left of them, and select among them."""
    labels = label_in_run(
        run.path / LABELS, hits, teacher, fingerprint_classifier(teacher),
        tokens=task.examples.tokens, precision=settings.precision, quiet=quiet,
    )  # fmt: skip
    probabilities = read_pseudo_labels(labels)
    table = read_columns(hits, ["text", "similarity"])
    keys = random_keys(settings.seed, "augment", text_hashes(table["text"].combine_chunks()))
    selection = select(
        probabilities, task.train, count, ratio=ratio, min_confidence=settings.floor,
        by=settings.select, similarity=table["similarity"].to_numpy(), keys=keys,
        seed=settings.seed,
    )  # fmt: skip
    if not len(selection.kept):
        raise InputError(
            f"{run.path}: none of {len(table):,} labelled sentences is kept "
            f"({'; '.join(f'{number:,}: {why}' for why, number in selection.counts().items())}): "
            "lower --floor, or train a better teacher"
        )
    if selection.empty:
        names = ", ".join(repr(name) if name else "rows without any" for name in selection.empty)
        log.warning(
            "no sentence is kept of %s: the teacher labels none of those that were found so; more "
            "--candidates or --query per-sentence may find some", names,
        )  # fmt: skip
    blended = blend_labels(task.train, teacher, precision=settings.precision)
    return AugmentedSet(task, teacher, hits, labels, probabilities, selection, blended)
