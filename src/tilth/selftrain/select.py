"""Select pseudo-labelled rows: the best of each class, in the class ratio of a training set.

Pure functions of arrays. A row's classes are the likeliest class; for `multi` all classes above
one half; for tags the entity types of the sentence. In `multi` and tags, rows without any form one
more class, the last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.errors import InputError
from tilth.limits import ROWS, SELECT, SHARE
from tilth.metrics.scores import positive
from tilth.selftrain.settings import Augmentation

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.models.classifier import Kind

Probabilities: TypeAlias = "NDArray[np.float32] | Sequence[NDArray[np.float32]]"

log = logging.getLogger(__name__)

NONE = ""  # the class of rows without any
LOW = "below the confidence floor"
FULL = "class is full"
UNDRAWN = "not drawn"
UNWANTED = "class is not wanted"
# A row's code is the index of its reason, 0 for kept rows.
REASONS = ("", LOW, FULL, UNDRAWN, UNWANTED)
_SMALL, _MOST, _LEAST = 5_000, 100, 10
_HALVINGS = 30
_CANDIDATES_PER_ROW = 2
_FEWEST_CANDIDATES = 2_000
# More than this part of a bank is hardly near the task: the paper takes some millions of a hundred
# millions to some billions.
_PART_OF_BANK = 10


@dataclass(frozen=True, slots=True)
class Selection:
    """Hold the kept rows, and the reasons why others are dropped.

    Attributes:
        kept: row indices, ascending. # (kept,)
        reason: index in `REASONS` of each row. # (rows,)
        classes: names, as of `classes_of`.
        confidence: of the teacher in each row. # (rows,)
        labelled: rows of each class. # (classes,)
        wanted: rows wanted of each class; None where all rows are kept. # (classes,)
        got: kept rows of each class. # (classes,)
    """

    kept: NDArray[np.int64]
    reason: NDArray[np.int8]
    classes: list[str]
    confidence: NDArray[np.float32]
    labelled: NDArray[np.int64]
    wanted: NDArray[np.int64] | None
    got: NDArray[np.int64]

    @property
    def shortfall(self) -> dict[str, int]:
        """Missing rows of each class that has fewer than wanted."""
        if self.wanted is None:
            return {}
        missing = zip(self.classes, (self.wanted - self.got).tolist(), strict=True)
        return {name: count for name, count in missing if count > 0}

    @property
    def empty(self) -> dict[str, int]:
        """The wanted classes of which no row is kept, and how many rows have each."""
        counts = zip(self.classes, self.got.tolist(), self.labelled.tolist(), strict=True)
        return {name: all_ for name, kept, all_ in counts if not kept and name in self.shortfall}

    def counts(self) -> dict[str, int]:
        """Return the number of dropped rows by reason."""
        numbers = np.bincount(self.reason, minlength=len(REASONS)).tolist()
        named = zip(REASONS[1:], numbers[1:], strict=True)
        return {reason: count for reason, count in named if count}


@dataclass(frozen=True, slots=True)
class PseudoLabels:
    """Hold pseudo-labelled rows to select among.

    Attributes:
        probabilities: of a teacher: (rows, labels); for tags of each row (tokens, tags).
        keys: numbers that decide draws and ties, such as hashes of the texts. # (rows,)
        similarity: of each row to its query; None: unknown. # (rows,)
    """

    probabilities: Probabilities
    keys: NDArray[np.uint64]
    similarity: NDArray[np.floating] | None = None


def select(
    rows: PseudoLabels,
    train: LabeledExamples,
    count: int,
    *,
    ratio: NDArray[np.float64] | None = None,
    min_confidence: float = 0.0,
    by: str = "confidence",
    seed: int = 0,
) -> Selection:
    """Keep the best rows of each class, in a ratio of classes.

    A class that has fewer rows than its share keeps them all; the others get no more for it. A
    row of several classes is considered for the rarest of them, and counts for all.

    Args:
        train: the training set, for kind, labels and ratio.
        count: rows wanted.
        ratio: share of rows of each class; None: `class_ratio` of `train`. # (classes,)
        min_confidence: of the teacher, 0 to 1.
        by: criterion: `confidence` (the paper's way); `margin` to the next likely label;
            `similarity` to the query; `random`; `all` keeps all above min_confidence.

    Reference:
        Du et al., 2020, arXiv:2010.02194, section 2.2. The paper says nothing of several classes
        a row, nor of tags.
    """
    SELECT.check("selection", by)
    SHARE.check("min_confidence", min_confidence)
    ROWS.check("count", count)
    kind, labels, probabilities = train.kind, train.labels, rows.probabilities
    members = members_of(probabilities, kind, labels)  # (rows, classes)
    if ratio is None:
        ratio = class_ratio(train)
    confidence = confidence_of(probabilities, kind=kind)
    if by == "similarity":
        if rows.similarity is None:
            raise InputError("selection by similarity: the rows have none")
        worth = np.asarray(rows.similarity, np.float64)
    elif by == "margin":
        worth = margin_of(probabilities, kind=kind).astype(np.float64)
    elif by == "random":
        worth = random_keys(seed, "select", rows.keys).astype(np.float64)
    else:
        worth = confidence.astype(np.float64)
    rarest = np.argsort(ratio, kind="stable")  # (classes,)
    ranks = np.argsort(rarest)  # (classes,)
    rarest_own = np.where(members, ranks, len(ranks)).argmin(axis=1)  # (rows,)

    too_low = confidence < min_confidence
    order = np.lexsort((rows.keys, -worth))
    order = order[~too_low[order]]  # best first
    taken, wanted = order, None
    if by != "all":
        taken = _fill(order, rarest_own, members, ratio, rarest, count)
        wanted = largest_remainder(ratio, count)
    reason = np.full(len(members), REASONS.index(UNDRAWN if by == "random" else FULL), np.int8)
    reason[ratio[rarest_own] == 0] = REASONS.index(UNWANTED)
    reason[taken] = 0
    reason[too_low] = REASONS.index(LOW)
    kept = np.flatnonzero(reason == 0)
    got = members[kept].sum(axis=0)
    labelled = members.sum(axis=0)
    return Selection(kept, reason, classes_of(kind, labels), confidence, labelled, wanted, got)


def class_ratio(train: LabeledExamples) -> NDArray[np.float64]:
    """Return the share of rows that have each class, (classes,)."""
    shares: NDArray[np.float64] = members_of(train.targets, train.kind, train.labels).mean(axis=0)
    return shares


def multiple_of(rows: int) -> int:
    """Return the default number of kept rows for each row of a training set.

    A hundred up to 5,000 rows; then as many rows as those get, but at least ten for each.

    Reference:
        Du et al., 2020, arXiv:2010.02194, section 2.1: about a hundred times for small tasks, ten
        times for those of medium size. It does not say where one ends and the other begins.
    """
    return max(_LEAST, min(_MOST, _SMALL * _MOST // max(rows, 1)))


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
        if count < usual and settings.select != "all":
            log.warning(
                "%s rows are wanted, not %s (%d for each row of the training set): the bank's %s "
                "sentences are few for that; --multiple, --count or --per-class asks for others",
                f"{count:,}", f"{usual:,}", multiple_of(len(train)), f"{bank:,}",
            )  # fmt: skip
    if count > ROWS.high:
        raise InputError(
            f"{count:,} rows are wanted: give a --multiple or --per-class for at most {ROWS.high:,}"
        )
    needed = settings.candidates or _CANDIDATES_PER_ROW * count
    if needed > bank:
        log.warning(
            "the bank holds %s sentences, %s were to be retrieved: all are", f"{bank:,}",
            f"{needed:,}",
        )  # fmt: skip
    return count, ratio, min(settings.candidates or max(_FEWEST_CANDIDATES, needed), bank)


def largest_remainder(shares: NDArray[Any], count: float) -> NDArray[np.int64]:
    """Divide a count by shares; rounding up goes to the largest remainders, (classes,).

    Example:
        >>> import numpy as np
        >>> largest_remainder(np.array([0.6, 0.3, 0.1]), 9).tolist()
        [5, 3, 1]
    """
    exact = count * shares
    wanted: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    missing = round(float(exact.sum())) - int(wanted.sum())
    wanted[np.argsort(wanted - exact, kind="stable")[:missing]] += 1
    return wanted


def _fill(
    order: NDArray[np.int64],
    rarest_own: NDArray[np.int64],
    members: NDArray[np.bool_],
    ratio: NDArray[np.float64],
    rarest: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """Take rows, best first, until each class has its share; at most `count` in all.

    Rows of several classes may be rarer here than in the training set: then the shares sum to more
    rows than wanted, and all are lowered alike.
    """

    def filled(size: float) -> NDArray[np.int64]:
        wanted = largest_remainder(ratio, size)
        got = np.zeros(len(wanted), np.int64)
        taken = [order[:0]]
        for one in rarest.tolist():  # rows of rare classes count for frequent ones too
            rows = by_class[ends[one] : ends[one + 1]][: max(0, wanted[one] - got[one])]
            got += members[rows].sum(axis=0)
            taken.append(rows)
        return np.concatenate(taken)

    by_class = order[np.argsort(rarest_own[order], kind="stable")]
    ends = np.searchsorted(rarest_own[by_class], np.arange(len(ratio) + 1))
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


def classes_of(kind: Kind, labels: Sequence[str]) -> list[str]:
    """Return the names of the classes that ratios are of.

    Example:
        >>> classes_of("tags", ["O", "B-city", "I-city", "B-name", "I-name"])
        ['city', 'name', '']
    """
    if kind == "class":
        return list(labels)
    if kind == "multi":
        return [*labels, NONE]
    return [*dict.fromkeys(tag[2:] for tag in labels if tag != "O"), NONE]


def members_of(
    probabilities: Probabilities, kind: Kind, labels: Sequence[str]
) -> NDArray[np.bool_]:
    """Return which classes each row has, (rows, classes).

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags).
    """
    classes = classes_of(kind, labels)
    found = np.zeros((len(probabilities), len(classes)), bool)
    if not len(found):
        return found
    if kind == "class":
        found[np.arange(len(found)), np.asarray(probabilities).argmax(axis=1)] = True
        return found
    if kind == "multi":
        found[:, :-1] = positive(np.asarray(probabilities))
    else:
        outside = len(classes) - 1
        types = np.array([outside if tag == "O" else classes.index(tag[2:]) for tag in labels])
        tags = np.concatenate([tokens.argmax(axis=1) for tokens in probabilities])  # (tokens,)
        rows = np.repeat(np.arange(len(found)), [len(row) for row in probabilities])  # (tokens,)
        found[rows, types[tags]] = True
    found[:, -1] = ~found[:, :-1].any(axis=1)
    return found


def confidence_of(probabilities: Probabilities, *, kind: Kind) -> NDArray[np.float32]:
    """Return a teacher's confidence in each row, 0 to 1, (rows,).

    The probability of the class; for `multi` that of the least certain yes or no; for tags the mean
    over the tokens of the likeliest tag's.

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags).
    """
    if kind == "tags":
        return _mean_over_tokens([tokens.max(axis=1) for tokens in probabilities])
    values = np.asarray(probabilities, np.float32)  # (rows, labels)
    if kind == "multi":
        return np.asarray(np.maximum(values, 1 - values).min(axis=1), np.float32)
    return np.asarray(values.max(axis=1), np.float32)


def margin_of(probabilities: Probabilities, *, kind: Kind) -> NDArray[np.float32]:
    """Return the margin of each row's label over the next likely, 0 to 1, (rows,).

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags), of which it is the mean.
    """
    if kind == "tags":
        return _mean_over_tokens([_margin(tokens) for tokens in probabilities])
    values = np.asarray(probabilities, np.float32)  # (rows, labels)
    if kind == "multi":
        return np.asarray(np.abs(2 * values - 1).min(axis=1), np.float32)
    return _margin(values)


def _margin(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    two = np.partition(probabilities, -2, axis=1)[:, -2:]  # (rows, 2)
    return np.asarray(two[:, 1] - two[:, 0], np.float32)


def _mean_over_tokens(values: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return one value for each sentence, 0 for one without tokens, (rows,)."""
    return np.array([np.mean(row) if len(row) else 0 for row in values], np.float32)
