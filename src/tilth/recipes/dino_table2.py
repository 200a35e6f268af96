"""DINO, Table 2: the effect of self-debiasing, label smoothing and sampled pairs."""

from __future__ import annotations

from pathlib import Path

from tilth.encoders.graded_pairs import read_pairs
from tilth.metrics.significance import difference_interval
from tilth.recipes.dino import DinoSteps, curate_pairs, figures_note, generate_pairs, train_seeds
from tilth.recipes.recipe import Result
from tilth.recipes.sts_board import YEARS, StsBoard, overlap_note
from tilth.recipes.table import Row, published

_HEAD = ["STS12-16", "STSb", "SICK"]
_SETS = dict(zip(_HEAD, (YEARS, ("stsb",), ("sick",)), strict=True))
PUBLISHED = [
    published("DINO x2 (decay 100)", _HEAD, [76.09, 77.82, 68.09]),
    published("decay 0", _HEAD, [65.50, 70.71, 67.60]),
    published("decay 200", _HEAD, [75.40, 77.49, 66.83]),
    published("no label smoothing", _HEAD, [74.50, 76.26, 66.23]),
    published("no sampled pairs", _HEAD, [70.90, 73.81, 63.98]),
]


def run(steps: DinoSteps) -> Result:
    """Train on the full recipe and on each ablation."""
    board = StsBoard(steps)
    x2 = generate_pairs(steps, "x2")
    full = curate_pairs(steps, x2, "x2-curated")
    variants = {
        "x2 (decay 100)": ("train-x2", full),
        "decay 0": ("train-decay0", _other_decay(steps, 0.0)),
        "decay 200": ("train-decay200", _other_decay(steps, 200.0)),
        "no label smoothing": (
            "train-no-smoothing", curate_pairs(steps, x2, "x2-no-smoothing", smoothing=0.0)
        ),
        "no sampled pairs": (
            "train-no-sampled", curate_pairs(steps, x2, "x2-no-sampled", sampled_pairs=0)
        ),
    }  # fmt: skip
    for name, (step, pairs) in variants.items():
        board.measure_trained(name, train_seeds(steps, step, pairs))
    rows = board_rows(board)
    years = ", ".join(board.names(YEARS)) or "none of them"
    notes = [
        *figures_note(board),
        f"Our {_HEAD[0]} is the mean over {years}; the published one over five.",
        *_verdicts(board),
        overlap_note(steps, read_pairs(full), "x2"),
    ]
    columns = [column for column in _HEAD if column in rows[0].cells]
    return board.result("DINO, Table 2", columns, [*rows, *PUBLISHED], notes)


def _other_decay(steps: DinoSteps, decay: float) -> Path:
    name = f"x2-decay{decay:g}"
    return curate_pairs(steps, generate_pairs(steps, name, decay=decay), f"{name}-curated")


def board_rows(board: StsBoard) -> list[Row]:
    """Return our rows with one column for all years; missing sets have no column."""
    found = {column: board.names(sets) for column, sets in _SETS.items()}
    return [
        Row(name, {column: board.cell(name, sets) for column, sets in found.items() if sets})
        for name in board.scores
    ]


def _verdicts(board: StsBoard) -> list[str]:
    """Return a note per ablation: whether its loss exceeds the variation over seeds."""
    full, *others = board.scores
    best = board.cell(full, board.names())
    lines = []
    for name in others:
        cell = board.cell(name, board.names())
        gain = difference_interval(best.runs or [best.value], cell.runs or [cell.value])
        said = f"{full} against {name}: {gain.value:+.1f} on all measured sets, "
        if gain.low is None:
            lines.append(f"{said}one seed.")
            continue
        sure = "more" if gain.excludes_zero else "no more"
        lines.append(
            f"{said}{sure} than training seeds alone would bring about (95%: {gain.low:+.1f} to "
            f"{gain.high:+.1f}); the generated data are one draw."
        )
    return lines
