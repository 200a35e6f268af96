"""95% intervals of means and differences of scores, over trainings and over test rows.

Each source of chance has a variance with degrees of freedom; the variances add up, and the interval
is Student's t with Welch and Satterthwaite's degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_UPPER = 0.975


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95% interval.

    Attributes:
        value: the figure.
        low: lower end; None where nothing says how it varies.
        high: upper end.
        trainings: whether the variance of training is in it; else it is of test rows alone.
    """

    value: float
    low: float | None
    high: float | None
    trainings: bool = True

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside; never without ends."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def of_mean(values: Sequence[float]) -> Interval:
    """Return the mean of independent figures, such as those of several draws or trainings.

    Args:
        values: one figure each; of a single one there are no ends.

    Example:
        >>> found = of_mean([1.0, 2.0, 3.0])
        >>> round(found.low, 2), found.value, round(found.high, 2)
        (-0.48, 2.0, 4.48)
    """
    return _interval(float(np.mean(values)), [_of_trainings(np.asarray(values, float))])


def of_difference(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the difference of two means of independent figures (Welch's t).

    Args:
        first: figures of one system, one for each training.
        second: of the other; there may be more or fewer.
    """
    both = [np.asarray(first, float), np.asarray(second, float)]
    value = float(both[0].mean() - both[1].mean())
    return _interval(value, [_of_trainings(one) for one in both])


def of_gain(first: Sequence[Floats], second: Sequence[Floats]) -> Interval:
    """Return how far the mean over tasks of one system is above that of another.

    Both are measured on the same rows. The interval covers other test rows of the same kind and,
    where each system was trained more than once, other trainings.

    Args:
        first: of each task, what each test row counts for in the score of each training, such as 1
            for a right answer; the mean over rows is the score. # each (trainings, rows)
        second: of the other system, on the same tasks and rows. # each (trainings, rows)

    Reference:
        Two random factors, rows and trainings, and their interaction: Searle, Casella and McCulloch
        1992, Variance Components, section 4.7. The variance of trainings is unbiased, unlike that
        of a bootstrap of few trainings.
    """
    tasks = len(first)
    value, of_rows, parts, trained = 0.0, 0.0, [], True
    for one, two in zip(first, second, strict=True):
        value += float(one.mean() - two.mean()) / tasks
        rows = one.shape[1]
        differences = one.mean(axis=0) - two.mean(axis=0)  # (rows,)
        variance = float(differences.var(ddof=1)) / rows
        of_rows += variance
        parts.append((variance, rows - 1.0))
        for system in (one, two):
            if len(system) < 2:
                trained = False
                continue
            parts += [_of_trainings(system.mean(axis=1)), _interaction(system)]
    scaled = [(variance / tasks**2, freedom) for variance, freedom in parts]
    # An estimate of no variance of training may come out below 0: the rows' variance is left.
    return _interval(value, scaled, least=of_rows / tasks**2, trainings=trained)


def f1_of_rows(counts: NDArray[np.int64]) -> Floats:
    """Return what each row counts for in F1 x 100, so that the mean over rows is F1.

    Where each row has one answer and one is wanted, that is 100 for a right one and 0 for a wrong
    one, and the mean is accuracy. Else it is linear in how far a row is from the others (the
    influence function of a ratio of means).

    Args:
        counts: right, answered and wanted spans. # (trainings, rows, 3)

    Returns:
        (trainings, rows).
    """
    right, both = 2.0 * counts[..., 0], counts[..., 1] + counts[..., 2]  # (trainings, rows)
    total = np.maximum(both.sum(axis=1, keepdims=True), 1)
    f1 = right.sum(axis=1, keepdims=True) / total
    rows: Floats = 100 * (f1 + (right - f1 * both) * counts.shape[1] / total)
    return rows


def _of_trainings(scores: Floats) -> tuple[float, float]:
    """Return the variance of a mean of independent scores, and its degrees of freedom."""
    if len(scores) < 2:
        return math.nan, 0.0
    return float(scores.var(ddof=1)) / len(scores), len(scores) - 1.0


def _interaction(system: Floats) -> tuple[float, float]:
    """Return less the variance that a system's mean has of rows within trainings.

    It is in the variance of the rows and in that of the trainings, and so counted twice.
    """
    trainings, rows = system.shape
    rest = system - system.mean(axis=0) - system.mean(axis=1, keepdims=True) + system.mean()
    freedom = (trainings - 1.0) * (rows - 1.0)
    return -float((rest**2).sum()) / freedom / (trainings * rows), freedom


def _interval(
    value: float,
    parts: Iterable[tuple[float, float]],
    *,
    least: float = 0.0,
    trainings: bool = True,
) -> Interval:
    """Return the interval of a figure.

    Args:
        value: the figure.
        parts: variances that add up to its own, with their degrees of freedom.
        least: what their sum is at least.
        trainings: see `Interval`.
    """
    from scipy.stats import t

    variances, freedoms = np.array(list(parts), float).T
    if not np.isfinite(variances).all():
        return Interval(value, None, None, trainings=False)
    total = max(float(variances.sum()), least)
    spread = float((variances**2 / freedoms).sum())
    # A sum of positive variances has at least the fewest degrees of freedom of any; one that is
    # taken off must not lead below.
    freedom = max(total**2 / spread, float(freedoms.min())) if spread else 1.0
    half = float(t.ppf(_UPPER, freedom)) * math.sqrt(total)
    return Interval(value, value - half, value + half, trainings)
