"""Pearson's and Spearman's correlation, and the bootstrap of Spearman's."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = NDArray[np.intp]


def average_ranks(values: Numbers) -> Numbers:
    """Return the ranks of finite numbers, from 1, (items,); ties share their average rank."""
    groups = _groups(values)
    return _ranks_of_groups(np.bincount(groups))[groups]  # (items,)


def pearson(a: Numbers, b: Numbers) -> float:
    """Return the linear correlation of finite numbers, -1 to 1; nan where one list is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    # Each scaled by itself, so that very small or large numbers do not leave the range of floats.
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return _cosine(a, b)


def spearman(a: Numbers, b: Numbers) -> float:
    """Return the rank correlation of finite numbers, -1 to 1; nan where one list is constant.

    Ranks are halves: their sums are exact, in whatever order a processor adds.
    """
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    middle = (len(a) + 1) / 2
    a, b = average_ranks(a) - middle, average_ranks(b) - middle
    return _cosine(a, b)


def bootstrap_spearman(
    a: Numbers, b: Numbers, resamples: int, generator: np.random.Generator
) -> Numbers:
    """Return the rank correlations, (resamples,), of resamples of the pairs with replacement.

    A resample in which one side is constant has no correlation and is drawn again.

    Args:
        a: finite numbers, (items,), not all equal.
        b: likewise, (items,).
        generator: draws `items` places for each resample in turn.

    Raises:
        ValueError: one of the lists is constant.

    Reference:
        Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    """
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        raise ValueError("a constant list has no rank correlation to resample")
    items, groups_a, groups_b = len(a), _groups(a), _groups(b)
    found: list[float] = []
    while len(found) < resamples:
        drawn = generator.integers(0, items, items)  # (items,)
        counts = np.bincount(drawn, minlength=items)  # (items,)
        value = _spearman_of_counts(groups_a, groups_b, counts)
        if not np.isnan(value):
            found.append(value)
    return np.array(found)  # (resamples,)


def spearman_of_counts(a: Numbers, b: Numbers, counts: NDArray[np.intp]) -> Numbers:
    """Return the rank correlations of resamples, (resamples,); nan where one side is constant.

    The same counts for several lists give paired resamples.

    Args:
        a: finite numbers, (items,).
        b: likewise, (items,).
        counts: how often each item was drawn. # (resamples, items)
    """
    groups = _groups(a), _groups(b)
    return np.array([_spearman_of_counts(*groups, one) for one in counts])


def _cosine(a: Numbers, b: Numbers) -> float:
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _groups(values: Numbers) -> Groups:
    """Return the index of each value among the distinct values in order, (items,)."""
    groups: Groups = np.unique(values, return_inverse=True)[1]
    return groups


def _ranks_of_groups(sizes: NDArray[Any]) -> Numbers:
    """Return the average rank of each group's members, (groups,)."""
    ranks: Numbers = np.cumsum(sizes) - (sizes - 1) / 2
    return ranks


def _spearman_of_counts(groups_a: Groups, groups_b: Groups, counts: NDArray[np.intp]) -> float:
    """Return the rank correlation of pairs with multiplicities; sort once for all resamples."""
    middle = (counts.sum() + 1) / 2
    sizes_a = np.bincount(groups_a, weights=counts)
    sizes_b = np.bincount(groups_b, weights=counts)
    ranks_a = _ranks_of_groups(sizes_a) - middle  # (groups of a,)
    ranks_b = _ranks_of_groups(sizes_b) - middle  # (groups of b,)
    spread = (sizes_a @ ranks_a**2) * (sizes_b @ ranks_b**2)
    if spread == 0:
        return float("nan")
    return float((counts * ranks_a[groups_a]) @ ranks_b[groups_b] / np.sqrt(spread))
