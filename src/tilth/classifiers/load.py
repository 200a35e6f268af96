"""Reads the labelled sets of a task, and checks that they are disjoint and can be learned from."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.classifiers.examples import (
    PROBABILITIES,
    LabeledExamples,
    Where,
    concatenate,
    drop_duplicates,
    groups_of,
    labeled_examples,
    model_labels,
    probability_lists,
    repeat,
    soft_labeled_examples,
    train_validation_split,
)
from tilth.data.examples import (
    Examples,
    Source,
    may_be_divided,
    open_rows,
    prefer_curated,
    read_examples,
    refuse_other_form,
    rows_of_split,
)
from tilth.data.labels import class_names, match_label_names, plain_label
from tilth.data.normalize import row_keys
from tilth.data.readers import read_rows, row_location
from tilth.data.sources import named_split, source_name, split_names
from tilth.data.split import source_hashes, written_by_model
from tilth.errors import InputError
from tilth.limits import PART_SHARE
from tilth.metrics.scores import positive
from tilth.storage import as_path

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

NamedTexts: TypeAlias = tuple[str, Source, Sequence[tuple[str, ...]]]  # of a set: name, source
_TRAIN, _VALIDATION, _TEST = "train", "validation", "test"
TEST, VALIDATION = "test set", "validation set"
# Three epochs are about fifty over the labelled rows then, as many as the paper's few-shot ones.
MOST_TIMES = 16
_NAMED = 3  # groups of labels in a warning
_BETWEEN = re.compile(r"[|;,]")  # marks between several labels in one cell
_MOST_COMPARED = 100_000  # pairs of labels
_SEVERAL, _ALIKE = 5, 0.8  # rows of a label that is spelt right; how alike labels are, at most 1


@dataclass(frozen=True, slots=True)
class TaskSources:
    """Name the labelled sets of a task, as `read_examples` reads them.

    Attributes:
        train: labelled rows, or a set with a column `probabilities`.
        validation: selects the best weights. None: the split of that name, or else a tenth of
            `labelled`, or of `train`.
        labelled: more labelled rows to train on.
        text: column of texts or tokens, or the two columns of pairs; None: a usual name.
        label: column of labels or tags; None: a usual name.
    """

    train: Source
    validation: Source | None = None
    test: Source | None = None
    labelled: Source | None = None
    text: str | Sequence[str] | None = None
    label: str | None = None

    def read(self, source: Source, split: str) -> Examples:
        """Read one of the sets, which has labels."""
        found = read_examples(source, text=self.text, label=self.label, split=split)
        assert found.labels is not None  # labels are required by default
        return found


@dataclass(frozen=True, slots=True)
class _LoadedSet:
    """A set with a teacher's probabilities, where it has any, and the labels these are of."""

    examples: Examples
    probabilities: pa.ChunkedArray | None
    names: list[str] | None
    where: Where
    origins: NDArray[np.uint64]
    written: NDArray[np.bool_]

    def with_labels(self, labels: Sequence[str]) -> LabeledExamples:
        if self.probabilities is None:
            rows = labeled_examples(self.examples, labels, where=self.where)
        else:
            assert self.examples.labels is not None
            kind = self.examples.labels.kind
            assert kind != "number"
            rows = soft_labeled_examples(
                self.examples, self.probabilities, self._names(labels), kind, self.where
            ).in_order(labels)
        return replace(rows, origins=self.origins, written=self.written)

    def check_named(self) -> None:
        """Refuse probabilities without the names of their labels."""
        if self.probabilities is not None and self.names is None:
            raise InputError(
                f"{self.where(0)}: the labels of the {PROBABILITIES} are not named: make "
                f"{self.examples.label_column} a ClassLabel that names them in their order"
            )

    def refuse_other_form(self, other: _LoadedSet, name: str, source: Source) -> None:
        """Refuse another set whose rows have another form than those of this one, the source."""
        assert self.examples.labels is not None
        kind, texts = self.examples.labels.kind, len(self.examples.columns)
        where = other.where(0)
        refuse_other_form(other.examples, where, name, source, kind=kind, texts=texts)

    def _names(self, labels: Sequence[str]) -> list[str]:
        """Return the labels of a model in the order of the probabilities."""
        if self.names is None:
            return list(labels)
        names = match_label_names(self.names, labels)
        if set(names) != set(labels):
            raise InputError(
                f"{self.where(0)}: the {PROBABILITIES} are of the labels {', '.join(names):.200}, "
                f"the model's are {', '.join(labels):.200}: give both sets the same labels"
            )
        return names


def read_training_sets(
    sources: TaskSources,
    *,
    tags: bool,
    hard: bool = False,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    labelled_share: float = 0.0,
) -> tuple[LabeledExamples, LabeledExamples | None]:
    """Read training and validation rows; the latter are None where no label has five rows.

    Args:
        sources: all but `test` are read.
        tags: whether tokens have tags; else texts have classes.
        hard: whether only the likeliest label of probabilities counts.
        labels: in the order of probabilities without names. None: those that occur, or those that
            the label column of a set with probabilities names.
        labelled_share: as of `tilth.train_classifier`.
    """
    PART_SHARE.check("labelled_share", labelled_share)
    first = _load(sources, sources.train, _TRAIN, tags=tags)
    return _training_sets(
        sources, first, tags=tags, hard=hard, labels=labels, seed=seed, share=labelled_share
    )


def _training_sets(
    sources: TaskSources,
    first: _LoadedSet,
    *,
    tags: bool,
    labels: Sequence[str] | None,
    seed: int,
    hard: bool = False,
    share: float = 0.0,
) -> tuple[LabeledExamples, LabeledExamples | None]:
    more = None
    if sources.labelled is not None:
        more = _load(sources, sources.labelled, _TRAIN, tags=tags)
        first.refuse_other_form(more, "labelled", sources.train)
    known = _shared_labels([first] if more is None else [first, more], labels)
    rows = _distinct(first.with_labels(known), sources.train)
    extra = None if more is None else _distinct(more.with_labels(known), sources.labelled)
    if hard:
        rows, extra = rows.hard(), None if extra is None else extra.hard()
    chosen = sources.validation
    if chosen is None:
        chosen = validation_split(sources.train)
    if chosen is not None:
        held_out = _load(sources, chosen, _VALIDATION, tags=tags)
        first.refuse_other_form(held_out, _VALIDATION, sources.train)
        if labels is None:
            held_out.check_named()
        validation = held_out.with_labels(known)
    elif extra is not None:
        extra, validation = train_validation_split(extra, seed)
        rows = rows.select(_apart(rows, validation))
    else:
        rows, validation = train_validation_split(rows, seed)
    if extra is not None:
        times = repeat_count(share, len(rows), len(extra))
        rows = concatenate(rows, repeat(extra, times))
    _require_two_labels(rows, sources.train)
    _warn_of_single_rows(rows, sources.train)
    if len(validation):
        return rows, validation
    log.warning(
        "no label has five rows that share no text or origin: there is no validation split, the "
        "last weights are kept"
    )
    return rows, None


def _apart(rows: LabeledExamples, held: LabeledExamples) -> NDArray[np.int64]:
    """Return the rows that are in no group of held ones, as of `groups_of`."""
    groups = groups_of(rows, held)
    return np.flatnonzero(~np.isin(groups[: len(rows)], groups[len(rows) :]))


def repeat_count(share: float, rows: int, labelled: int, most: int = MOST_TIMES) -> int:
    """Return how often labelled rows are repeated among others to make up a share of all."""
    if not labelled:
        return 1
    wanted = round(share / (1 - share) * rows / labelled)
    return max(1, min(wanted, most))


def _load(
    sources: TaskSources, source: Source, split: str, *, tags: bool | None = None
) -> _LoadedSet:
    """Read a set; with `tags`, check whether its tokens have tags."""
    source = prefer_curated(source)

    examples = sources.read(source, split)

    def where(row: int) -> str:
        return row_location(source, examples.place(row), split)

    assert examples.labels is not None
    kind = examples.labels.kind
    if kind == "tags" and tags is False:
        raise InputError(
            f"{where(0)}: {examples.label_column} holds a tag for each token: a classifier gives "
            "texts classes; use train tagger"
        )
    if kind != "tags" and tags:
        raise InputError(
            f"{where(0)}: {examples.label_column} holds no tags: a tagger learns from tokens and "
            "their tags; use train classifier"
        )
    if kind == "number":
        labeled_examples(examples, where=where)  # raises
    dataset, _ = open_rows(source, split)
    table = dataset.with_format("arrow")[:]
    if examples.places is not None:
        table = table.take(examples.places)
    origins, written = source_hashes(table), written_by_model(table)
    if PROBABILITIES not in dataset.column_names:
        return _LoadedSet(examples, None, None, where, origins, written)
    names, column = probability_lists(table[PROBABILITIES])
    names = names or class_names(dataset.features[examples.label_column])
    return _LoadedSet(examples, column, names, where, origins, written)


def _shared_labels(sets: list[_LoadedSet], given: Sequence[str] | None) -> list[str]:
    """Return the labels of a model that is trained on some sets."""
    if isinstance(given, str):
        raise InputError(f"labels are {given!r:.40}, one text: give a list of names")
    if given is not None:
        names = [str(label) for label in given]
        for name, count in Counter(names).items():
            if count > 1:
                raise InputError(f"labels name {name!r:.40} {count} times: name each label once")
        return names
    for one in sets:
        one.check_named()
    named = next((one.names for one in sets if one.names is not None), None)
    if named is not None:
        return named
    found = [one.examples.labels for one in sets if one.examples.labels is not None]
    return list(dict.fromkeys(name for labels in found for name in model_labels(labels)))


def _distinct(rows: LabeledExamples, source: Source | None) -> LabeledExamples:
    left, conflicts = drop_duplicates(rows)
    name = _prefix(source)
    if conflicts:
        log.warning(
            "%s%d texts occur more than once with different labels; all are kept", name, conflicts
        )
    if len(left) < len(rows):
        log.warning(
            "%s%d of %d rows repeat others and are left out", name, len(rows) - len(left), len(rows)
        )
    if left.kind == "class":
        for label, other in _misspelt(rows):
            log.warning("%slabel %.40r has 1 row: is it %.40r misspelt?", name, label, other)
    warn_of_spellings(left.labels, name)
    return left


def warn_of_spellings(labels: Sequence[str], name: str) -> None:
    """Warn of labels that may be one, or several; `name` is put before the message."""
    spelt: dict[str, list[str]] = {}
    for label in labels:
        plain = str(plain_label(label))
        spelt.setdefault(" ".join(plain.casefold().split()), []).append(label)
    if several := [" and ".join(map(repr, same)) for same in spelt.values() if same[1:]]:
        more = f", and {len(several) - _NAMED} more" if len(several) > _NAMED else ""
        log.warning(
            "%slabels differ in case, spaces or the form of a number alone: %s%s: give them one "
            "spelling if they are one", name, ", ".join(several[:_NAMED]), more,
        )  # fmt: skip
    for label in labels:
        parts = [part.strip() for part in _BETWEEN.split(label)]
        if len(parts) > 1 and spelt.keys() >= {part.casefold() for part in parts}:
            log.warning(
                "%slabel %.60r is read as one, and its parts are labels, too: for several labels a "
                "row give lists (jsonl, json or parquet)", name, label,
            )  # fmt: skip
            break


def _misspelt(rows: LabeledExamples) -> list[tuple[str, str]]:
    """Return labels of one row, each with the label of several rows that is spelt nearly alike."""
    likeliest = np.asarray(rows.targets).argmax(axis=1)
    counts = np.bincount(likeliest, minlength=len(rows.labels))
    often = {name: _letters(name) for name in np.array(rows.labels)[counts >= _SEVERAL].tolist()}
    single = [rows.labels[label] for label in np.flatnonzero(counts == 1)]
    if len(single) * len(often) > _MOST_COMPARED:  # so many are no misspellings
        return []
    found = []
    for label in single:
        others = [one for one, letters in often.items() if letters != _letters(label)]
        found += [(label, one) for one in get_close_matches(label, others, 1, _ALIKE)]
    return found


def _letters(label: str) -> str:
    return "".join(filter(str.isalpha, label))


def validation_split(source: Source) -> Source | None:
    """Return the validation split of a data set that has several, or a column of splits."""
    from datasets import DatasetDict

    if isinstance(source, DatasetDict):
        return named_split(source, _VALIDATION) or None  # an empty one is none
    if isinstance(source, str | Path):
        source = str(prefer_curated(source))
        if _VALIDATION in split_names(source, filled=True):
            return read_rows(source, split=_VALIDATION)
        if not may_be_divided(source):
            return None
    with suppress(InputError):  # no row is in it
        rows, name = open_rows(source, _TRAIN)
        places = rows_of_split(rows, _VALIDATION, name)
        return None if places is None else rows.select(places)
    return None


def _warn_of_single_rows(rows: LabeledExamples, source: Source) -> None:
    """Warn of labels that a single row has to learn from."""
    if rows.kind not in ("class", "multi"):
        return
    targets = np.asarray(rows.targets)
    if rows.kind == "class":
        counts = np.bincount(targets.argmax(axis=1), minlength=len(rows.labels))
    else:
        counts = positive(targets).sum(axis=0)
    single = [rows.labels[place] for place in np.flatnonzero(counts == 1)]
    if single:
        more = f" and {len(single) - _NAMED} more" if len(single) > _NAMED else ""
        log.warning(
            "%sone training row of %s%s: the model will hardly answer such labels; give more",
            _prefix(source), ", ".join(map(repr, single[:_NAMED])), more,
        )  # fmt: skip


def _require_two_labels(rows: LabeledExamples, source: Source) -> None:
    name = _prefix(source)
    if rows.kind == "class":
        found = np.unique(np.asarray(rows.targets).argmax(axis=1))
        if len(found) == 1:
            raise InputError(
                f"{name}every row has the label {rows.labels[found[0]]!r}: there is nothing to "
                "learn; give rows of two labels at least"
            )
    elif rows.kind == "tags":
        outside = [place for place, label in enumerate(rows.labels) if label == "O"]
        if all(np.isin(target.argmax(axis=1), outside).all() for target in rows.targets):
            raise InputError(f"{name}no token has a tag but O: there is nothing to learn")
    elif not positive(np.asarray(rows.targets)).any():
        raise InputError(f"{name}no row has a label: there is nothing to learn")


def _prefix(source: Any) -> str:
    return f"{source}: " if isinstance(source, str | Path) else ""


@dataclass(frozen=True, slots=True)
class TaskData:
    """Hold the sets of a task.

    Attributes:
        examples: the training set without validation rows; queries are made from it.
        train: training rows of the teacher.
        validation: None: too few rows.
        test: None: there is no test set.
    """

    examples: Examples
    train: LabeledExamples
    validation: LabeledExamples | None
    test: LabeledExamples | None

    @property
    def held_out(self) -> dict[str, LabeledExamples]:
        """The sets that nothing is trained on, by name."""
        sets = {TEST: self.test, VALIDATION: self.validation}
        return {name: rows for name, rows in sets.items() if rows is not None}

    @property
    def excluded_texts(self) -> dict[str, list[str]]:
        """The texts that must not be retrieved, by name of their set."""
        return {name: [text for (text,) in rows.texts] for name, rows in self.held_out.items()}


def read_task(
    sources: TaskSources, *, labels: Sequence[str] | None = None, seed: int = 0
) -> TaskData:
    """Read and check the sets of a task of single texts or of tagged tokens.

    A test set that holds a label the training set lacks, or that is the training or validation set
    itself, is refused.

    Args:
        sources: `labelled` is not read.
        labels: those of a teacher, in its order; None: those of the training set.
    """
    train, test, held_out = sources.train, sources.test, sources.validation
    if held_out is None:
        held_out = validation_split(train)
    validation = train if sources.validation is None else sources.validation
    loaded = _load(sources, train, _TRAIN)
    examples = loaded.examples
    if examples.kind == "pair":
        raise InputError(
            f"{source_name(train)}: rows are pairs ({' and '.join(examples.columns)}), a bank "
            "holds single sentences: name one column of texts with --text"
        )
    assert examples.labels is not None
    rows, chosen = _training_sets(
        replace(sources, labelled=None, validation=held_out), loaded,
        tags=examples.labels.kind == "tags", seed=seed,
        labels=None if labels is None else match_label_names(labels, examples.labels.classes),
    )  # fmt: skip
    tested, learnt = None, ("training", train, examples.texts)
    if test is not None:
        tested = _read_test(sources, test, loaded, rows.labels)
        check_disjoint("test", test, tested.texts, learnt)
        if held_out is not None and chosen is not None:
            check_disjoint("test", test, tested.texts, ("validation", validation, chosen.texts))
    if held_out is not None and chosen is not None:
        check_disjoint("validation", validation, chosen.texts, learnt)
    if chosen is not None:
        held = set(chosen.texts)
        examples = examples.select([
            row for row, texts in enumerate(examples.texts) if texts not in held
        ])  # fmt: skip
    return TaskData(examples, rows, chosen, tested)


def _read_test(
    sources: TaskSources, test: Source, train: _LoadedSet, labels: Sequence[str]
) -> LabeledExamples:
    found = _load(sources, test, _TEST)
    train.refuse_other_form(found, _TEST, sources.train)
    return labeled_examples(found.examples, labels, where=found.where)


def check_disjoint(
    name: str,
    source: Source,
    texts: Sequence[tuple[str, ...]],
    *others: NamedTexts,
    left_out_of: str = "",
) -> None:
    """Refuse a set that equals one of others; warn where they share texts.

    Texts that differ in case, punctuation or white space alone count as shared.

    Args:
        left_out_of: the name of a set that is used without the shared texts.
    """
    keys, file = row_keys(texts), _file(source)
    for other_name, other, known in others:
        is_same = file is not None and file == _file(other) and not may_be_divided(file)
        if is_same or all(map(set(known).__contains__, texts)):
            raise InputError(
                f"{source_name(source)}: every text of the {name} set is in the {other_name} set "
                f"({source_name(other)}): give texts that nothing else is done with"
            )
        if shared := int(np.isin(keys, row_keys(known)).sum()):
            then = "they are left out there" if other_name == left_out_of else (
                "scores on it are too high"
            )  # fmt: skip
            log.warning(
                "%s: %s of %s texts of the %s set are in the %s set too: %s",
                source_name(source), f"{shared:,}", f"{len(texts):,}", name, other_name, then,
            )  # fmt: skip


def _file(source: Any) -> Path | None:
    """Return the file of a source; None of a folder, which may hold a split of each."""
    if not isinstance(source, str | Path):
        return None
    path = as_path(source)
    return Path(os.path.realpath(path)) if os.path.isfile(path) else None
