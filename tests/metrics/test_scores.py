import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_recall_fscore_support

from tilth.classifiers.examples import LabeledExamples
from tilth.evaluate.classify import answered
from tilth.metrics.scores import (
    Counts,
    accuracy,
    calibration,
    class_counts,
    f1,
    label_counts,
    macro_f1,
    micro_f1,
    micro_precision,
    micro_recall,
    precision,
    recall,
)
from tilth.selftrain.select import members_of


def test_scores_equal_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    gold, said = rng.random((50, 4)) < 0.4, rng.random((50, 4)) < 0.4
    gold[:, 3] = said[:, 3] = False  # a label that never occurs is left out of the mean
    counts = Counts.of(label_counts(gold, said).sum(axis=0))
    known = gold[:, :3], said[:, :3]
    expected = precision_recall_fscore_support(*known)
    for ours, theirs in zip((precision, recall, f1), expected, strict=False):
        np.testing.assert_allclose(ours(counts)[:3], theirs)
        assert np.isnan(ours(counts)[3])
    assert macro_f1(counts) == pytest.approx(f1_score(*known, average="macro"))
    found = [metric(counts) for metric in (micro_precision, micro_recall, micro_f1)]
    assert found == pytest.approx(precision_recall_fscore_support(*known, average="micro")[:3])


def test_accuracy() -> None:
    counts = class_counts(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2]), 3)
    assert accuracy(Counts.of(counts.sum(axis=0))) == 0.75


def test_what_is_trained_on_and_what_is_measured_takes_the_same_labels() -> None:
    half = np.array([[0.5, 0.4], [0.51, 0.5]], np.float32)
    rows = LabeledExamples("multi", ["a", "b"], [("x",), ("y",)], None, half)
    yes = [[0, 0], [1, 0]]
    assert answered(half, "multi").tolist() == yes
    assert np.asarray(rows.hard().targets).tolist() == yes
    assert members_of(half, "multi", ["a", "b"])[:, :2].astype(int).tolist() == yes


def test_calibration_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    probability = np.array([0.9, 0.8, 0.3, 0.25, 1.0, 0.0])
    right = np.array([True, False, True, False, True, False])
    lows = [15 * one["low"] for one in calibration(probability, right)["bins"]]
    assert lows == pytest.approx([0, 3, 4, 11, 13, 14])  # an upper edge belongs to its bin
    monkeypatch.setattr("tilth.metrics.scores.BINS", 2)
    found = calibration(probability, right)
    low, high = found["bins"]
    assert (low["low"], low["high"], low["n"], low["right"]) == (0, 0.5, 3, pytest.approx(1 / 3))
    assert low["probability"] == pytest.approx((0.3 + 0.25) / 3)
    assert (high["n"], high["right"]) == (3, pytest.approx(2 / 3))
    gaps = abs(1 / 3 - 0.55 / 3) + abs(2 / 3 - 0.9)
    assert found["error"] == pytest.approx(gaps / 2)


def test_calibration_sees_overconfidence() -> None:
    random = np.random.default_rng(0)
    probability = random.random(50_000)
    honest = random.random(50_000) < probability
    assert calibration(probability, honest)["error"] < 0.01
    assert calibration(probability, random.random(50_000) < probability**3)["error"] > 0.15
