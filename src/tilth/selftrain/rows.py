"""What a classifier or tagger is trained on: texts or tokens, and a probability for each label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.keys import group_ids, keyed, text_hashes
from tilth.data.labels import Labels
from tilth.data.split import group_rows, validation_rows
from tilth.errors import InputError
from tilth.metrics.answers import likely

if TYPE_CHECKING:
    from tilth.data.examples import Examples
    from tilth.models.classifier import Kind

OUTSIDE = "O"
Where: TypeAlias = Callable[[int], str]
Targets: TypeAlias = "NDArray[np.float32] | list[NDArray[np.float32]]"
_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to train on or to measure with.

    Attributes:
        kind: `class`: each row has one of the labels; `multi`: any number; `tags`: each token one.
        labels: the classes or tags, in the order of the targets.
        texts: one text a row, or two; tokens joined where there are tokens. # (rows,)
        tokens: of each row, for tags. # (rows,)
        targets: the probability of each label: (rows, labels), for tags of each row
            (tokens, tags).
        weights: how much a row counts; None: all the same. # (rows,)
        origins: hashes of what rows were made from, see `tilth.data.split.origins_of`; None: not
            known. # (rows,)
        written: which rows a model wrote; None: none. # (rows,)
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

    def select(self, places: NDArray[np.int64]) -> Rows:
        """Return some rows, in the order asked for."""
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

    def hard(self) -> Rows:
        """Return the rows with the likeliest label alone, for `multi` those that are likely."""
        if isinstance(self.targets, list):
            return replace(self, targets=[_likeliest(row) for row in self.targets])
        if self.kind == "multi":
            return replace(self, targets=likely(self.targets).astype(np.float32))
        return replace(self, targets=_likeliest(self.targets))

    def fingerprint(self) -> str:
        """Return a hash of all that the rows hold, in their order."""
        digest = blake2b(repr((self.kind, self.labels)).encode(), digest_size=16)
        for row, texts in enumerate(self.texts):
            digest.update(repr(texts if self.tokens is None else self.tokens[row]).encode())
            digest.update(self.targets[row].tobytes())
        digest.update(b"" if self.weights is None else self.weights.tobytes())
        return digest.hexdigest()


def _likeliest(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    one: NDArray[np.float32] = np.eye(probabilities.shape[-1], dtype=np.float32)[
        probabilities.argmax(axis=-1)
    ]
    return one  # (rows, labels)


def rows_of(
    examples: Examples, labels: Sequence[str] | None = None, *, where: Where | None = None
) -> Rows:
    """Return labelled examples as rows, each with certain labels.

    Args:
        examples: what `read_examples` reads.
        labels: the labels a model knows, in their order. None: those that occur; for tags O, then
            B- and I- of each type.
        where: names the place of a row, for messages.

    Raises:
        InputError: labels are numbers, a label is none of `labels`, or tags are not IOB2.
    """
    found = examples.labels
    if found is None:
        raise InputError("the rows have no labels: name their column with label")
    where = where or (lambda row: f"row {row} (rows count from 0)")
    if found.kind == "number":
        raise InputError(
            f"{where(0)}: {examples.label_column} is {found.values[0]}: numbers with fractions "
            "are no classes; give each row a class, as a text or a whole number"
        )
    known = list(labels) if labels is not None else usual_labels(found)
    places = {label: place for place, label in enumerate(known)}
    targets: Targets
    if found.kind == "tags":
        assert examples.tokens is not None  # only tokens have tags
        _check_iob2(found.values, examples.tokens, where)
        one = np.eye(len(known), dtype=np.float32)
        targets = [
            one[[_place(tag, places, row, where) for tag in tags]]
            for row, tags in enumerate(found.values)
        ]
        return Rows(found.kind, known, examples.texts, examples.tokens, targets)
    targets = np.zeros((len(examples), len(known)), np.float32)
    names = [str(name) for name in found.classes]
    for row, members in enumerate(found.members):
        for member in members:
            targets[row, _place(names[member], places, row, where)] = 1
    return Rows(found.kind, known, examples.texts, None, targets)


def usual_labels(found: Labels) -> list[str]:
    """Return the labels of a model that learns from these: the classes, or all valid tags."""
    names = [str(name) for name in found.classes]
    if found.kind != "tags":
        return names
    return [OUTSIDE, *(f"{begin}-{name}" for name in names for begin in "BI")]


def _place(label: str, places: dict[str, int], row: int, where: Where) -> int:
    if label not in places:
        known = ", ".join(places)
        raise InputError(
            f"{where(row)}: label {label!r} is none that the model learns ({known}): mend it, "
            "leave the row out, or give training rows that have it"
        )
    return places[label]


def _check_iob2(rows: list[list[str]], tokens: list[list[str]], where: Where) -> None:
    """Refuse tags whose spans do not begin with B-: a model would learn to write none either."""
    for row, tags in enumerate(rows):
        before = OUTSIDE
        for place, tag in enumerate(tags):
            inside = tag[0] == "I"
            if tag[0] not in "OBI" or (inside and before[1:] != tag[1:]):
                after = f" after {before!r}" if inside else ""
                raise InputError(
                    f"{where(row)}: tag {tag!r} at token {place + 1} "
                    f"({tokens[row][place]!r:.40}){after}: write B- at the first token of a span "
                    "and I- at its others"
                )
            before = tag


def joined(first: Rows, second: Rows) -> Rows:
    """Return the rows of both, which have the same kind and labels."""
    assert (first.kind, first.labels) == (second.kind, second.labels)
    tokens = None
    if first.tokens is not None and second.tokens is not None:
        tokens = first.tokens + second.tokens
    targets: Targets
    if isinstance(first.targets, list) or isinstance(second.targets, list):
        targets = [*first.targets, *second.targets]
    else:
        targets = np.concatenate([first.targets, second.targets])
    return Rows(first.kind, first.labels, first.texts + second.texts, tokens, targets)


def repeated(rows: Rows, times: int) -> Rows:
    """Return the rows so many times."""
    return rows if times == 1 else rows.select(np.tile(np.arange(len(rows)), times))


def without_repeats(rows: Rows) -> tuple[Rows, int]:
    """Keep rows of the same text and targets once; count the texts that have several targets."""
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


def divided(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return nine tenths to train on and a tenth of each label to choose with.

    Of which row goes where its content decides. A label with fewer than five rows has none in
    the second part. Rows of one first text or origin are in one part.
    """
    import pyarrow as pa

    keys = [
        text_hashes(pa.array([texts[side] for texts in rows.texts], pa.large_string()))
        for side in range(len(rows.texts[0]))
    ]
    origins = [] if rows.origins is None else [rows.origins]
    chosen = validation_rows(
        strata(rows), keyed(seed, "validation", *keys), _SHARE, numeric=False,
        groups=group_rows(keys[0], *origins),
    )  # fmt: skip
    return rows.select(np.flatnonzero(~chosen)), rows.select(np.flatnonzero(chosen))


def strata(rows: Rows) -> NDArray[np.int64]:
    """Return a number for each row; rows that have the same classes or entity types share it."""
    if isinstance(rows.targets, list):
        names = list(dict.fromkeys(["", *(label[2:] for label in rows.labels)]))
        types = np.array([names.index(label[2:]) for label in rows.labels])
        sets = np.zeros((len(rows), len(names)), np.int64)
        for row, target in enumerate(rows.targets):
            sets[row, types[target.argmax(axis=1)]] = 1
        sets[:, 0] = 0  # O is no type
        return group_ids(*sets.T)
    if rows.kind == "class":
        places: NDArray[np.int64] = rows.targets.argmax(axis=1)
        return places
    return group_ids(*likely(rows.targets).T.astype(np.int64))
