from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tilth.errors import InputError
from tilth.metrics import counts as tally
from tilth.metrics.bootstrap import (
    Kinds,
    alike,
    check_resamples,
    compare,
    mcnemar,
    measure,
)
from tilth.metrics.calibration import calibration

FIGURES = {"accuracy": tally.accuracy, "macro_f1": tally.macro_f1}


def drawn(rows: int, labels: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return right classes, and answers of which about `share` are right."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, labels, rows)
    answers = np.where(random.random(rows) < share, gold, random.integers(0, labels, rows))
    return gold, answers


def kinds_of(gold: np.ndarray, *answers: np.ndarray, labels: int) -> Kinds:
    times, (right, *said) = alike(*(part[:, None] for part in (gold, *answers)))
    counts = [tally.class_counts(right[:, 0], one[:, 0], labels) for one in said]
    return Kinds(times, counts)


def slow_f1(gold: np.ndarray, answers: np.ndarray) -> float:
    found = []
    for label in np.union1d(gold, answers):
        hits = ((gold == label) & (answers == label)).sum()
        found.append(2 * hits / ((gold == label).sum() + (answers == label).sum()))
    return float(np.mean(found))


def test_rows_that_are_alike_are_counted() -> None:
    a, b = np.array([[1, 0], [0, 0], [1, 0]]), np.array([[5], [6], [5]])
    times, (one, two) = alike(a, b)
    assert times.tolist() == [1, 2]
    assert one.tolist() == [[0, 0], [1, 0]]
    assert two.tolist() == [[6], [5]]


# 3 labels: few kinds of rows, drawn by kind; 30: many, drawn row by row.
@pytest.mark.parametrize(("rows", "labels"), [(300, 3), (150, 30)])
def test_intervals_equal_those_of_a_slow_bootstrap(rows: int, labels: int) -> None:
    gold, answers = drawn(rows, labels, 0.7)
    found = measure(kinds_of(gold, answers, labels=labels), FIGURES, resamples=4000, seed=1)
    assert found["accuracy"]["value"] == pytest.approx(100 * (gold == answers).mean())
    assert found["macro_f1"]["value"] == pytest.approx(100 * slow_f1(gold, answers))
    random = np.random.default_rng(2)
    places = random.integers(0, rows, (4000, rows))
    for name, make in (("accuracy", lambda a, b: (a == b).mean()), ("macro_f1", slow_f1)):
        slow = [100 * make(gold[some], answers[some]) for some in places]
        for key, percentile in (("low", 2.5), ("high", 97.5)):
            assert found[name][key] == pytest.approx(np.percentile(slow, percentile), abs=0.8)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(200):
        right = np.random.default_rng(seed).random(200) < 0.8
        kinds = kinds_of(np.ones(200, int), right.astype(int), labels=2)
        found = measure(kinds, FIGURES, resamples=300, seed=seed)["accuracy"]
        covered += found["low"] <= 80 <= found["high"]
    assert 0.90 <= covered / 200 <= 0.98


def test_seed_resamples_and_order_of_rows() -> None:
    gold, answers = drawn(200, 4, 0.6)
    kinds = kinds_of(gold, answers, labels=4)
    found = measure(kinds, FIGURES, resamples=200, seed=0)
    mixed = np.random.default_rng(3).permutation(200)
    again = kinds_of(gold[mixed], answers[mixed], labels=4)
    assert measure(again, FIGURES, resamples=200, seed=0) == found
    assert measure(kinds, FIGURES, resamples=200, seed=1) != found
    none = measure(kinds, FIGURES, resamples=0, seed=0)["accuracy"]
    assert (none["low"], none["high"]) == (None, None)
    with pytest.raises(InputError, match="bootstrap is -1"):
        check_resamples(-1, 0)


def test_memory_does_not_change_what_is_drawn_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gold, answers = drawn(100, 20, 0.5)
    kinds = kinds_of(gold, answers, labels=20)
    whole = measure(kinds, FIGURES, resamples=50, seed=0)
    monkeypatch.setattr("tilth.metrics.bootstrap._AT_ONCE", 300)
    assert measure(kinds, FIGURES, resamples=50, seed=0) == whole


def test_a_better_model_is_above() -> None:
    gold, bad = drawn(500, 3, 0.3)
    good = np.where(np.random.default_rng(8).random(500) < 0.8, gold, bad)
    found = compare(kinds_of(gold, good, bad, labels=3), FIGURES, resamples=500, seed=0)
    turned = compare(kinds_of(gold, bad, good, labels=3), FIGURES, resamples=500, seed=0)
    for name in FIGURES:
        assert 0 < found[name]["low"] < found[name]["value"] < found[name]["high"]
        assert turned[name]["value"] == pytest.approx(-found[name]["value"])
        assert turned[name]["high"] < 0
        assert found[name]["p"] == 1 / 501
    same = compare(kinds_of(gold, bad, bad, labels=3), FIGURES, resamples=100, seed=0)
    assert same["macro_f1"] == {"value": 0, "low": 0, "high": 0, "p": 1}
    none = compare(kinds_of(gold, good, bad, labels=3), FIGURES, resamples=0, seed=0)
    assert none["accuracy"]["p"] is None


def test_paired_differences_equal_a_slow_bootstrap() -> None:
    gold, one = drawn(120, 3, 0.7)
    two = np.where(np.random.default_rng(4).random(120) < 0.7, one, gold)
    found = compare(kinds_of(gold, one, two, labels=3), FIGURES, resamples=4000, seed=0)
    places = np.random.default_rng(1).integers(0, 120, (4000, 120))
    slow = [100 * (slow_f1(gold[p], one[p]) - slow_f1(gold[p], two[p])) for p in places]
    low, high = np.percentile(slow, [2.5, 97.5])
    assert found["macro_f1"]["low"] == pytest.approx(low, abs=0.8)
    assert found["macro_f1"]["high"] == pytest.approx(high, abs=0.8)


def test_randomisation_equals_all_swaps() -> None:
    gold, one = drawn(9, 2, 0.9, seed=3)
    two = drawn(9, 2, 0.2, seed=5)[1]
    observed = abs(slow_f1(gold, one) - slow_f1(gold, two))
    farther = 0
    for swaps in itertools.product([False, True], repeat=9):
        a, b = np.where(swaps, two, one), np.where(swaps, one, two)
        farther += abs(slow_f1(gold, a) - slow_f1(gold, b)) >= observed - 1e-12
    kinds = kinds_of(gold, one, two, labels=2)
    found = compare(kinds, FIGURES, resamples=20_000, seed=0)["macro_f1"]["p"]
    assert found == pytest.approx(farther / 2**9, abs=0.015)
    assert found > 1 / 20_001


def test_p_is_even_when_there_is_no_difference() -> None:
    found = []
    for seed in range(150):
        gold, one = drawn(100, 3, 0.6, seed=seed)
        two = drawn(100, 3, 0.6, seed=seed)[1]
        random = np.random.default_rng(seed + 1000)
        one, two = (np.where(random.random(100) < 0.7, part, random.integers(0, 3, 100))
                    for part in (one, two))  # fmt: skip
        kinds = kinds_of(gold, one, two, labels=3)
        found.append(compare(kinds, FIGURES, resamples=200, seed=seed)["macro_f1"]["p"])
    assert 0.01 <= np.mean(np.array(found) <= 0.05) <= 0.10
    assert 0.4 < np.mean(found) < 0.6


@pytest.mark.parametrize(("one", "two"), [(0, 0), (3, 9), (1, 12), (40, 40), (900, 1001)])
def test_mcnemar_equals_a_sign_test(one: int, two: int) -> None:
    first = np.array([True] * one + [False] * two + [True] * 7 + [False] * 4)
    second = np.array([False] * one + [True] * two + [True] * 7 + [False] * 4)
    found = mcnemar(first, second)
    assert (found["first"], found["second"]) == (one, two)
    expected = stats.binomtest(one, one + two).pvalue if one + two else 1.0
    assert found["p"] == pytest.approx(expected)


def test_calibration_by_hand() -> None:
    probability = np.array([0.9, 0.8, 0.3, 0.25, 1.0, 0.0])
    right = np.array([True, False, True, False, True, False])
    found = calibration(probability, right, bins=2)
    low, high = found["bins"]
    assert (low["low"], low["high"], low["n"], low["right"]) == (0, 0.5, 3, pytest.approx(1 / 3))
    assert low["probability"] == pytest.approx((0.3 + 0.25) / 3)
    assert (high["n"], high["right"]) == (3, pytest.approx(2 / 3))
    gaps = abs(1 / 3 - 0.55 / 3) + abs(2 / 3 - 0.9)
    assert found["error"] == pytest.approx(gaps / 2)
    lows = [15 * one["low"] for one in calibration(probability, right)["bins"]]
    assert lows == pytest.approx([0, 3, 4, 11, 13, 14])  # an upper edge belongs to its bin


def test_calibration_sees_overconfidence() -> None:
    random = np.random.default_rng(0)
    probability = random.random(50_000)
    honest = random.random(50_000) < probability
    assert calibration(probability, honest)["error"] < 0.01
    assert calibration(probability, random.random(50_000) < probability**3)["error"] > 0.15
