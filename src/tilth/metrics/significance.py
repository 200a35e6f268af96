"""Confidence intervals and significance tests of scores, over test rows and over trainings.

Over test rows: bootstrap and approximate randomisation. Rows with equal counts are drawn together:
how often each kind of row comes in a resample follows a multinomial distribution, how often its
predictions are swapped a binomial one. Where kinds are few that spares a pass over the rows for
each resample, and the order of rows does not matter.

Over trainings: each source of chance has a variance with degrees of freedom; the variances add up,
and the interval is Student's t with Welch and Satterthwaite's degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.limits import BOOTSTRAP, SEED
from tilth.metrics.agreement import wilson
from tilth.metrics.scores import Counts, Numbers, macro_f1, times_100

Metrics: TypeAlias = Mapping[str, Callable[[Counts], Numbers]]
Estimates: TypeAlias = dict[str, dict[str, float | None]]

RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)
_DRAWS_PER_KIND = 10  # rows drawn one by one in the time of one multinomial count
_AT_ONCE = 4_000_000  # draws held in memory


@dataclass(frozen=True, slots=True, eq=False)
class UniqueRows:
    """Hold the unique rows of a test set by their counts.

    Attributes:
        times: how often each occurs. # (unique,)
        counts: of each model. # each (unique, counts)
    """

    times: NDArray[np.int64]
    counts: Sequence[Numbers]


def check_resamples(resamples: int, seed: int) -> None:
    """Raise InputError if the number of resamples or the seed is out of range."""
    BOOTSTRAP.check("bootstrap", resamples)
    SEED.check("seed", seed)


def unique_rows(*parts: NDArray[Any]) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return how often each unique row occurs, (unique,), and the parts, each (unique, width).

    Args:
        parts: matrices side by side, whole numbers, each (rows, width); widths may differ.
    """
    joined = np.hstack(parts)  # (rows, widths)
    unique, times = np.unique(joined, axis=0, return_counts=True)
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    return times, np.split(unique, ends, axis=1)


def bootstrap_scores(rows: UniqueRows, metrics: Metrics, *, resamples: int, seed: int) -> Estimates:
    """Return metrics x 100 of one model with 95% bootstrap intervals over the rows.

    Where all rows are alike, so are all resamples: rows of another kind may then be as frequent as
    Wilson's interval says of none.

    Args:
        rows: with the counts of one model.
        metrics: name -> function of counts.
        resamples: 0: no intervals.

    Returns:
        Name -> value, low, high; None where a metric is undefined, or without resamples.

    Reference:
        Percentile intervals: Efron and Tibshirani 1993, An Introduction to the Bootstrap, 13.3.
    """
    (counts,) = rows.counts
    whole = Counts.of(rows.times @ counts)
    drawn = [Counts.of(times @ counts) for times in _bootstrap(rows.times, resamples, seed)]
    total = int(rows.times.sum())
    return {
        name: _estimate(
            metric(whole), [metric(one) for one in drawn], _rows_of(metric, whole, total)
        )
        for name, metric in metrics.items()
    }


def compare_scores(rows: UniqueRows, metrics: Metrics, *, resamples: int, seed: int) -> Estimates:
    """Return the differences of metrics x 100 between two models on the same rows.

    Args:
        rows: with the counts of both models.
        metrics: name -> function of counts.
        resamples: of the intervals and the tests; 0: neither.

    Returns:
        Name -> value (first model less second), low, high (95%, paired bootstrap), p (two-sided,
        approximate randomisation: the models' predictions for a row are swapped or not).

    Reference:
        Noreen 1989, Computer-Intensive Methods for Testing Hypotheses; for F1, Yeh 2000,
        arXiv:cs/0008005.
    """
    first, second = rows.counts
    whole = Counts.of(rows.times @ first), Counts.of(rows.times @ second)
    drawn = [
        (Counts.of(times @ first), Counts.of(times @ second))
        for times in _bootstrap(rows.times, resamples, seed)
    ]
    swapped, total = list(_swapped(rows, resamples, seed)), int(rows.times.sum())
    found: Estimates = {}
    for name, metric in metrics.items():
        value = metric(whole[0]) - metric(whole[1])
        replicates = [metric(one) - metric(two) for one, two in drawn]
        found[name] = _estimate(value, replicates, _rows_of(metric, whole[0], total), least=-1.0)
        by_chance = [metric(one) - metric(two) for one, two in swapped]
        found[name]["p"] = _p_value(float(value), by_chance)
    return found


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, float]:
    """Test whether two models are right equally often, by the rows that only one gets right.

    Args:
        first: whether the first model is right, (rows,).
        second: whether the second is, (rows,).

    Returns:
        first, second: rows that it alone gets right; p: two-sided and exact (a sign test), hence
        valid for few rows.

    Reference:
        McNemar 1947, Note on the sampling error of the difference between correlated proportions.
    """
    from scipy.stats import binomtest

    one, two = int((first & ~second).sum()), int((second & ~first).sum())
    p = float(binomtest(one, one + two).pvalue) if one + two else 1.0
    return {"first": one, "second": two, "p": p}


def percentile_interval(replicates: Numbers) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile of bootstrap replicates, (resamples,)."""
    low, high = np.percentile(replicates, _PERCENTILES)
    return float(low), float(high)


def _bootstrap(times: NDArray[np.int64], resamples: int, seed: int) -> Iterator[Numbers]:
    """Yield the count of each unique row in resamples, (resamples, unique) in all."""
    generator, rows = np.random.default_rng([seed, 0]), int(times.sum())
    unique_of = np.repeat(np.arange(len(times)), times)  # (rows,)
    for some in _chunks(resamples, len(times)):
        if len(times) * _DRAWS_PER_KIND < rows:
            yield generator.multinomial(rows, times / rows, size=some).astype(float)
            continue
        drawn = np.empty((some, len(times)))
        for one in drawn:
            places = unique_of[generator.integers(0, rows, rows)]  # (rows,)
            one[:] = np.bincount(places, minlength=len(times))
        yield drawn


def _swapped(rows: UniqueRows, resamples: int, seed: int) -> Iterator[tuple[Counts, Counts]]:
    """Yield the counts of both models with their predictions swapped at random by row."""
    generator = np.random.default_rng([seed, 1])
    first, second = rows.counts
    sums = rows.times @ first, rows.times @ second  # (counts,)
    differs = (first != second).any(1)
    times, moved = rows.times[differs], (second - first)[differs]  # (unique, counts)
    for some in _chunks(resamples, len(times)):
        change = generator.binomial(times, 0.5, size=(some, len(times))).astype(float) @ moved
        yield Counts.of(sums[0] + change), Counts.of(sums[1] - change)


def _chunks(resamples: int, unique: int) -> Iterator[int]:
    size = max(1, _AT_ONCE // max(unique, 1))
    for begun in range(0, resamples, size):
        yield min(size, resamples - begun)


def _rows_of(metric: Callable[[Counts], Numbers], counts: Counts, rows: int) -> float:
    """Return how many of the rows a score hangs on: a mean over classes on the rarest ones'."""
    if metric is not macro_f1:
        return rows
    some = counts.gold[counts.gold > 0]
    return float(len(some) / (1 / some).sum()) if len(some) else 0.0  # the harmonic mean


def _estimate(
    value: Numbers, drawn: Sequence[Numbers], rows: float, least: float = 0.0
) -> dict[str, float | None]:
    """Return a score of so many rows, from `least` to 1, with its interval, x 100."""
    replicates = np.concatenate(drawn) if drawn else np.empty(0)
    replicates = replicates[~np.isnan(replicates)]
    low, high = percentile_interval(replicates) if len(replicates) else (np.nan, np.nan)
    if low == high:
        _, others = wilson(0, rows)
        low, high = max(low - others, least), min(high + others, 1.0)
    return {"value": times_100(value), "low": times_100(low), "high": times_100(high)}


def _p_value(value: float, by_chance: Sequence[Numbers]) -> float | None:
    if not by_chance or np.isnan(value):
        return None
    distances = np.abs(np.concatenate(by_chance))
    distances = distances[~np.isnan(distances)]  # where a score was undefined
    farther = int((distances >= abs(value) - 1e-12).sum())  # equal but for rounding counts
    return (farther + 1) / (len(distances) + 1)


EQUAL = 1e-9  # scores x 100 differ by more


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold an estimate with its 95% interval.

    Attributes:
        low: None where the variance is unknown.
        trainings: whether the variance of training is included; else of test rows alone.
    """

    value: float
    low: float | None
    high: float | None
    trainings: bool = True

    @property
    def excludes_zero(self) -> bool:
        """Return whether 0 lies outside; False without ends."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent scores, such as of draws or trainings (Student's t).

    Args:
        values: one score each; a single one has no interval.

    Example:
        >>> found = mean_interval([1.0, 2.0, 3.0])
        >>> round(found.low, 2), found.value, round(found.high, 2)
        (-0.48, 2.0, 4.48)
    """
    return _interval(float(np.mean(values)), [_of_trainings(np.asarray(values, float))])


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the difference of two means of independent scores, one per training (Welch's t).

    Trainings that are all equally good say nothing of how far others differ: no interval.
    """
    both = [np.asarray(first, float), np.asarray(second, float)]
    value = float(both[0].mean() - both[1].mean())
    if max(map(np.ptp, both)) < EQUAL:
        return Interval(value, None, None, trainings=False)
    return _interval(value, [_of_trainings(one) for one in both])


def gain_interval(first: Sequence[Numbers], second: Sequence[Numbers]) -> Interval:
    """Return how far the mean over tasks of one system is above another's, on the same test rows.

    The interval covers other test rows of the same kind and, where each system was trained more
    than once, other trainings.

    Args:
        first: of each task, the contribution of each test row to the score of each training, such
            as 1 for a right answer; the mean over rows is the score. # each (trainings, rows)
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
    # An unbiased estimate of the trainings' variance may be negative: at least the rows' is left.
    return _interval(value, scaled, least=of_rows / tasks**2, trainings=trained)


def f1_contributions(counts: NDArray[np.int64]) -> Numbers:
    """Return each row's contribution to F1 x 100: their mean is F1.

    Where each row has one prediction and one gold label, it is 100 for a right one and 0 for a
    wrong one, and the mean is accuracy. Else it is the influence function of a ratio of means.

    Args:
        counts: right, predicted and gold spans. # (trainings, rows, 3)

    Returns:
        (trainings, rows).
    """
    right, both = 2.0 * counts[..., 0], counts[..., 1] + counts[..., 2]  # (trainings, rows)
    total = np.maximum(both.sum(axis=1, keepdims=True), 1)
    f1 = right.sum(axis=1, keepdims=True) / total
    rows: Numbers = 100 * (f1 + (right - f1 * both) * counts.shape[1] / total)
    return rows


def _of_trainings(scores: Numbers) -> tuple[float, float]:
    """Return the variance of a mean of independent scores, and its degrees of freedom."""
    if len(scores) < 2:
        return math.nan, 0.0
    return float(scores.var(ddof=1)) / len(scores), len(scores) - 1.0


def _interaction(system: Numbers) -> tuple[float, float]:
    """Return the negative row-by-training variance: rows and trainings both count it."""
    trainings, rows = system.shape
    rest = system - system.mean(axis=0) - system.mean(axis=1, keepdims=True) + system.mean()
    freedom = (trainings - 1.0) * (rows - 1.0)
    if not freedom:
        return math.nan, 0.0
    return -float((rest**2).sum()) / freedom / (trainings * rows), freedom


def _interval(
    value: float,
    parts: Iterable[tuple[float, float]],
    *,
    least: float = 0.0,
    trainings: bool = True,
) -> Interval:
    """Return the interval from variances and degrees of freedom; `least` bounds their sum."""
    from scipy.stats import t

    variances, freedoms = np.array(list(parts), float).T
    if not np.isfinite(variances).all():
        return Interval(value, None, None, trainings=False)
    total = max(float(variances.sum()), least)
    spread = float((variances**2 / freedoms).sum())
    # A sum of positive variances has at least the fewest degrees of freedom of any; a negative
    # part must not lead below that.
    freedom = max(total**2 / spread, float(freedoms.min())) if spread else 1.0
    half = float(t.ppf(_PERCENTILES[1] / 100, freedom)) * math.sqrt(total)
    return Interval(value, value - half, value + half, trainings)
