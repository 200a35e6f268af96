"""DINO, Table 2: what self-debiasing, label smoothing and sampled pairs are worth."""

from __future__ import annotations

from pathlib import Path

from tilth.metrics.significance import difference_interval
from tilth.recipes.dino import (
    Board,
    curate_pairs,
    generate_pairs,
    overlap_note,
    train_seeds,
)
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import Row, published

YEARS, STSB, SICK = "STS12-16", "STSb", "SICK"
_HEAD = [YEARS, STSB, SICK]
PUBLISHED = [
    published("DINO x2 (decay 100)", _HEAD, [76.09, 77.82, 68.09]),
    published("decay 0", _HEAD, [65.50, 70.71, 67.60]),
    published("decay 200", _HEAD, [75.40, 77.49, 66.83]),
    published("no label smoothing", _HEAD, [74.50, 76.26, 66.23]),
    published("no sampled pairs", _HEAD, [70.90, 73.81, 63.98]),
]


def run(steps: Steps) -> Result:
    """Train on the full recipe and on each variant that leaves one thing out."""
    board = Board(steps)
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
        board.trained(name, train_seeds(steps, step, pairs))
    return board.result(
        "DINO, Table 2",
        _columns(board),
        [*_rows(board), *PUBLISHED],
        [_years_note(board), *verdicts(board, list(variants)), overlap_note(steps, "x2", full)],
    )


def _other_decay(steps: Steps, decay: float) -> Path:
    name = f"x2-decay{decay:g}"
    return curate_pairs(steps, generate_pairs(steps, name, decay=decay), f"{name}-curated")


def _years(board: Board) -> list[str]:
    return [sts.name for sts in board.found if sts.name.startswith("sts1")]


def _columns(board: Board) -> list[str]:
    there = {sts.name for sts in board.found}
    years = [YEARS] if _years(board) else []
    return [*years, *([STSB] if "stsb" in there else []), *([SICK] if "sick" in there else [])]


def _rows(board: Board) -> list[Row]:
    rows = []
    for name in board.scores:
        sets = {YEARS: _years(board), STSB: ["stsb"], SICK: ["sick"]}
        cells = {column: board.cell(name, sets[column]) for column in _columns(board)}
        rows.append(Row(name, cells))
    return rows


def _years_note(board: Board) -> str:
    years = ", ".join(_years(board)) or "none of them"
    return f"Our {YEARS} is the mean over {years}; the published one over five."


def verdicts(board: Board, variants: list[str]) -> list[str]:
    """Say of each variant whether leaving the thing out cost more than the seeds deviate."""
    full, *others = variants
    names = [sts.name for sts in board.found]
    best = board.cell(full, names)
    lines = []
    for name in others:
        cell = board.cell(name, names)
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
