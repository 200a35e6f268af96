"""DINO, Table 5: the encoders of Table 1 by the mean over the subsets of each set."""

from __future__ import annotations

from tilth.recipes.dino import DinoSteps, figures_note, first_texts, train_on_both
from tilth.recipes.recipe import Result
from tilth.recipes.sts_board import AVERAGE, COLUMNS, MEASURED, YEARS, StsBoard
from tilth.recipes.table import published

_HEAD = [*(COLUMNS[name] for name in YEARS), AVERAGE]
PUBLISHED = [
    published("CLEAR", _HEAD, [49.0, 48.9, 57.4, 63.6, 65.6, 56.9]),
    published("DeCLUTR", _HEAD, [64.2, 70.4, 70.0, 77.5, 75.4, 71.5]),
    published("DINO x1x2", _HEAD, [65.1, 69.9, 68.6, 76.3, 76.6, 71.3]),
    published("DINO x2", _HEAD, [65.3, 71.8, 72.7, 75.9, 76.9, 72.5]),
]


def run(steps: DinoSteps) -> Result:
    """Measure the encoders of Table 1 by the mean over subsets."""
    board = StsBoard(steps, dict.fromkeys(YEARS, "mean"))
    first_texts(steps)  # raises now, not after hours of work, if the data lacks them
    base = steps.scale.base
    board.measure(f"{base} encoder, mean-pooled", base, "base-mean", pooling="mean")
    notes = [*figures_note(board, "mean"), *train_on_both(board)]
    rows = [*board.rows(), *(board.with_average(row) for row in PUBLISHED)]
    return board.result("DINO, Table 5", [*_HEAD, MEASURED], rows, notes)
