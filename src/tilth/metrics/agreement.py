"""Confidence intervals of shares, rows needed for a narrower one, agreement of annotators."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import permutations

_Z = 1.959963984540054  # of a 95% interval
_MOST_ROWS = 1_000_000
_HALF_WIDTH = 0.03  # of an interval that is narrow enough


def wilson(right: float, rows: float) -> tuple[float, float]:
    """Return the 95% Wilson interval of a share; (0, 1) without rows.

    Args:
        right: rows that count, from 0 to `rows`; of a weighted share, its effective number.

    Reference:
        Wilson 1927, Probable inference, the law of succession, and statistical inference.

    Example:
        >>> tuple(round(end, 4) for end in wilson(81, 263))
        (0.2553, 0.3662)
    """
    if rows <= 0:
        return 0.0, 1.0
    share = right / rows
    scale = 1 + _Z**2 / rows
    middle = (share + _Z**2 / (2 * rows)) / scale
    half = _Z / scale * math.sqrt(share * (1 - share) / rows + _Z**2 / (4 * rows**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def more_rows(right: float, rows: float) -> int:
    """Return how many more rows make the half width of the Wilson interval at most 0.03.

    The share is taken to be (right + 2) / (rows + 4), nearer to a half than what few rows show.

    Reference:
        Agresti and Coull 1998, Approximate is better than "exact" for interval estimation.
    """
    least, most = wilson(right, rows)
    if (most - least) / 2 <= _HALF_WIDTH:
        return 0
    share = (right + 2) / (rows + 4)
    low, high = 0, _MOST_ROWS
    while low < high:
        more = (low + high) // 2
        least, most = wilson(share * (rows + more), rows + more)
        if (most - least) / 2 <= _HALF_WIDTH:
            high = more
        else:
            low = more + 1
    return low


def weighted_share(
    right: Sequence[float], rows: Sequence[float], sizes: Sequence[float]
) -> tuple[float, float, float, float] | None:
    """Return the share of a whole that was sampled by stratum, with its 95% interval.

    Args:
        right, rows: of each stratum's sample. # (strata,)
        sizes: rows of each stratum in the whole. # (strata,)

    Returns:
        Share, low, high, and the rows drawn from all that would have the same variance, of which
        this is the Wilson interval; None if a stratum has rows in the whole and none in the sample.
    """
    total = sum(sizes)
    if not total or any(size and not n for size, n in zip(sizes, rows, strict=True)):
        return None
    share = drawn = variance = 0.0
    for k, n, size in zip(right, rows, sizes, strict=True):
        if size:
            # Agresti and Coull's share: a stratum that is all right or all wrong is not certain.
            near = (k + 2) / (n + 4)
            share += size / total * k / n
            drawn += size / total * near
            variance += (size / total) ** 2 * near * (1 - near) / n
    effective = min(drawn * (1 - drawn) / variance, sum(rows))
    return share, *wilson(share * effective, effective), effective


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Return Cohen's kappa of two people's labels of the same rows; None where it is undefined.

    Reference:
        Cohen 1960, A coefficient of agreement for nominal scales.

    Example:
        >>> round(cohen_kappa(list("aabb"), list("abbb")), 2)
        0.5
    """
    rows = len(first)
    if not rows:
        return None
    agreed = sum(a == b for a, b in zip(first, second, strict=True)) / rows
    counts = Counter(first), Counter(second)
    chance = sum(counts[0][label] * counts[1][label] for label in counts[0]) / rows**2
    return None if chance == 1 else (agreed - chance) / (1 - chance)


def krippendorff_alpha(
    units: Sequence[Sequence[Hashable]],
    distance: Callable[[Hashable, Hashable], float] | None = None,
) -> float | None:
    """Return Krippendorff's alpha; None where no two labels can be compared, or all are equal.

    Args:
        units: the labels that each row got, of any number of people; those with one are left out.
        distance: of two labels, squared; default: 0 for equal ones, 1 for others.

    Reference:
        Krippendorff 2011, Computing Krippendorff's alpha-reliability.

    Example:
        >>> round(krippendorff_alpha([["a", "a"], ["b", "b"], ["a", "b"]]), 3)
        0.444
    """
    pairs: Counter[tuple[Hashable, Hashable]] = Counter()  # coincidences
    for labels in units:
        if len(labels) > 1:
            for pair in permutations(labels, 2):
                pairs[pair] += 1 / (len(labels) - 1)  # type: ignore[assignment]
    totals: Counter[Hashable] = Counter()
    for (one, _), count in pairs.items():
        totals[one] += count
    n = sum(totals.values())
    apart = distance or _differ
    observed = sum(count * apart(*pair) for pair, count in pairs.items())
    expected = sum(totals[a] * totals[b] * apart(a, b) for a, b in permutations(totals, 2))
    return None if not expected else 1 - (n - 1) * observed / expected


def _differ(one: Hashable, other: Hashable) -> float:
    return float(one != other)
