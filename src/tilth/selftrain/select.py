"""Which sentences that a teacher labelled are kept: of each class the best, in a ratio.

Pure functions of arrays. What a row's classes are says `tilth.selftrain.confidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.errors import InputError
from tilth.limits import SELECT
from tilth.selftrain.confidence import (
    Probabilities,
    classes_of,
    confidence_of,
    margin_of,
    members_of,
)

if TYPE_CHECKING:
    from tilth.models.classifier import Kind

By: TypeAlias = Literal["confidence", "margin", "similarity", "random", "all"]

LOW = "below the confidence floor"
HIGH = "above the confidence band"
FULL = "class is full"
ENOUGH = "enough are better"
UNDRAWN = "not drawn"
UNWANTED = "class is not wanted"
# A row's code is its reason's place here, 0 for kept rows.
REASONS = ("", LOW, HIGH, FULL, ENOUGH, UNDRAWN, UNWANTED)
_SMALL, _MOST, _LEAST = 5_000, 100, 10
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are kept, and why the others are not.

    Attributes:
        kept: the rows, ascending. # (kept,)
        reason: a code for each row, its reason's place in `reasons`. # (rows,)
        reasons: what the codes stand for; the first, of kept rows, is empty.
        classes: the names of the classes, as `classes_of` gives them.
        of: the class for which each row is considered, of several the rarest. # (rows,)
        confidence: of the teacher in each row. # (rows,)
        wanted: rows of each class that were asked for, where a ratio was. # (classes,)
        got: rows of each class that are kept. # (classes,)
    """

    kept: NDArray[np.int64]
    reason: NDArray[np.int8]
    reasons: list[str]
    classes: list[str]
    of: NDArray[np.int64]
    confidence: NDArray[np.float32]
    wanted: NDArray[np.int64] | None
    got: NDArray[np.int64]

    @property
    def shortfall(self) -> dict[str, int]:
        """How many rows are missing of each class that has fewer than its share."""
        if self.wanted is None:
            return {}
        missing = zip(self.classes, (self.wanted - self.got).tolist(), strict=True)
        return {name: count for name, count in missing if count > 0}

    @property
    def empty(self) -> list[str]:
        """The classes that were asked for and of which no row is kept."""
        kept = dict(zip(self.classes, self.got.tolist(), strict=True))
        return [name for name in self.shortfall if not kept[name]]

    def counts(self) -> dict[str, int]:
        """How many rows there are of each reason to drop them."""
        numbers = np.bincount(self.reason, minlength=len(self.reasons)).tolist()
        named = zip(self.reasons[1:], numbers[1:], strict=True)
        return {reason: count for reason, count in named if count}


def select(
    probabilities: Probabilities,
    *,
    kind: Kind,
    labels: Sequence[str],
    ratio: NDArray[np.float64] | None,
    count: int | None,
    floor: float = 0.0,
    band: tuple[float, float] | None = None,
    by: str = "confidence",
    similarity: NDArray[np.floating] | None = None,
    keys: NDArray[np.uint64] | None = None,
    seed: int = 0,
    of_tokens: str = "mean",
) -> Selection:
    """Keep the best rows of each class, in a ratio of classes.

    A class that has fewer rows than its share keeps them all; the others get no more for it. A
    row of several classes is considered for the rarest of them, and counts for all.

    Args:
        probabilities: of a teacher: (rows, labels); for tags of each row (tokens, tags).
        kind: what a label is of, as in `tilth.models.classifier.Classifier`.
        labels: the classes or tags, in the order of the probabilities.
        ratio: the share of rows that have each class, see `class_ratio`; None: of all classes
            together the best are kept. # (classes,)
        count: rows wanted; None: all that pass.
        floor: least confidence, 0 to 1.
        band: least and most confidence.
        by: which rows are the best: `confidence`: those of whose label the teacher is most sure
            (the paper's way); `margin`: whose label is furthest from the next likely;
            `similarity`: the nearest to the query; `random`: a draw; `all` keeps all that pass.
        similarity: of each row to its query. # (rows,)
        keys: numbers that draws and ties follow, such as hashes of the texts; None: the rows'
            places. # (rows,)
        seed: of draws.
        of_tokens: how a sentence's confidence comes from its tokens': `mean` or `least`.

    Raises:
        InputError: an argument has no such value.

    Reference:
        Du et al., 2020, arXiv:2010.02194, section 2.2. The paper says nothing of several classes
        a row, nor of tags.
    """
    _check(by, of_tokens, floor, band, count)
    members = members_of(probabilities, kind, labels)  # (rows, classes)
    if ratio is not None and len(ratio) != members.shape[1]:
        raise InputError(
            f"ratio has {len(ratio)} shares: give one for each of {members.shape[1]} classes"
        )
    confidence = confidence_of(probabilities, kind=kind, of_tokens=of_tokens)
    if keys is None:
        keys = np.arange(len(members), dtype=np.uint64)
    worth = _worth(by, probabilities, kind, of_tokens, confidence, similarity, keys, seed)
    rarity = members.mean(axis=0) if ratio is None else np.asarray(ratio)
    rarest = np.argsort(rarity, kind="stable")  # (classes,)
    ranks = np.argsort(rarest)  # (classes,)
    of = np.where(members, ranks, len(ranks)).argmin(axis=1)  # (rows,)

    low, high = band or (0.0, 1.0)
    too_low, too_high = confidence < max(floor, low), confidence > high
    order = np.lexsort((keys, -worth))
    order = order[~(too_low | too_high)[order]]  # best first, of those that pass
    if by != "all" and ratio is not None and count is not None:
        taken = _fill(order, of, members, np.asarray(ratio), rarest, count)
    else:
        taken = order if by == "all" else order[:count]
    left = {"random": UNDRAWN}.get(by, ENOUGH if ratio is None else FULL)
    reason = np.full(len(members), REASONS.index(left), np.int8)
    if ratio is not None:
        reason[np.asarray(ratio)[of] == 0] = REASONS.index(UNWANTED)
    reason[taken] = 0
    reason[too_low] = REASONS.index(LOW)
    reason[too_high] = REASONS.index(HIGH)
    kept = np.flatnonzero(reason == 0)
    got = members[kept].sum(axis=0)
    wanted = None
    if by != "all" and ratio is not None and count is not None:
        wanted = _shares(np.asarray(ratio), count)
    names = classes_of(kind, labels)
    return Selection(kept, reason, list(REASONS), names, of, confidence, wanted, got)


def class_ratio(
    targets: Probabilities, *, kind: Kind, labels: Sequence[str]
) -> NDArray[np.float64]:
    """Return the share of rows of a training set that have each class, (classes,).

    It sums to 1 where each row has one class.

    Args:
        targets: the probability of each label, 0 or 1 where people labelled: (rows, labels); for
            tags of each row (tokens, tags).
        kind: what a label is of.
        labels: the classes or tags, in the order of the targets.
    """
    shares: NDArray[np.float64] = members_of(targets, kind, labels).mean(axis=0)
    return shares


def multiple_of(rows: int) -> int:
    """Return how many times as large as a training set what is kept should be.

    A hundred times up to 5,000 rows; then as many rows as those get, but at least ten times.

    Args:
        rows: of the training set.

    Reference:
        Du et al., 2020, arXiv:2010.02194, section 2.1: about a hundred times for small tasks, ten
        times for those of medium size. Where one ends and the other begins it does not say.
    """
    return max(_LEAST, min(_MOST, _SMALL * _MOST // max(rows, 1)))


def _check(
    by: str, of_tokens: str, floor: float, band: tuple[float, float] | None, count: int | None
) -> None:
    SELECT.check("selection", by)
    if of_tokens not in ("mean", "least"):
        raise InputError(f"of_tokens {of_tokens!r} is unknown: use mean or least")
    if not 0 <= floor <= 1:
        raise InputError(f"floor is {floor}: give a confidence from 0 to 1")
    if band is not None and not 0 <= band[0] <= band[1] <= 1:
        raise InputError(f"band is {band}: give a least and a most confidence, from 0 to 1")
    if count is not None and count < 1:
        raise InputError(f"count is {count}: keep at least 1 row")


def _worth(
    by: str,
    probabilities: Probabilities,
    kind: Kind,
    of_tokens: str,
    confidence: NDArray[np.float32],
    similarity: NDArray[np.floating] | None,
    keys: NDArray[np.uint64],
    seed: int,
) -> NDArray[np.float64]:
    """Return what rows are taken by, greatest first, (rows,)."""
    if by == "similarity":
        if similarity is None:
            raise InputError("selection by similarity: the rows have none")
        return np.asarray(similarity, np.float64)
    if by == "margin":
        return margin_of(probabilities, kind=kind, of_tokens=of_tokens).astype(np.float64)
    if by == "random":
        return random_keys(seed, "select", keys).astype(np.float64)
    return confidence.astype(np.float64)


def _shares(ratio: NDArray[np.float64], count: float) -> NDArray[np.int64]:
    """Return the rows wanted of each class; their sum is right but for less than one."""
    shares = count * ratio
    wanted = np.floor(shares).astype(np.int64)
    missing = round(float(shares.sum())) - int(wanted.sum())
    # The largest remainders are rounded up.
    wanted[np.argsort(wanted - shares, kind="stable")[:missing]] += 1
    return wanted  # (classes,)


def _fill(
    order: NDArray[np.int64],
    of: NDArray[np.int64],
    members: NDArray[np.bool_],
    ratio: NDArray[np.float64],
    rarest: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """Take rows, best first, until each class has its share; at most `count` in all.

    Rows of several classes may be rarer here than in the training set: then the classes' shares
    come to more rows than wanted, and all are lowered alike.
    """

    def filled(size: float) -> NDArray[np.int64]:
        wanted = _shares(ratio, size)
        got = np.zeros(len(wanted), np.int64)
        taken = [order[:0]]
        for one in rarest.tolist():  # rows of rare classes count for frequent ones too
            rows = by_class[ends[one] : ends[one + 1]][: max(0, wanted[one] - got[one])]
            got += members[rows].sum(axis=0)
            taken.append(rows)
        return np.concatenate(taken)

    by_class = order[np.argsort(of[order], kind="stable")]
    ends = np.searchsorted(of[by_class], np.arange(len(ratio) + 1))
    best = filled(count)
    low, high = 0.0, float(count)
    if len(best) <= count:
        return best
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        some = filled(middle)
        if len(some) <= count:
            low, best = middle, some
        else:
            high = middle
    return best[:count]
