"""DINO, Table 5: the protocol that averages over the subsets of each set."""

from __future__ import annotations

from tilth.recipes.dino import (
    AVERAGE,
    COLUMNS,
    Board,
    first_texts,
    set_columns,
    train_on_both,
)
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import published

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16")
_HEAD = [*(COLUMNS[name] for name in SETS), AVERAGE]
PUBLISHED = [
    published("CLEAR", _HEAD, [49.0, 48.9, 57.4, 63.6, 65.6, 56.9]),
    published("DeCLUTR", _HEAD, [64.2, 70.4, 70.0, 77.5, 75.4, 71.5]),
    published("DINO x1x2", _HEAD, [65.1, 69.9, 68.6, 76.3, 76.6, 71.3]),
    published("DINO x2", _HEAD, [65.3, 71.8, 72.7, 75.9, 76.9, 72.5]),
]


def run(steps: Steps) -> Result:
    """Measure the encoders of Table 1 by the mean over subsets."""
    board = Board(steps, "mean", SETS)
    first_texts(steps)  # what is missing is said before hours of work
    base = steps.scale.base
    board.baseline(f"{base} encoder, mean-pooled", base, "measure-base-mean", pooling="mean")
    notes = train_on_both(board)
    rows = [*board.rows(), *(board.with_average(row) for row in PUBLISHED)]
    return board.result("DINO, Table 5", set_columns(board), rows, notes)
