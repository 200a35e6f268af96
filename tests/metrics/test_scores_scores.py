from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tilth.metrics.entity_spans import spans
from tilth.metrics.scores import accuracy, macro_f1, span_f1


def test_accuracy() -> None:
    assert accuracy(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 2])) == 75


def test_macro_f1_is_that_of_the_labels_that_occur() -> None:
    rng = np.random.default_rng(0)
    gold, said = rng.random((50, 4)) < 0.4, rng.random((50, 4)) < 0.4
    gold[:, 3] = said[:, 3] = False
    expected = f1_score(gold[:, :3], said[:, :3], average="macro")
    assert macro_f1(gold, said) == pytest.approx(100 * expected)
    assert macro_f1(gold[:, 3:], said[:, 3:]) == 0


def test_span_f1_counts_what_conlleval_counts() -> None:
    rng = np.random.default_rng(0)
    names = np.array(["O", "B-A", "I-A", "B-B", "I-B"])
    gold, said = ([names[rng.integers(5, size=9)].tolist() for _ in range(200)] for _ in "ab")
    said[:100] = gold[:100]
    pairs = [(set(spans(one)), set(spans(two))) for one, two in zip(gold, said, strict=True)]
    hits = sum(len(one & two) for one, two in pairs)
    total = sum(len(one) + len(two) for one, two in pairs)
    assert span_f1(gold, said) == pytest.approx(200 * hits / total)
    assert span_f1([["O"]], [["O"]]) == 0
