"""Intervals cover what they say they cover."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tilth.metrics.intervals import f1_of_rows, of_difference, of_gain, of_mean

Floats = NDArray[np.float64]


def answers(rng: np.random.Generator, share: float, trainings: int, chance: Floats) -> Floats:
    """Return right (1) and wrong answers of trainings that differ by 2% (one deviation)."""
    each = share + chance + rng.normal(0, 0.02, (trainings, 1))
    return (rng.random((trainings, len(chance))) < each).astype(float)


@pytest.mark.parametrize(("trainings", "tasks"), [(3, 3), (5, 1)])
def test_an_interval_of_a_gain_holds_it_95_times_of_100(trainings: int, tasks: int) -> None:
    rng = np.random.default_rng(1)
    within = []
    for _ in range(600):
        pairs = []
        for _ in range(tasks):
            chance = rng.choice([-0.2, 0.2], 300)  # easy and hard rows, the same to both systems
            pairs.append([answers(rng, share, trainings, chance) for share in (0.75, 0.7)])
        found = of_gain(*zip(*pairs, strict=True))
        assert found.low is not None
        assert found.high is not None
        within.append(found.low <= 0.05 <= found.high)
    assert 0.93 <= np.mean(within) <= 0.98


def test_one_training_covers_test_rows_alone() -> None:
    first, second = np.array([[1.0, 1, 0, 1, 1, 0]]), np.array([[1.0, 0, 0, 1, 0, 0]])
    found = of_gain([first], [second])
    assert not found.trainings
    expected = stats.ttest_rel(first[0], second[0]).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert of_gain([np.vstack([first, first])], [np.vstack([second, second])]).trainings


def test_trainings_that_differ_widen_the_interval_of_a_gain() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((1, 400))
    same, apart = np.vstack([rows, rows]), np.vstack([rows, rows + 0.2])
    narrow, wide = (of_gain([one], [same - 0.5]) for one in (same, apart))
    assert narrow.low is not None
    assert wide.low is not None
    assert wide.value - wide.low > 5 * (narrow.value - narrow.low)


def test_means_and_differences_are_students_and_welchs() -> None:
    first, second = [3.0, 4.0, 6.0], [1.0, 1.5]
    expected = stats.ttest_1samp(first, 0).confidence_interval()
    found = of_mean(first)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    found = of_difference(first, second)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert not found.excludes_zero
    for lone in (of_mean([2.0]), of_difference([2.0], [1.0, 2.0])):
        assert (lone.low, lone.high, lone.excludes_zero) == (None, None, False)


def test_rows_make_up_f1() -> None:
    counts = np.array([[[1, 2, 1], [0, 1, 3], [2, 2, 2], [0, 0, 0]]])
    rows = f1_of_rows(counts)
    assert rows.mean() == pytest.approx(200 * 3 / 11)
    classes = np.array([[[1, 1, 1], [0, 1, 1]]])
    np.testing.assert_allclose(f1_of_rows(classes), [[100, 0]])


def test_an_interaction_that_is_taken_off_leaves_a_degree_of_freedom() -> None:
    """Rows that change sides from training to training outweigh how far trainings differ."""
    half = np.repeat([0.0, 1.0], 50)
    system = np.vstack([half, np.append(half[::-1][:-2], [1.0, 1.0])])
    found = of_gain([system], [np.zeros((2, 100))])
    assert found.low is not None
    assert found.value - found.low < stats.t.ppf(0.975, 1) * 0.05


def test_the_variance_of_rows_is_that_of_all_tasks() -> None:
    """Where trainings add none, the first task's rows alone would be too little."""
    still, rows = np.ones((2, 100)), np.repeat([[0.0, 1.0]], 50, axis=1)
    moved = np.vstack([rows, 1 - rows])
    found = of_gain([still, moved], [np.zeros((2, 100)), np.vstack([1 - rows, rows]) * 0.5])
    alone = of_gain([moved], [np.vstack([1 - rows, rows]) * 0.5])
    assert found.low is not None
    assert alone.low is not None
    assert found.value - found.low == pytest.approx((alone.value - alone.low) / 2)
