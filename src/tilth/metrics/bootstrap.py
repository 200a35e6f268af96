"""How sure a figure is, and whether two models differ: resamples of the rows of a test set.

Rows that count alike are drawn together: how often each kind of row comes in a resample follows a
multinomial distribution, and how often its answers are swapped a binomial one. Where kinds are few
that spares a pass over the rows for each resample; nor does the order of rows matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from tilth.limits import BOOTSTRAP, SEED
from tilth.metrics.counts import Numbers, Tally, percent, tally

Figures: TypeAlias = Mapping[str, Callable[[Tally], Numbers]]
Found: TypeAlias = dict[str, dict[str, float | None]]

RESAMPLES = 2000
_PERCENTILES = (2.5, 97.5)
_DRAWS_A_KIND = 10  # rows drawn one by one in the time that one kind's number takes
_AT_ONCE = 4_000_000  # draws held in memory


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """The rows of a test set, those that count alike taken together.

    Attributes:
        times: how many rows are of each kind. # (kinds,)
        counts: of each model, what a row of each kind adds to its tally. # (kinds, counts)
    """

    times: NDArray[np.int64]
    counts: Sequence[Numbers]


def check_resamples(resamples: int, seed: int) -> None:
    """Check what needs neither model nor data.

    Raises:
        InputError: a number is out of its limits.
    """
    BOOTSTRAP.check("bootstrap", resamples)
    SEED.check("seed", seed)


def alike(*parts: NDArray[Any]) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return the different rows of some matrices side by side, in order, and how often each is.

    Args:
        parts: whole numbers, each (rows, width); widths may differ.

    Returns:
        Times, (kinds,), and the parts again, each (kinds, width).
    """
    joined = np.hstack(parts)  # (rows, widths)
    kinds, times = np.unique(joined, axis=0, return_counts=True)
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    return times, np.split(kinds, ends, axis=1)


def measure(kinds: Kinds, figures: Figures, *, resamples: int, seed: int) -> Found:
    """Return figures x 100 with 95% bootstrap intervals over the rows.

    Args:
        kinds: of one model.
        figures: name -> what makes it of sums.
        resamples: 0: no intervals.
        seed: of the resamples.

    Returns:
        Name -> value, low, high; None where a figure is undefined, or without resamples.

    Reference:
        Percentile intervals: Efron and Tibshirani 1993, An Introduction to the Bootstrap, 13.3.
    """
    (counts,) = kinds.counts
    whole = tally(kinds.times @ counts)
    drawn = [tally(times @ counts) for times in _bootstrap(kinds.times, resamples, seed)]
    return {
        name: _found(make(whole), [make(sums) for sums in drawn]) for name, make in figures.items()
    }


def compare(kinds: Kinds, figures: Figures, *, resamples: int, seed: int) -> Found:
    """Return how far one model's figures x 100 are above another's on the same rows.

    Args:
        kinds: of both models, joined.
        figures: name -> what makes it of sums.
        resamples: of the intervals and the tests; 0: neither.
        seed: of the resamples.

    Returns:
        Name -> value (first model less second), low, high (95%, paired bootstrap), p (two-sided,
        approximate randomisation: the models' answers to a row are swapped or not).

    Reference:
        Noreen 1989, Computer-Intensive Methods for Testing Hypotheses; for F1, Yeh 2000,
        arXiv:cs/0008005.
    """
    first, second = kinds.counts
    whole = tally(kinds.times @ first), tally(kinds.times @ second)
    drawn = [
        (tally(times @ first), tally(times @ second))
        for times in _bootstrap(kinds.times, resamples, seed)
    ]
    swapped = list(_swapped(kinds, resamples, seed))
    found: Found = {}
    for name, make in figures.items():
        value = make(whole[0]) - make(whole[1])
        found[name] = _found(value, [make(one) - make(two) for one, two in drawn])
        by_chance = [make(one) - make(two) for one, two in swapped]
        found[name]["p"] = _p_value(float(value), by_chance)
    return found


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> dict[str, float]:
    """Test whether two models are right equally often, on rows that only one gets right.

    Args:
        first: whether the first model is right, (rows,).
        second: whether the second is, (rows,).

    Returns:
        first, second: rows that it alone gets right; p: two-sided and exact, so that few rows
        do no harm.

    Reference:
        McNemar 1947; the exact form is a sign test.
    """
    one, two = int((first & ~second).sum()), int((second & ~first).sum())
    p = min(1.0, 2 * float(binom.cdf(min(one, two), one + two, 0.5)))
    return {"first": one, "second": two, "p": p}


def _bootstrap(times: NDArray[np.int64], resamples: int, seed: int) -> Iterator[Numbers]:
    """Yield how often each kind of row comes in resamples, (resamples, kinds) in all."""
    generator, rows = np.random.default_rng([seed, 0]), int(times.sum())
    kind_of = np.repeat(np.arange(len(times)), times)  # (rows,)
    for some in _chunks(resamples, len(times)):
        if len(times) * _DRAWS_A_KIND < rows:
            yield generator.multinomial(rows, times / rows, size=some).astype(float)
            continue
        drawn = np.empty((some, len(times)))
        for one in drawn:
            places = kind_of[generator.integers(0, rows, rows)]  # (rows,)
            one[:] = np.bincount(places, minlength=len(times))
        yield drawn


def _swapped(kinds: Kinds, resamples: int, seed: int) -> Iterator[tuple[Tally, Tally]]:
    """Yield the tallies of both models when chance decides whose answer to a row is whose."""
    generator = np.random.default_rng([seed, 1])
    first, second = kinds.counts
    sums = kinds.times @ first, kinds.times @ second  # (counts,)
    differs = (first != second).any(1)
    times, moved = kinds.times[differs], (second - first)[differs]  # (kinds, counts)
    for some in _chunks(resamples, len(times)):
        change = generator.binomial(times, 0.5, size=(some, len(times))).astype(float) @ moved
        yield tally(sums[0] + change), tally(sums[1] - change)


def _chunks(resamples: int, kinds: int) -> Iterator[int]:
    size = max(1, _AT_ONCE // max(kinds, 1))
    for begun in range(0, resamples, size):
        yield min(size, resamples - begun)


def _found(value: Numbers, drawn: Sequence[Numbers]) -> dict[str, float | None]:
    replicates = np.concatenate(drawn) if drawn else np.empty(0)
    replicates = replicates[~np.isnan(replicates)]
    ends = np.percentile(replicates, _PERCENTILES) if len(replicates) else (np.nan, np.nan)
    names = ("value", "low", "high")
    return {name: percent(float(x)) for name, x in zip(names, (value, *ends), strict=True)}


def _p_value(value: float, by_chance: Sequence[Numbers]) -> float | None:
    if not by_chance or np.isnan(value):
        return None
    distances = np.abs(np.concatenate(by_chance))
    # What is the same but for rounding is as far.
    farther = int((distances >= abs(value) - 1e-12).sum())
    return (farther + 1) / (len(distances) + 1)
