"""One rule for labels of which a text may have several."""

from __future__ import annotations

import numpy as np

from tilth.classifiers.examples import Rows
from tilth.evaluate.classify import answered
from tilth.selftrain.confidence import members_of

HALF = np.array([[0.5, 0.4], [0.51, 0.5]], np.float32)


def test_what_is_trained_on_and_what_is_measured_takes_the_same_labels() -> None:
    rows = Rows("multi", ["a", "b"], [("x",), ("y",)], None, HALF)
    yes = [[0, 0], [1, 0]]
    assert answered(HALF, "multi").tolist() == yes
    assert np.asarray(rows.hard().targets).tolist() == yes
    assert members_of(HALF, "multi", ["a", "b"])[:, :2].astype(int).tolist() == yes
