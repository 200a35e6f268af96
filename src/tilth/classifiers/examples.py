"""Labelled examples with hard or soft targets: the rows that classifiers and taggers train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import group_ids, random_keys, text_hashes
from tilth.data.labels import Labels, is_list
from tilth.data.normalize import side_keys
from tilth.data.split import group_texts, validation_rows
from tilth.errors import InputError
from tilth.metrics.scores import iob2, positive

if TYPE_CHECKING:
    from tilth.data.examples import Examples
    from tilth.models.classifier import Kind

OUTSIDE = "O"
Where: TypeAlias = Callable[[int], str]
Targets: TypeAlias = "NDArray[np.float32] | list[NDArray[np.float32]]"
_SHARE, _FEWEST = 0.1, 5
_SHOWN = 8  # labels in messages


@dataclass(frozen=True, slots=True)
class LabeledExamples:
    """Hold rows with target probabilities of labels, for training or evaluation.

    Attributes:
        kind: `class`: one label a row; `multi`: any number of labels; `tags`: one label a token.
        labels: in the order of the targets.
        texts: one or two texts a row; tokens are joined. # (rows,)
        tokens: None unless kind is `tags`.
        targets: (rows, labels); for tags, (tokens, tags) of each row.
        weights: in the loss; None: all the same. # (rows,)
        origins: hashes of the source texts (`tilth.data.split.source_hashes`); None: unknown.
        written: whether a model wrote the row; None: no row. # (rows,)
    """

    kind: Kind
    labels: list[str]
    texts: list[tuple[str, ...]]
    tokens: list[list[str]] | None
    targets: Targets
    weights: NDArray[np.float32] | None = None
    origins: NDArray[np.uint64] | None = None
    written: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.texts)

    def select(self, places: NDArray[np.int64]) -> LabeledExamples:
        """Return some rows, in the given order."""
        targets: Targets = (
            [self.targets[place] for place in places]
            if isinstance(self.targets, list)
            else self.targets[places]
        )
        return replace(
            self,
            texts=[self.texts[place] for place in places],
            tokens=None if self.tokens is None else [self.tokens[place] for place in places],
            targets=targets,
            weights=None if self.weights is None else self.weights[places],
            origins=None if self.origins is None else self.origins[places],
            written=None if self.written is None else self.written[places],
        )

    def in_order(self, labels: Sequence[str]) -> LabeledExamples:
        """Return the rows with their targets in another order of the same labels."""
        places = [self.labels.index(label) for label in labels]
        targets: Targets = (
            [row[:, places] for row in self.targets]
            if isinstance(self.targets, list)
            else self.targets[:, places]
        )
        return replace(self, labels=list(labels), targets=targets)

    def hard(self) -> LabeledExamples:
        """Return the rows with one-hot targets, for `multi` with labels above one half."""
        if isinstance(self.targets, list):
            places = [likeliest_tags(row, self.labels) for row in self.targets]
            one = np.eye(len(self.labels), dtype=np.float32)
            return replace(self, targets=[one[row] for row in places])
        if self.kind == "multi":
            return replace(self, targets=positive(self.targets).astype(np.float32))
        return replace(self, targets=_one_hot(self.targets))

    def fingerprint(self) -> str:
        """Return a hash of texts, targets and weights, in their order."""
        digest = blake2b(repr((self.kind, self.labels)).encode(), digest_size=16)
        for row, texts in enumerate(self.texts):
            digest.update(repr(texts if self.tokens is None else self.tokens[row]).encode())
            digest.update(self.targets[row].tobytes())
        digest.update(b"" if self.weights is None else self.weights.tobytes())
        return digest.hexdigest()


def _one_hot(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    one: NDArray[np.float32] = np.eye(probabilities.shape[-1], dtype=np.float32)[
        probabilities.argmax(axis=-1)
    ]
    return one  # (rows, labels)


def likeliest_tags(probabilities: NDArray[np.float32], labels: Sequence[str]) -> NDArray[np.int64]:
    """Return the indices of a sentence's likeliest tags, in IOB2: spans begin with B-.

    Args:
        probabilities: (tokens, tags).

    Returns:
        (tokens,).
    """
    places = {label: place for place, label in enumerate(labels)}
    given = probabilities.argmax(axis=1).tolist()
    tags = iob2([labels[place] for place in given])
    some = [places.get(tag, place) for tag, place in zip(tags, given, strict=True)]
    return np.array(some, np.int64)


def labeled_examples(
    examples: Examples, labels: Sequence[str] | None = None, *, where: Where | None = None
) -> LabeledExamples:
    """Return examples with one-hot targets.

    Args:
        labels: in the order of the model's outputs. None: those that occur; for tags O, then B-
            and I- of each type.
        where: names the place of a row in messages.
    """
    found = examples.labels
    if found is None:
        raise InputError("the rows have no labels: name their column with label")
    where = where or (lambda row: f"row {row} (rows count from 0)")
    if found.kind == "number":
        raise InputError(
            f"{where(0)}: {examples.label_column} is {found.values[0]}: numbers with fractions "
            "are no classes; give each row a class, as a text or a whole number"
            + ("; `tilth train scorer` learns graded pairs" if examples.kind == "pair" else "")
        )
    known = list(labels) if labels is not None else model_labels(found)
    places = {label: place for place, label in enumerate(known)}
    targets: Targets
    if found.kind == "tags":
        one = np.eye(len(known), dtype=np.float32)
        targets = [
            one[[_place(tag, places, row, where) for tag in tags]]
            for row, tags in enumerate(found.values)
        ]
        return LabeledExamples(found.kind, known, examples.texts, examples.tokens, targets)
    targets = np.zeros((len(examples), len(known)), np.float32)
    names = [str(name) for name in found.classes]
    for row, members in enumerate(found.class_ids):
        for member in members:
            targets[row, _place(names[member], places, row, where)] = 1
    return LabeledExamples(found.kind, known, examples.texts, None, targets)


def model_labels(found: Labels) -> list[str]:
    """Return the outputs of a model that learns some labels: the classes, or O, B- and I- tags."""
    names = [str(name) for name in found.classes]
    if found.kind != "tags":
        return names
    return [OUTSIDE, *(f"{begin}-{name}" for name in names for begin in "BI")]


def _place(label: str, places: dict[str, int], row: int, where: Where) -> int:
    if label not in places:
        known = ", ".join(islice(places, _SHOWN)) + ", ..." * (len(places) > _SHOWN)
        raise InputError(
            f"{where(row)}: label {label!r} is none of the model's ({known}): correct it, "
            "leave the row out, or give training rows that have it"
        )
    return places[label]


def concatenate(first: LabeledExamples, second: LabeledExamples) -> LabeledExamples:
    """Return the rows of both sets, which have the same kind and labels."""
    assert (first.kind, first.labels) == (second.kind, second.labels)
    tokens = None
    if first.tokens is not None and second.tokens is not None:
        tokens = first.tokens + second.tokens
    targets: Targets
    if isinstance(first.targets, list) or isinstance(second.targets, list):
        targets = [*first.targets, *second.targets]
    else:
        targets = np.concatenate([first.targets, second.targets])
    return LabeledExamples(first.kind, first.labels, first.texts + second.texts, tokens, targets)


def repeat(rows: LabeledExamples, times: int) -> LabeledExamples:
    """Return the rows several times."""
    return rows if times == 1 else rows.select(np.tile(np.arange(len(rows)), times))


def drop_duplicates(rows: LabeledExamples) -> tuple[LabeledExamples, int]:
    """Return distinct pairs of text and targets, and how many texts have several targets."""
    first: dict[Any, bytes] = {}
    more: dict[Any, set[bytes]] = {}  # only of the few texts that have several
    kept = []
    for row in range(len(rows)):
        text: Any = rows.texts[row] if rows.tokens is None else tuple(rows.tokens[row])
        target = blake2b(rows.targets[row].tobytes(), digest_size=8).digest()
        if text not in first:
            first[text] = target
        elif target == first[text] or target in more.get(text, ()):
            continue
        else:
            more.setdefault(text, set()).add(target)
        kept.append(row)
    if len(kept) == len(rows):
        return rows, len(more)
    return rows.select(np.array(kept, np.int64)), len(more)


def train_validation_split(
    rows: LabeledExamples, seed: int
) -> tuple[LabeledExamples, LabeledExamples]:
    """Split off a tenth of each label for validation, by content and not by order.

    A label with fewer than five rows has none there. Rows of a group of `groups_of` stay in one
    part.
    """
    sides = (pa.array(side, pa.large_string()) for side in zip(*rows.texts, strict=True))
    keys = map(text_hashes, sides)
    chosen = validation_rows(
        strata(rows), random_keys(seed, "validation", *keys), _SHARE, numeric=False,
        groups=groups_of(rows),
    )  # fmt: skip
    return rows.select(np.flatnonzero(~chosen)), rows.select(np.flatnonzero(chosen))


def groups_of(*sets: LabeledExamples) -> NDArray[np.int64]:
    """Number the groups of the sets' rows that belong in one part, (rows,).

    They have the same origin or, but for case and punctuation, the same first text or the same two
    texts in any order.
    """
    some = [rows for rows in sets if len(rows)]
    keys = zip(*(side_keys(rows.texts) for rows in some), strict=True)
    origins = [
        np.zeros(len(rows), np.uint64) if rows.origins is None else rows.origins for rows in some
    ]
    return group_texts([np.concatenate(side) for side in keys], np.concatenate(origins))


def strata(rows: LabeledExamples) -> NDArray[np.int64]:
    """Return the stratum of each row, (rows,): rows of one class share it.

    Of several classes a row, and of entity types, rows of one set share it; of sets with fewer than
    five rows, those whose rarest label is the same.
    """
    if isinstance(rows.targets, list):
        names = list(dict.fromkeys(["", *(label[2:] for label in rows.labels)]))
        types = np.array([names.index(label[2:]) for label in rows.labels])
        sets = np.zeros((len(rows), len(names)), np.bool_)
        for row, target in enumerate(rows.targets):
            sets[row, types[target.argmax(axis=1)]] = True
        return _strata_of_sets(sets[:, 1:])  # O is no type
    if rows.kind == "class":
        places: NDArray[np.int64] = rows.targets.argmax(axis=1)
        return places
    return _strata_of_sets(positive(rows.targets).astype(np.bool_))


def _strata_of_sets(sets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the stratum of each row's set of labels, (rows, labels) -> (rows,)."""
    found = group_ids(np.zeros(len(sets), np.int64), *sets.T.astype(np.int64))
    is_rare = np.bincount(found)[found] < _FEWEST
    if is_rare.any() and sets.shape[1]:
        rarest = np.where(sets, sets.sum(axis=0), len(sets) + 1).argmin(axis=1)
        rarest[~sets.any(axis=1)] = sets.shape[1]
        found[is_rare] = found.max() + 1 + rarest[is_rare]
    return found


PROBABILITIES = "probabilities"
_NEAR = 1e-2  # probabilities may have been rounded


def probability_lists(column: pa.ChunkedArray) -> tuple[list[str] | None, pa.ChunkedArray]:
    """Return the label names of a probability column, None without names, and its lists.

    Args:
        column: a list for each row, or a struct with a field for each label as `tilth predict`
            writes; for tags a list of these. # (rows,)
    """
    array: Any = column.combine_chunks()
    structs = array.flatten() if is_list(array.type) else array
    if not pa.types.is_struct(structs.type):
        return None, column
    names = [field.name for field in structs.type]
    flat = np.stack([field.to_numpy(zero_copy_only=False) for field in structs.flatten()], 1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel(), pa.float32()), len(names))
    if structs is not array:
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), lists)
    return names, pa.chunked_array([lists])


def soft_labeled_examples(
    examples: Examples, column: pa.ChunkedArray, labels: Sequence[str], kind: Kind, where: Where
) -> LabeledExamples:
    """Return examples with a teacher's probabilities as targets.

    Args:
        column: label probabilities of each row, for tags of each token. # (rows,)
        labels: in the order of the probabilities.
        where: names the place of a row in messages.
    """
    tokens = examples.tokens if kind == "tags" else None
    rows = np.arange(len(examples))
    lists: Any = column.combine_chunks()
    if tokens is not None:
        sizes = np.array([len(row) for row in tokens])
        wrong = np.flatnonzero(_lengths(lists, where) != sizes)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"{where(row)}: {sizes[row]} tokens, but {PROBABILITIES} of "
                f"{_lengths(lists, where)[row]}: give each token a list"
            )
        rows = np.repeat(rows, sizes)  # (tokens,)
        lists = pc.list_flatten(lists)
    flat = _matrix(lists, labels, kind, rows, where)  # (rows or tokens, labels)
    if tokens is None:
        return LabeledExamples(kind, list(labels), examples.texts, None, flat)
    targets = np.split(flat, np.cumsum(sizes)[:-1])  # each (tokens, tags)
    return LabeledExamples(kind, list(labels), examples.texts, tokens, targets)


def _lengths(lists: pa.Array, where: Where) -> NDArray[np.int64]:
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)):  # fmt: skip
        raise InputError(
            f"{where(0)}: column {PROBABILITIES!r} holds {kind}: give a list with the probability "
            "of each label, for tags a list of these for each token"
        )
    lengths: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths.astype(np.int64)


def _matrix(
    lists: pa.Array, labels: Sequence[str], kind: Kind, rows: NDArray[np.int64], where: Where
) -> NDArray[np.float32]:
    """Return lists of as many probabilities as labels as an array, (lists, labels)."""
    lengths = _lengths(lists, where)
    wrong = np.flatnonzero(lengths != len(labels))
    if len(wrong):
        raise InputError(
            f"{where(int(rows[wrong[0]]))}: {lengths[wrong[0]]} {PROBABILITIES} for "
            f"{len(labels)} labels ({', '.join(labels)}): give each label's, in this order"
        )
    values = pc.fill_null(pc.list_flatten(lists).cast(pa.float32()), np.nan)
    found: NDArray[np.float32] = values.to_numpy(zero_copy_only=False).reshape(-1, len(labels))
    right = ((found >= 0) & (found <= 1 + _NEAR)).all(axis=1)  # none of it for no number
    total = found.sum(axis=1)
    if kind != "multi":
        right &= np.abs(total - 1) <= _NEAR
    if not right.all():
        place = int(np.argmin(right))
        adding = "" if kind == "multi" else " that add up to 1"
        raise InputError(
            f"{where(int(rows[place]))}: {PROBABILITIES} {found[place].tolist()!r:.60} are none: "
            f"give numbers from 0 to 1{adding}"
        )
    return found if kind == "multi" else found / total[:, None]
