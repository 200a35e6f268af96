"""Intervals and agreement, against published examples and other implementations."""

import random

import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from tilth.metrics.agreement import (
    cohen_kappa,
    krippendorff_alpha,
    more_rows,
    weighted_share,
    wilson,
)


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (3, 10), (81, 263), (999, 1000)])
def test_wilson_is_scipys(right: int, rows: int) -> None:
    interval = binomtest(right, rows).proportion_ci(method="wilson")
    assert wilson(right, rows) == pytest.approx((interval.low, interval.high), abs=1e-12)


@pytest.mark.parametrize(
    ("right", "rows", "expected"),
    # Newcombe 1998, Two-sided confidence intervals for the single proportion, Table I, method 3.
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)),
     (1, 29, (0.0061, 0.1718))],
)  # fmt: skip
def test_wilson_is_the_published_one(right: int, rows: int, expected: tuple[float, float]) -> None:
    assert wilson(right, rows) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("right", "rows"), [(0, 0), (9, 10), (50, 100), (1000, 1000)])
def test_more_rows_are_just_enough(right: int, rows: int) -> None:
    more = more_rows(right, rows)
    share = (right + 2) / (rows + 4)

    def half(count: int) -> float:
        low, high = wilson(share * count, count)
        return (high - low) / 2

    assert half(rows + more) <= 0.03
    assert more == 0 or half(rows + more - 1) > 0.03
    assert (more == 0) == (rows == 1000)
    assert more_rows(right, rows + 10_000) == 0


# Krippendorff 2011, section C: four observers, twelve units.
OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)


def test_alpha_is_the_published_one() -> None:
    units = [
        [value for value in unit if value is not None] for unit in zip(*OBSERVERS, strict=True)
    ]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)
    squared = krippendorff_alpha(units, lambda a, b: (a - b) ** 2)
    assert squared == pytest.approx(0.849, abs=5e-4)


def test_alpha_of_two_binary_observers_is_the_published_one() -> None:
    # Krippendorff 2011, section A.
    one = (0, 1, 0, 0, 0, 0, 0, 0, 1, 0)
    two = (1, 1, 1, 0, 0, 1, 0, 0, 0, 0)
    units = list(zip(one, two, strict=True))
    assert krippendorff_alpha(units) == pytest.approx(0.095, abs=5e-4)


def test_kappa_is_scikit_learns() -> None:
    rng = random.Random(0)
    first = rng.choices("abc", k=200)
    second = [one if rng.random() < 0.6 else rng.choice("abc") for one in first]
    assert cohen_kappa(first, second) == pytest.approx(cohen_kappa_score(first, second))


def test_kappa_is_the_published_one() -> None:
    # Fleiss, Levin and Paik 2003, Statistical Methods for Rates and Proportions, Table 18.1.
    table = {("a", "a"): 75, ("a", "b"): 1, ("a", "c"): 4, ("b", "a"): 5, ("b", "b"): 4,
             ("b", "c"): 1, ("c", "a"): 0, ("c", "b"): 0, ("c", "c"): 10}  # fmt: skip
    pairs = [pair for pair, count in table.items() for _ in range(count)]
    first, second = zip(*pairs, strict=True)
    assert cohen_kappa(first, second) == pytest.approx(0.68, abs=5e-3)


def test_what_cannot_be_compared_is_none() -> None:
    assert cohen_kappa([], []) is None
    assert cohen_kappa(["a", "a"], ["a", "a"]) is None
    assert krippendorff_alpha([["a"], []]) is None
    assert krippendorff_alpha([["a", "a"]]) is None


def test_a_weighted_share_counts_strata_by_their_size() -> None:
    found = weighted_share([10, 0], [10, 10], [900, 100])
    assert found is not None
    assert found[0] == pytest.approx(0.9)
    assert found[1] < 0.9 < found[2]
    assert weighted_share([1], [1], [0]) is None
    assert weighted_share([1, 0], [1, 0], [5, 5]) is None
    # Strata of their share of the whole are one sample.
    even = weighted_share([30, 60], [50, 100], [100, 200])
    assert even is not None
    assert even[:3] == pytest.approx((0.6, *wilson(90, 150)), abs=0.01)
    assert even[3] == pytest.approx(150, rel=0.02)


@pytest.mark.parametrize(
    ("shares", "rows"), [((0.95, 0.6), 40), ((0.99, 0.97), 30), ((0.5, 0.1), 10)]
)
def test_weighted_intervals_cover_the_truth(shares: tuple[float, float], rows: int) -> None:
    rng = random.Random(1)
    covered = 0
    for _ in range(1000):
        right = [sum(rng.random() < p for _ in range(rows)) for p in shares]
        found = weighted_share(right, [rows, rows], [800, 200])
        assert found is not None
        covered += found[1] <= 0.8 * shares[0] + 0.2 * shares[1] <= found[2]
    assert 0.93 <= covered / 1000 <= 0.999


def test_a_weighted_share_of_nothing_right_is_as_sure_as_its_rows_allow() -> None:
    found = weighted_share([0, 0, 0], [1, 1, 1], [5, 5, 5])
    assert found is not None
    assert found == pytest.approx((0.0, *wilson(0, 3), 3))
