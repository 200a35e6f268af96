"""Augments a training set with sentences of a bank: retrieved, labelled by a teacher, selected."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from tilth.bank import Bank
from tilth.classifiers.examples import Rows
from tilth.classifiers.load import Columns, Task, read_task
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.train import check_seeds, train_teacher
from tilth.data.examples import Source
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.sources import load_folder
from tilth.errors import InputError
from tilth.models.classifier import (
    Classifier,
    fingerprint_classifier,
    load_classifier,
    new_classifier,
)
from tilth.models.names import CLASSIFIER
from tilth.models.trainer import settings_of
from tilth.runs import RESULTS, Run, read_results, refuse_inside
from tilth.selftrain.dataset import DATASET, Labelled, is_written, write_set
from tilth.selftrain.pseudo_label import (
    bank_fingerprints,
    halfway,
    label_to_run,
    read_columns,
    read_labels,
    results_of,
    retrieve_to_run,
)
from tilth.selftrain.select import Selection, select
from tilth.selftrain.settings import Augmentation, Wanted, wanted_of
from tilth.selftrain.tokenize import learn_words

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_GIVES = {"class": "one class a text", "multi": "any number of classes a text",
          "tags": "tags of tokens"}  # fmt: skip
TEACHER, HITS, LABELS = "teacher", "hits", "labels"
_USUAL = Columns()
# Scores of a teacher: name of the set it was measured on -> figures.
Measure: TypeAlias = Callable[[Classifier, Task], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Augmented:
    """A finished run.

    Attributes:
        path: its folder.
        task: the sets it was made for.
        results: what results.json holds.
        teacher: loads the teacher.
    """

    path: Path
    task: Task
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
    **asked: Any,
) -> Dataset:
    """Augment a training set with sentences of a bank that a teacher labels.

    Args:
        train: what `read_examples` reads: single texts with classes, or tokens with tags.
        bank: an open bank, or where one lies.
        out: the run folder; the same call goes on where it stopped. None: nothing is kept.
        teacher: a base to be fine-tuned on `train`: `starter-encoder`, `starter-mlm`, a folder, a
            hub id; or a finished classifier, or where one lies.
        test: a labelled set of which no sentence may be retrieved.
        validation: a labelled set that the teacher's weights are chosen with; None: a tenth of
            `train`. No sentence of it is retrieved either.
        text: the column of texts or tokens; None: a usual name.
        label: the column of labels or tags; None: a usual name.
        seeds: how many teachers are trained, of which the best is taken.
        training: of the teacher; see `tilth.classifiers.settings.Finetuning`.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        quiet: no progress.
        overwrite: begin the run anew.
        asked: see `Augmentation`: query, multiple, count, per_class, candidates, select, ...

    Returns:
        The kept sentences: text (or tokens), label (or tags), the teacher's probabilities, its
        confidence, similarity, query, source, document and id. The folder holds more.

    Raises:
        InputError: a set, the bank, the teacher or a value is wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2020, arXiv:2010.02194.
    """
    how: dict[str, Any] = {
        "teacher": teacher, "test": test, "validation": validation, "columns": Columns(text, label),
        "seeds": seeds, "training": training or {}, "device": device, "quiet": quiet,
    }  # fmt: skip
    settings = settings_of(Augmentation, asked)
    if out is not None:
        return load_folder(
            augment_to_run(train, bank, Path(out), settings, overwrite=overwrite, **how).path
        )
    with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
        return load_folder(augment_to_run(train, bank, Path(folder), settings, **how).path)


def augment_to_run(
    train: Source,
    bank: Bank | str | Path,
    out: Path,
    asked: Augmentation,
    *,
    teacher: str | Classifier = "starter-encoder",
    test: Source | None = None,
    validation: Source | None = None,
    columns: Columns = _USUAL,
    seeds: int = 1,
    training: dict[str, Any] | None = None,
    device: str = "auto",
    quiet: bool = False,
    overwrite: bool = False,
    measure: Measure | None = None,
) -> Augmented:
    """Augment a training set in a run folder, as `augment` does; see there.

    The folder holds three nested runs (teacher/, hits/, labels/), the set (dataset/) and counts
    (results.json), which also holds what `measure` says of the teacher.
    """
    bank = bank if isinstance(bank, Bank) else Bank.open(bank, device=device)
    sources = {"train": train, "test": test, "validation": validation, "bank": bank.path}
    names = {key: str(one) if isinstance(one, str | Path) else None for key, one in sources.items()}
    refuse_inside(out, *names.values())
    finished = _finished(teacher, device)
    settings = settings_of(
        Finetuning, {"precision": asked.precision, "seed": asked.seed, **(training or {})}
    )
    task = read_task(
        train, test, validation, columns, seed=asked.seed,
        labels=None if finished is None else finished.labels,
    )  # fmt: skip
    if finished is not None and finished.kind != task.rows.kind:
        raise InputError(
            f"teacher {finished.name!r} gives {_GIVES[finished.kind]}, the training set has "
            f"{_GIVES[task.rows.kind]}: give a teacher of such labels, or a base to fine-tune"
        )
    if finished is not None and (seeds != 1 or training):
        raise InputError(
            f"teacher {finished.name!r} is finished, it is not trained: leave seeds and settings "
            "of its training out, or give a base"
        )
    check_seeds(seeds, task.validation)
    if finished is not None:
        finished = replace(finished, labels=task.rows.labels)
    if (
        isinstance(teacher, str)
        and finished is None
        and (overwrite or not (out / TEACHER / "run.json").exists())
    ):
        # A base that cannot be trained is refused before anything is searched.
        new_classifier(teacher, kind=task.rows.kind, labels=task.rows.labels, device="cpu")
    wanted = wanted_of(asked, task.rows, len(bank))
    run = Run.open(
        out,
        command="augment",
        settings={
            **names, **asdict(asked), "teacher": getattr(teacher, "name", teacher),
            "text": columns.text, "label": columns.label,
            **({"seeds": seeds, "training": asdict(settings)} if finished is None else {}),
        },
        fingerprints={
            "training set": task.rows.fingerprint(),
            "validation set": "none" if task.validation is None else task.validation.fingerprint(),
            "test set": "none" if task.test is None else task.test.fingerprint(),
            **bank_fingerprints(bank, index=asked.index),
            **({} if finished is None else {"teacher": fingerprint_classifier(finished)}),
        },
        parts=0,
        outputs=(TEACHER, HITS, LABELS, DATASET, RESULTS),
        overwrite=overwrite,
    )  # fmt: skip

    def loaded() -> Classifier:
        if finished is not None:
            return finished
        assert isinstance(teacher, str)
        return train_teacher(
            task.rows, task.validation, teacher, settings, seeds=seeds, out=run.path / TEACHER,
            sources={key: str(name) for key, name in names.items() if name is not None},
            device=device, quiet=quiet,
        )  # fmt: skip

    with run:
        results = read_results(run.path)
        if results is None or not is_written(run.path):
            results = _complete(run, bank, task, wanted, asked, loaded, measure, quiet=quiet)
    return Augmented(run.path, task, results, loaded)


def _finished(teacher: str | Classifier, device: str) -> Classifier | None:
    """Return a teacher that is trained already; None: it is a base to be fine-tuned."""
    if isinstance(teacher, Classifier):
        return teacher
    if teacher in CLASSIFIER.starters:
        return None
    try:
        return load_classifier(teacher, device=device)
    except InputError:
        return None  # as a base it is refused, with the reason, if it is nothing at all


def _complete(
    run: Run,
    bank: Bank,
    task: Task,
    wanted: Wanted,
    asked: Augmentation,
    teacher: Callable[[], Classifier],
    measure: Measure | None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """Do what is missing of a run, and return its results.

    Searching comes first, for it fails early if it fails.
    """
    hits = retrieve_to_run(
        run.path / HITS, bank, task.examples, kind=asked.query, count=wanted.candidates,
        without=task.left_out, filters=asked.filters, clusters=asked.clusters, seed=asked.seed,
        quiet=quiet,
    )  # fmt: skip
    found = results_of(hits)
    if found["sentences"] < wanted.candidates:
        log.warning(
            "%s sentences were found, %s were wanted: the bank has no more that are near enough "
            "and not left out", f"{found['sentences']:,}", f"{wanted.candidates:,}",
        )  # fmt: skip
    classifier = teacher()
    tokens = task.examples.tokens
    labels = label_to_run(
        run.path / LABELS, hits, lambda: classifier, fingerprint_classifier(classifier),
        words=None if tokens is None else learn_words(tokens), precision=asked.precision,
        quiet=quiet,
    )  # fmt: skip
    given = read_labels(labels)
    selection = _select(given, read_columns(hits, ["text", "similarity"]), task.rows, wanted, asked)
    if not len(selection.kept):
        raise InputError(
            f"{run.path}: none of {found['sentences']:,} labelled sentences is kept "
            f"({'; '.join(f'{count:,}: {why}' for why, count in selection.counts().items())}): "
            "lower --floor, or train a better teacher"
        )
    if selection.empty:
        names = ", ".join(repr(name) if name else "rows without any" for name in selection.empty)
        log.warning(
            "no sentence is kept of %s: the teacher labels none of those that were found so; more "
            "--candidates or --query per-sentence may find some", names,
        )  # fmt: skip
    scores = measure(classifier, task) if measure is not None else {}
    own = halfway(task.rows, classifier, precision=asked.precision)
    return write_set(run, Labelled(task, hits, labels, given, selection, own), bank, scores)


def _select(
    given: Any, table: pa.Table, rows: Rows, wanted: Wanted, asked: Augmentation
) -> Selection:
    keys = random_keys(asked.seed, "augment", text_hashes(table["text"].combine_chunks()))
    return select(
        given, kind=rows.kind, labels=rows.labels, ratio=wanted.ratio, count=wanted.rows,
        floor=asked.floor, by=asked.select,
        similarity=table["similarity"].to_numpy(), keys=keys, seed=asked.seed,
    )  # fmt: skip
