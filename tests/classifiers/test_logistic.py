from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from tilth.classifiers.logistic import adapt_logits, logistic, probabilities


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5))
    places = (features[:, 0] > 0).astype(int) + (features[:, 1] > 0)
    one_hot = np.eye(4, dtype=np.float32)[places]  # the last label is never seen
    weights, biases = logistic(features, one_hot, "class", 1.0)
    found = softmax(features @ weights.T + biases, axis=1)
    expected = LogisticRegression(C=1.0, max_iter=1000).fit(features, places)
    np.testing.assert_allclose(found[:, :3], expected.predict_proba(features), atol=0.01)
    assert (found[:, 3] < 0.01).all()

    some = places < 2
    weights, biases = logistic(features[some], one_hot[some][:, :2], "class", 1.0)
    two = LogisticRegression(C=1.0, max_iter=1000).fit(features[some], places[some])
    np.testing.assert_allclose(
        softmax(features @ weights.T + biases, axis=1), two.predict_proba(features), atol=1e-4
    )

    several = (features[:, :3] > 0).astype(np.float32)
    several[:, 2] = 1.0  # a label that all rows have
    weights, biases = logistic(features, several, "multi", 1.0)
    found = expit(features @ weights.T + biases)
    own = LogisticRegression(C=1.0, max_iter=1000).fit(features, several[:, 0])
    np.testing.assert_allclose(found[:, 0], own.predict_proba(features)[:, 1], atol=1e-4)
    assert (found[:, 2] > 0.9).all()


def test_a_regression_of_fewer_than_two_rows_a_label_finds_them_without_a_warning() -> None:
    targets = np.eye(40, dtype=np.float32)[np.arange(60) % 40]
    features = targets + np.random.default_rng(0).normal(0, 0.05, targets.shape)
    weights, biases = logistic(features.astype(np.float32), targets, "class", 10.0)
    found = (features @ weights.T + biases).argmax(axis=1)
    assert found.tolist() == (np.arange(60) % 40).tolist()


def test_a_regression_of_one_label_answers_it() -> None:
    targets = np.eye(3, dtype=np.float32)[[1] * 6]
    weights, biases = logistic(np.zeros((6, 2), np.float32), targets, "class", 1.0)
    assert not weights.any()
    assert softmax(biases)[1] > 0.9


def test_rows_of_a_regression_count_as_often_as_is_said() -> None:
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((30, 4)), np.eye(3, dtype=np.float32)[np.arange(30) % 3]
    counts = np.arange(30) % 4
    repeated = np.repeat(np.arange(30), counts)
    weighted = logistic(features, targets, "class", 1.0, counts)
    for one, other in zip(
        weighted, logistic(features[repeated], targets[repeated], "class", 1.0), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_without_rows_logits_stay_as_they_are() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (50, 4))
    adapted = adapt_logits(logits[:0], np.zeros(0, np.int64), 10.0)
    np.testing.assert_allclose(
        probabilities(logits, adapted, "class"), softmax(logits, axis=1), rtol=1e-6
    )


def test_few_rows_hardly_change_logits_and_many_do() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 3, 2000)
    # The second label's logit is too high, and the scale half of what it should be.
    logits = 0.5 * rng.normal(2 * np.eye(3)[gold], 1.0) + [0, 2, 0]

    def right(rows: int) -> float:
        found = probabilities(
            logits[1000:], adapt_logits(logits[:rows], gold[:rows], 10.0), "class"
        )
        return float((found.argmax(axis=1) == gold[1000:]).mean())

    best = float(((logits[1000:] - [0, 2, 0]).argmax(axis=1) == gold[1000:]).mean())
    assert right(0) < right(10) < right(1000)
    assert right(1000) == pytest.approx(best, abs=0.02)
    weights, _ = adapt_logits(logits[:10], gold[:10], 10.0)
    assert np.abs(weights - np.eye(3)).max() < 0.5


def test_adapted_logits_are_the_likeliest_under_their_prior() -> None:
    rng = np.random.default_rng(0)
    logits, gold = rng.normal(0, 2, (12, 3)), rng.integers(0, 3, 12)

    def cost(weights: np.ndarray, biases: np.ndarray) -> float:
        found = probabilities(logits, (weights, biases), "class")
        changes = 10.0 * ((weights - np.eye(3)) ** 2).sum() + (biases**2).sum()
        return float(changes / 2 - np.log(found[np.arange(12), gold]).sum())

    weights, biases = adapt_logits(logits, gold, 10.0)
    least = cost(weights, biases)
    for _ in range(20):
        assert least < cost(weights + rng.normal(0, 0.05, (3, 3)), biases + rng.normal(0, 0.05, 3))
