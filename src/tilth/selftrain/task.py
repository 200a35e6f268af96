"""What a training set is augmented for: its rows, those to choose with, and those to measure on."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tilth.data.examples import Examples, Source, read_examples
from tilth.data.labels import labels_among
from tilth.data.origin import origin_of
from tilth.errors import InputError
from tilth.selftrain.reading import Columns, read_to_train
from tilth.selftrain.rows import Rows, rows_of

log = logging.getLogger(__name__)

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
        labels=None if labels is None else labels_among(labels, examples.labels.classes),
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
    where = partial(_origin, test)
    assert examples.labels is not None
    if examples.labels.kind != train.kind:
        names = {"class": "one label a row", "multi": "lists of labels", "tags": "tags of tokens"}
        raise InputError(
            f"{where(0)}: {examples.label_column} holds other labels than the training set, which "
            f"has {names[train.kind]}: give rows of the same task"
        )
    return rows_of(examples, train.labels, where=where)


def _origin(source: Source, row: int) -> str:
    return origin_of(source, row, "test")


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
