"""Counts of hits and misses by row, and the figures that follow from their sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """Sums over rows, of one data set or of many resamples of it.

    Attributes:
        hits: answers that are right, by label. # (..., labels)
        predicted: answers. # (..., labels)
        gold: what should have been answered. # (..., labels)
        right: wholly right decisions: rows, or tokens. # (...)
        total: decisions. # (...)
    """

    hits: Numbers
    predicted: Numbers
    gold: Numbers
    right: Numbers
    total: Numbers


def tally(sums: NDArray[Any]) -> Tally:
    """Give the columns of counts, or of their sums, their names.

    Args:
        sums: of counts as `class_counts` makes them, (..., 3 labels + 2).
    """
    sums = np.asarray(sums, float)
    labels = (sums.shape[-1] - 2) // 3
    hits, predicted, gold, rest = np.split(sums, [labels, 2 * labels, 3 * labels], axis=-1)
    return Tally(hits, predicted, gold, rest[..., 0], rest[..., 1])


def class_counts(gold: NDArray[Any], predicted: NDArray[Any], labels: int) -> Numbers:
    """Return what each row of one class adds to a tally.

    Args:
        gold: places of the right classes, (rows,).
        predicted: places of the answers, (rows,).
        labels: how many classes there are.

    Returns:
        Counts, (rows, 3 labels + 2).
    """
    one_hot = np.eye(labels)
    return label_counts(one_hot[gold], one_hot[predicted])


def label_counts(gold: NDArray[Any], predicted: NDArray[Any]) -> Numbers:
    """Return what each row of any number of labels adds to a tally; right is the whole set.

    Args:
        gold: 1 where a row has the label, 0 elsewhere, (rows, labels).
        predicted: the answers, (rows, labels).

    Returns:
        Counts, (rows, 3 labels + 2).
    """
    right = (gold == predicted).all(1, keepdims=True)  # (rows, 1)
    parts = [gold * predicted, predicted, gold, right, np.ones_like(right)]
    return np.hstack(parts, dtype=float)


def accuracy(found: Tally) -> Numbers:
    """Return the share of decisions that are right, (...)."""
    return _share(found.right, found.total)


def precision(found: Tally) -> Numbers:
    """Return the share of each label's answers that are right, (..., labels); nan: no answers."""
    return _share(found.hits, found.predicted)


def recall(found: Tally) -> Numbers:
    """Return the share of each label's rows that were found, (..., labels); nan: it has none."""
    return _share(found.hits, found.gold)


def f1(found: Tally) -> Numbers:
    """Return the harmonic mean of precision and recall by label, (..., labels).

    0 where nothing was found; nan where a label neither occurs nor is answered.
    """
    return _share(2 * found.hits, found.predicted + found.gold)


def macro_f1(found: Tally) -> Numbers:
    """Return the mean F1 of the labels that occur or are answered, (...)."""
    by_label = f1(found)
    occurs = ~np.isnan(by_label)
    return _share(np.where(occurs, by_label, 0.0).sum(-1), occurs.sum(-1))


def micro_f1(found: Tally) -> Numbers:
    """Return F1 over the answers of all labels together, (...)."""
    return _share(2 * found.hits.sum(-1), found.predicted.sum(-1) + found.gold.sum(-1))


def micro_precision(found: Tally) -> Numbers:
    """Return the share of all answers that are right, (...); nan without answers."""
    return _share(found.hits.sum(-1), found.predicted.sum(-1))


def micro_recall(found: Tally) -> Numbers:
    """Return the share of all labels of rows that were found, (...); nan without any."""
    return _share(found.hits.sum(-1), found.gold.sum(-1))


def by_label(found: Tally, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return precision, recall and F1 x 100 of each label, None where undefined, and counts.

    Args:
        found: of one data set.
        labels: their names, in the order of the columns.

    Returns:
        Label -> precision, recall, f1, n (where it is right), predicted.
    """
    made = {"precision": precision(found), "recall": recall(found), "f1": f1(found)}
    return {
        name: {
            **{key: percent(values[place]) for key, values in made.items()},
            "n": int(found.gold[place]),
            "predicted": int(found.predicted[place]),
        }
        for place, name in enumerate(labels)
    }


def percent(share: float) -> float | None:
    """Return a share x 100; None where it is undefined."""
    return None if np.isnan(share) else 100 * float(share)


def _share(part: NDArray[Any], whole: NDArray[Any]) -> Numbers:
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    nowhere = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    return np.asarray(np.divide(part, whole, out=nowhere, where=whole > 0))
