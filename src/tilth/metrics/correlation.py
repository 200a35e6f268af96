"""Rank and linear correlation of two lists of numbers, and how sure a rank correlation is."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = NDArray[np.intp]

_PERCENTILES = (2.5, 97.5)


def average_ranks(values: Numbers) -> Numbers:
    """Return the ranks of numbers, from 1; equal numbers share the average of their ranks.

    Args:
        values: finite numbers, (items,).

    Returns:
        Ranks, (items,).
    """
    groups = _groups(values)
    return _ranks_of_groups(np.bincount(groups))[groups]  # (items,)


def pearson(a: Numbers, b: Numbers) -> float:
    """Return the linear correlation of two lists, -1 to 1; nan where one of them is constant.

    Args:
        a: finite numbers, (items,).
        b: as many.
    """
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    # Each scaled by itself, so that very small or large numbers do not leave the range of floats.
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def spearman(a: Numbers, b: Numbers) -> float:
    """Return the rank correlation of two lists, -1 to 1; nan where one of them is constant.

    Args:
        a: finite numbers, (items,).
        b: as many.
    """
    return pearson(average_ranks(a), average_ranks(b))


def bootstrap_spearman(
    a: Numbers, b: Numbers, resamples: int, generator: np.random.Generator
) -> Numbers:
    """Return the rank correlations of resamples of the pairs, drawn with replacement.

    A resample in which one side is constant has no correlation and is drawn again.

    Args:
        a: finite numbers, (items,), not all equal.
        b: as many, not all equal.
        resamples: how many, 0 or more.
        generator: draws `items` places for each resample in turn.

    Returns:
        Correlations, (resamples,), -1 to 1.

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


def interval(replicates: Numbers) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of replicates, (resamples,)."""
    low, high = np.percentile(replicates, _PERCENTILES)
    return float(low), float(high)


def _groups(values: Numbers) -> Groups:
    """Return for each number the place of its value among the distinct values in order."""
    groups: Groups = np.unique(values, return_inverse=True)[1]
    return groups  # (items,)


def _ranks_of_groups(held: NDArray[Any]) -> Numbers:
    """Return the average rank of each group's members, from how many each group holds."""
    ranks: Numbers = np.cumsum(held) - (held - 1) / 2
    return ranks  # (groups,)


def _spearman_of_counts(groups_a: Groups, groups_b: Groups, counts: NDArray[np.intp]) -> float:
    """Return the rank correlation of the list in which each pair stands `counts` times.

    Sorting is done once for all resamples: only how many each group holds changes.
    """
    middle = (counts.sum() + 1) / 2
    held_a = np.bincount(groups_a, weights=counts)
    held_b = np.bincount(groups_b, weights=counts)
    ranks_a = _ranks_of_groups(held_a) - middle  # (groups of a,)
    ranks_b = _ranks_of_groups(held_b) - middle  # (groups of b,)
    spread = (held_a @ ranks_a**2) * (held_b @ ranks_b**2)
    if spread == 0:
        return float("nan")
    return float((counts * ranks_a[groups_a]) @ ranks_b[groups_b] / np.sqrt(spread))
