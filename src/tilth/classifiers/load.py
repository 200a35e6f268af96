"""What a training set is augmented for: its rows, those to choose with, and those to measure on."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.classifiers.examples import (
    PROBABILITIES,
    Rows,
    Where,
    divided,
    joined,
    named_lists,
    repeated,
    rows_of,
    soft_rows,
    usual_labels,
    without_repeats,
)
from tilth.data.examples import Examples, Source, open_rows, prefer_curated, read_examples
from tilth.data.labels import class_names, match_label_names
from tilth.data.readers import row_location
from tilth.data.sources import folder_configs, load_folder
from tilth.data.split import source_hashes, written_by_model
from tilth.errors import InputError
from tilth.limits import PART_SHARE
from tilth.metrics.scores import positive

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_TRAIN, _VALIDATION = "train", "validation"
# Three passes are some fifty over the labelled rows then, as many as the paper's few-shot ones.
_MOST_TIMES = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what.

    Attributes:
        text: the column of texts, the two of pairs, or that of tokens; None: a usual name.
        label: the column of labels or tags; None: a usual name.
    """

    text: str | Sequence[str] | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """A set as it was read: what it holds, a teacher's probabilities, and the labels' names."""

    examples: Examples
    probabilities: pa.ChunkedArray | None
    names: list[str] | None
    where: Where
    origins: NDArray[np.uint64]
    written: NDArray[np.bool_]

    def rows(self, labels: Sequence[str]) -> Rows:
        """Return it as rows with certain labels."""
        return replace(self._labelled(labels), origins=self.origins, written=self.written)

    def _labelled(self, labels: Sequence[str]) -> Rows:
        if self.probabilities is None:
            return rows_of(self.examples, labels, where=self.where)
        assert self.examples.labels is not None  # they are asked for
        kind = self.examples.labels.kind
        assert kind != "number"
        return soft_rows(self.examples, self.probabilities, labels, kind, self.where)


def read_to_train(
    train: Source,
    validation: Source | None,
    labelled: Source | None,
    columns: Columns,
    *,
    tags: bool,
    hard: bool,
    labels: Sequence[str] | None,
    seed: int,
    labelled_share: float = 0.0,
) -> tuple[Rows, Rows | None]:
    """Read what a classifier is to be trained on, and what its best weights are chosen with.

    Args:
        train: a labelled set, or one with a column `probabilities`.
        validation: a labelled set. None: the split of that name, or else a tenth of `labelled`,
            or of `train`; None comes back where no label has five rows.
        labelled: more labelled rows to train on.
        columns: of all of them.
        tags: whether tokens have tags; else texts have classes.
        hard: whether of probabilities only the likeliest label counts.
        labels: the labels, in the order of probabilities. None: those that occur, or those that
            the label column of a set with probabilities names.
        seed: of the split.
        labelled_share: see `tilth.classifiers.train.train_classifier`.

    Raises:
        InputError: a set is wrong, has labels of another kind, or there is one label only.
    """
    PART_SHARE.check("labelled_share", labelled_share)
    first = _read(train, columns, _TRAIN, tags=tags)
    more = None if labelled is None else _read(labelled, columns, _TRAIN, tags=tags)
    known = _labels([first, *([more] if more else [])], labels)
    rows = _once(first.rows(known), train)
    extra = None if more is None else _once(more.rows(known), labelled)
    if hard:
        rows, extra = rows.hard(), None if extra is None else extra.hard()
    chosen = None
    own = _own_validation(train) if validation is None else None
    if validation is not None or own is not None:
        source = own if validation is None else validation
        assert source is not None
        chosen = _read(source, columns, _VALIDATION, tags=tags).rows(known)
    elif extra is not None:
        extra, chosen = divided(extra, seed)
    else:
        rows, chosen = divided(rows, seed)
    if extra is not None:
        times = labelled_times(labelled_share, len(rows), len(extra))
        rows = joined(rows, repeated(extra, times))
    _refuse_one_label(rows, train)
    if len(chosen):
        return rows, chosen
    log.warning("no label has five rows: none are kept to choose with, the last weights are kept")
    return rows, None


def labelled_times(share: float, rows: int, labelled: int) -> int:
    """Return how often each labelled row stands among other rows to make up a share of all."""
    if not labelled:
        return 1
    wanted = round(share / (1 - share) * rows / labelled)
    return max(1, min(wanted, _MOST_TIMES))


def _read(source: Source, columns: Columns, split: str, *, tags: bool) -> _Read:
    source = prefer_curated(source)
    where = partial(_origin, source, split)
    examples = read_examples(source, text=columns.text, label=columns.label, split=split)
    assert examples.labels is not None  # they are asked for
    kind = examples.labels.kind
    if kind == "tags" and not tags:
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
        rows_of(examples, where=where)  # says what is wrong
    dataset, _ = open_rows(source, split)
    table = dataset.with_format("arrow")[:]
    made = (source_hashes(table), written_by_model(table))
    if PROBABILITIES not in dataset.column_names:
        return _Read(examples, None, None, where, *made)
    named, column = named_lists(table[PROBABILITIES])
    names = named or class_names(dataset.features[examples.label_column])
    return _Read(examples, column, names, where, *made)


def _origin(source: Source, split: str, row: int) -> str:
    return row_location(source, row, split)


def _labels(sets: list[_Read], given: Sequence[str] | None) -> list[str]:
    """Return the labels of a model that is trained on some sets."""
    if given is not None:
        return [str(label) for label in given]
    soft = next((one for one in sets if one.probabilities is not None), None)
    if soft is not None:
        if soft.names is None:
            raise InputError(
                f"{soft.where(0)}: which labels the {PROBABILITIES} are of is not said: make "
                f"{soft.examples.label_column} a ClassLabel that names them in their order"
            )
        return soft.names
    found = [one.examples.labels for one in sets if one.examples.labels is not None]
    return list(dict.fromkeys(name for labels in found for name in usual_labels(labels)))


def _once(rows: Rows, source: Source | None) -> Rows:
    left, conflicts = without_repeats(rows)
    name = f"{source}: " if isinstance(source, str | Path) else ""
    if conflicts:
        log.warning(
            "%s%d texts stand there more than once with different labels; all are kept", name,
            conflicts,
        )  # fmt: skip
    if len(left) < len(rows):
        log.info("%s%d rows that stand there twice count once", name, len(rows) - len(left))
    return left


def _own_validation(source: Source) -> Source | None:
    """Return the validation split that a set of several brings along."""
    from datasets import DatasetDict

    if isinstance(source, DatasetDict):
        return source.get(_VALIDATION)
    if isinstance(source, str | Path) and os.path.isdir(Path(source).expanduser()):
        folder = Path(source).expanduser()
        if _VALIDATION in folder_configs(folder).get("default", {}):
            return load_folder(folder, _VALIDATION)
    return None


def _refuse_one_label(rows: Rows, source: Source) -> None:
    name = f"{source}: " if isinstance(source, str | Path) else ""
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


TEST, VALIDATION = "test set", "validation set"


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its sets say it.

    Attributes:
        examples: the training set without validation rows, of which queries are made.
        rows: what the teacher is trained on.
        validation: what its best weights are chosen with; None: too few rows.
        test: what it is measured on; None: nothing.
    """

    examples: Examples
    rows: Rows
    validation: Rows | None
    test: Rows | None

    @property
    def held_out(self) -> dict[str, Rows]:
        """The sets that nothing is learned from, by what they are."""
        sets = {TEST: self.test, VALIDATION: self.validation}
        return {name: rows for name, rows in sets.items() if rows is not None}

    @property
    def left_out(self) -> dict[str, list[str]]:
        """What no retrieved sentence may be, by what it is of."""
        return {name: [text for (text,) in rows.texts] for name, rows in self.held_out.items()}


def read_task(
    train: Source,
    test: Source | None,
    validation: Source | None,
    columns: Columns,
    *,
    labels: Sequence[str] | None,
    seed: int,
) -> Task:
    """Read and check the sets of a task.

    Args:
        train: a labelled set of single texts or of tagged tokens.
        test: a labelled set that is measured on; None: nothing is.
        validation: a labelled set that weights are chosen with; None: a tenth of `train`.
        columns: of all of them.
        labels: those a teacher gives, in its order; None: those of `train`.
        seed: of the split.

    Raises:
        InputError: a set is wrong, the rows are pairs, there is one label only, `test` holds a
            label that `train` lacks, or it is the training or the validation set itself.
    """
    examples = read_examples(train, text=columns.text, label=columns.label)
    if examples.kind == "pair":
        raise InputError(
            f"{_named(train)}rows are pairs ({' and '.join(examples.columns)}), a bank holds "
            "single sentences: name one column of texts with --text"
        )
    assert examples.labels is not None  # they are asked for
    rows, chosen = read_to_train(
        train, validation, None, columns, tags=examples.labels.kind == "tags", hard=False,
        labels=None if labels is None else match_label_names(labels, examples.labels.classes),
        seed=seed,
    )  # fmt: skip
    tested = None
    if test is not None:
        tested = _read_test(test, columns, rows)
        refuse_same("test", test, tested.texts, "training", train, examples.texts)
        if validation is not None and chosen is not None:
            refuse_same("test", test, tested.texts, "validation", validation, chosen.texts)
    if validation is not None and chosen is not None:
        refuse_same("validation", validation, chosen.texts, "training", train, examples.texts)
    if chosen is not None:
        held = set(chosen.texts)
        examples = examples.select([
            row for row, texts in enumerate(examples.texts) if texts not in held
        ])  # fmt: skip
    return Task(examples, rows, chosen, tested)


def _read_test(test: Source, columns: Columns, train: Rows) -> Rows:
    examples = read_examples(test, text=columns.text, label=columns.label, split="test")
    where = partial(_origin_of_sets, test)
    assert examples.labels is not None
    if examples.labels.kind != train.kind:
        names = {"class": "one label a row", "multi": "lists of labels", "tags": "tags of tokens"}
        raise InputError(
            f"{where(0)}: {examples.label_column} holds other labels than the training set, which "
            f"has {names[train.kind]}: give rows of the same task"
        )
    return rows_of(examples, train.labels, where=where)


def _origin_of_sets(source: Source, row: int) -> str:
    return row_location(source, row, "test")


def refuse_same(
    name: str,
    source: Source,
    texts: Sequence[tuple[str, ...]],
    other_name: str,
    other: Source,
    known: Sequence[tuple[str, ...]],
) -> None:
    """Refuse a set that is another one, warn where they share texts.

    Args:
        name: of the set, such as `test`.
        source: where it lies.
        texts: its rows' texts.
        other_name: of the other set.
        other: where that lies.
        known: its rows' texts.

    Raises:
        InputError: both lie in one file, or all texts are in the other set.
    """
    shared = sum(map(set(known).__contains__, texts))
    if _place(source) == _place(other) is not None or shared == len(texts):
        raise InputError(
            f"{_named(source)}every text of the {name} set is in the {other_name} set "
            f"({_named(other)[:-2]}): give texts that nothing else is done with"
        )
    if shared:
        log.warning(
            "%s%s of %s texts of the %s set are in the %s set too: scores on it flatter",
            _named(source), f"{shared:,}", f"{len(texts):,}", name, other_name,
        )  # fmt: skip


def _place(source: Any) -> Path | None:
    if not isinstance(source, str | Path):
        return None
    path = Path(source).expanduser()
    # A folder may hold a split of each.
    return Path(os.path.realpath(path)) if os.path.isfile(path) else None


def _named(source: Any) -> str:
    return f"{source}: " if isinstance(source, str | Path) else "the rows given: "
