"""Bootstrap, tests and intervals equal slow or independent ones, and cover what they say."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import stats

from tilth.errors import InputError
from tilth.metrics import scores as metrics
from tilth.metrics.significance import (
    UniqueRows,
    _p_value,
    bootstrap_scores,
    check_resamples,
    compare_scores,
    difference_interval,
    f1_contributions,
    gain_interval,
    mcnemar,
    mean_interval,
    unique_rows,
)

METRICS = {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}


def drawn(rows: int, labels: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return right classes, and answers of which about `share` are right."""
    random = np.random.default_rng(seed)
    gold = random.integers(0, labels, rows)
    answers = np.where(random.random(rows) < share, gold, random.integers(0, labels, rows))
    return gold, answers


def kinds_of(gold: np.ndarray, *answers: np.ndarray, labels: int) -> UniqueRows:
    times, (right, *said) = unique_rows(*(part[:, None] for part in (gold, *answers)))
    counts = [metrics.class_counts(right[:, 0], one[:, 0], labels) for one in said]
    return UniqueRows(times, counts)


def slow_f1(gold: np.ndarray, answers: np.ndarray) -> float:
    found = []
    for label in np.union1d(gold, answers):
        hits = ((gold == label) & (answers == label)).sum()
        found.append(2 * hits / ((gold == label).sum() + (answers == label).sum()))
    return float(np.mean(found))


def test_rows_that_are_alike_are_counted() -> None:
    a, b = np.array([[1, 0], [0, 0], [1, 0]]), np.array([[5], [6], [5]])
    times, (one, two) = unique_rows(a, b)
    assert times.tolist() == [1, 2]
    assert one.tolist() == [[0, 0], [1, 0]]
    assert two.tolist() == [[6], [5]]


# 3 labels: few kinds of rows, drawn by kind; 30: many, drawn row by row.
@pytest.mark.parametrize(("rows", "labels"), [(300, 3), (150, 30)])
def test_intervals_equal_those_of_a_slow_bootstrap(rows: int, labels: int) -> None:
    gold, answers = drawn(rows, labels, 0.7)
    found = bootstrap_scores(
        kinds_of(gold, answers, labels=labels), METRICS, resamples=4000, seed=1
    )
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
        found = bootstrap_scores(kinds, METRICS, resamples=300, seed=seed)["accuracy"]
        covered += found["low"] <= 80 <= found["high"]
    assert 0.90 <= covered / 200 <= 0.98


def test_seed_resamples_and_order_of_rows() -> None:
    gold, answers = drawn(200, 4, 0.6)
    kinds = kinds_of(gold, answers, labels=4)
    found = bootstrap_scores(kinds, METRICS, resamples=200, seed=0)
    mixed = np.random.default_rng(3).permutation(200)
    again = kinds_of(gold[mixed], answers[mixed], labels=4)
    assert bootstrap_scores(again, METRICS, resamples=200, seed=0) == found
    assert bootstrap_scores(kinds, METRICS, resamples=200, seed=1) != found
    none = bootstrap_scores(kinds, METRICS, resamples=0, seed=0)["accuracy"]
    assert (none["low"], none["high"]) == (None, None)
    with pytest.raises(InputError, match="bootstrap is -1"):
        check_resamples(-1, 0)


def test_memory_does_not_change_what_is_drawn_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gold, answers = drawn(100, 20, 0.5)
    kinds = kinds_of(gold, answers, labels=20)
    whole = bootstrap_scores(kinds, METRICS, resamples=50, seed=0)
    monkeypatch.setattr("tilth.metrics.significance._AT_ONCE", 300)
    assert bootstrap_scores(kinds, METRICS, resamples=50, seed=0) == whole


def test_a_better_model_is_above() -> None:
    gold, bad = drawn(500, 3, 0.3)
    good = np.where(np.random.default_rng(8).random(500) < 0.8, gold, bad)
    found = compare_scores(kinds_of(gold, good, bad, labels=3), METRICS, resamples=500, seed=0)
    turned = compare_scores(kinds_of(gold, bad, good, labels=3), METRICS, resamples=500, seed=0)
    for name in METRICS:
        assert 0 < found[name]["low"] < found[name]["value"] < found[name]["high"]
        assert turned[name]["value"] == pytest.approx(-found[name]["value"])
        assert turned[name]["high"] < 0
        assert found[name]["p"] == 1 / 501
    same = compare_scores(kinds_of(gold, bad, bad, labels=3), METRICS, resamples=100, seed=0)
    ends = 100 * stats.binomtest(0, 500).proportion_ci(method="wilson").high  # so many may differ
    assert same["accuracy"] == pytest.approx({"value": 0, "low": -ends, "high": ends, "p": 1})
    assert -same["macro_f1"]["low"] == same["macro_f1"]["high"] > ends  # of the rows of a class
    wrong = kinds_of(gold, gold, (gold + 1) % 3, labels=3)
    best = compare_scores(wrong, METRICS, resamples=9, seed=0)
    assert best["accuracy"]["low"] == pytest.approx(100 - ends)
    assert best["accuracy"]["high"] == 100
    none = compare_scores(kinds_of(gold, good, bad, labels=3), METRICS, resamples=0, seed=0)
    assert none["accuracy"]["p"] is None


def test_paired_differences_equal_a_slow_bootstrap() -> None:
    gold, one = drawn(120, 3, 0.7)
    two = np.where(np.random.default_rng(4).random(120) < 0.7, one, gold)
    found = compare_scores(kinds_of(gold, one, two, labels=3), METRICS, resamples=4000, seed=0)
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
    found = compare_scores(kinds, METRICS, resamples=20_000, seed=0)["macro_f1"]["p"]
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
        found.append(compare_scores(kinds, METRICS, resamples=200, seed=seed)["macro_f1"]["p"])
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


def responses(
    rng: np.random.Generator, share: float, trainings: int, chance: np.ndarray
) -> np.ndarray:
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
            pairs.append([responses(rng, share, trainings, chance) for share in (0.75, 0.7)])
        found = gain_interval(*zip(*pairs, strict=True))
        within.append(found.low <= 0.05 <= found.high)
    assert 0.93 <= np.mean(within) <= 0.98


def test_one_training_covers_test_rows_alone() -> None:
    first, second = np.array([[1.0, 1, 0, 1, 1, 0]]), np.array([[1.0, 0, 0, 1, 0, 0]])
    found = gain_interval([first], [second])
    assert not found.trainings
    expected = stats.ttest_rel(first[0], second[0]).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert gain_interval([np.vstack([first, first])], [np.vstack([second, second])]).trainings


def test_trainings_that_differ_widen_the_interval_of_a_gain() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((1, 400))
    same, apart = np.vstack([rows, rows]), np.vstack([rows, rows + 0.2])
    narrow, wide = (gain_interval([one], [same - 0.5]) for one in (same, apart))
    assert wide.value - wide.low > 5 * (narrow.value - narrow.low)


def test_means_and_differences_are_students_and_welchs() -> None:
    first, second = [3.0, 4.0, 6.0], [1.0, 1.5]
    expected = stats.ttest_1samp(first, 0).confidence_interval()
    found = mean_interval(first)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    found = difference_interval(first, second)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert not found.excludes_zero
    for lone in (mean_interval([2.0]), difference_interval([2.0], [1.0, 2.0])):
        assert (lone.low, lone.high, lone.excludes_zero) == (None, None, False)
    equal = difference_interval([90.0, 90.0], [88.0, 88.0])
    assert (equal.value, equal.low, equal.high, equal.excludes_zero) == (2.0, None, None, False)
    assert difference_interval([90.0, 91.0], [88.0, 88.0]).low is not None


def test_rows_make_up_f1() -> None:
    counts = np.array([[[1, 2, 1], [0, 1, 3], [2, 2, 2], [0, 0, 0]]])
    rows = f1_contributions(counts)
    assert rows.mean() == pytest.approx(200 * 3 / 11)
    classes = np.array([[[1, 1, 1], [0, 1, 1]]])
    np.testing.assert_allclose(f1_contributions(classes), [[100, 0]])


def test_an_interaction_that_is_taken_off_leaves_a_degree_of_freedom() -> None:
    """Rows that change sides from training to training outweigh how far trainings differ."""
    half = np.repeat([0.0, 1.0], 50)
    system = np.vstack([half, np.append(half[::-1][:-2], [1.0, 1.0])])
    found = gain_interval([system], [np.zeros((2, 100))])
    assert found.value - found.low < stats.t.ppf(0.975, 1) * 0.05


def test_the_variance_of_rows_is_that_of_all_tasks() -> None:
    """Where trainings add none, the first task's rows alone would be too little."""
    still, rows = np.ones((2, 100)), np.repeat([[0.0, 1.0]], 50, axis=1)
    moved = np.vstack([rows, 1 - rows])
    found = gain_interval([still, moved], [np.zeros((2, 100)), np.vstack([1 - rows, rows]) * 0.5])
    alone = gain_interval([moved], [np.vstack([1 - rows, rows]) * 0.5])
    assert found.value - found.low == pytest.approx((alone.value - alone.low) / 2)


def test_undefined_scores_are_no_evidence() -> None:
    swapped = [np.array([np.nan] * 9 + [2.0])]
    assert _p_value(1.0, swapped) == 1.0


def test_one_test_row_has_no_interval() -> None:
    one, two = np.array([[1.0], [0.0]]), np.array([[0.0], [0.0]])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gain_interval([one], [two])
    assert (found.value, found.low, found.high) == (0.5, None, None)


def test_a_model_that_is_always_right_has_an_interval_nevertheless() -> None:
    gold = np.array([0, 1, 2] * 5)
    found = bootstrap_scores(kinds_of(gold, gold, labels=3), METRICS, resamples=20, seed=0)
    for name, one in found.items():
        rows = 5 if name == "macro_f1" else 15  # of a class
        low = 100 * stats.binomtest(rows, rows).proportion_ci(method="wilson").low
        assert (one["value"], one["high"]) == (100, pytest.approx(100))
        assert one["low"] == pytest.approx(low)
    rare = np.repeat([0, 1], [324, 6])
    found = bootstrap_scores(kinds_of(rare, rare, labels=2), METRICS, resamples=20, seed=0)
    assert found["macro_f1"]["low"] < 85 < 98 < found["accuracy"]["low"]
