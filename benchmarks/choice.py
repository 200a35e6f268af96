"""Simulates what `tilth grow` loses by choosing a way on few measured rows.

    python benchmarks/choice.py --out DIR... [--rows 12,30,60,150] [--ways 25] [--repeats 2000]
        [--default NAME]

DIR is the OUT of `few_labels.py --held-back 800`; its accuracies are taken for true ones. Each
way, and copies of ways up to --ways, is measured on as many rows as --rows says; it is right where
the default is wrong, or the reverse, on a quarter of the rows or more. That with the largest gain
over the default is kept if that is above some standard errors, else the default. Printed is how
much better the default is than what is kept, in points, the mean over cells and repeats.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from inputs import script_parser
from tilth.workflows.grow.arms import BY_DESCRIPTION, SELF_TRAINED

DISCORDANT = 25.0  # % of rows, at least, that one of two ways alone gets right
ERRORS = (0.0, 1.0, 2.0, 3.0)  # standard errors that a gain must exceed


def leads_of(file: Path, default: str) -> list[float]:
    """Return how far each other way of a cell that may be kept leads the default, if it has it."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [] if default not in found else [
        one["accuracy"] - found[default]["accuracy"] for name, one in found.items()
        if name not in (default, BY_DESCRIPTION)
    ]  # fmt: skip


def losses(leads: list[float], rows: int, ways: int, repeats: int, seed: int) -> list[float]:
    """Return what is lost on a cell for each number of standard errors."""
    rng = np.random.default_rng((seed, rows))
    lead = np.resize(leads, ways - 1)  # (ways,), of the true accuracies
    differ = np.maximum(DISCORDANT, np.abs(lead))
    drawn = 100 * rng.random((repeats, rows, len(lead)))
    better, worse = drawn < (differ + lead) / 2, drawn > 100 - (differ - lead) / 2
    gains = 100.0 * better - 100.0 * worse  # (repeats, rows, ways)
    mean = gains.mean(axis=1)
    error = gains.std(axis=1, ddof=1) / np.sqrt(rows)
    found = []
    for least in ERRORS:
        kept = np.where(mean > least * error, mean, -np.inf)
        chosen = np.where(np.isinf(kept).all(axis=1), 0.0, lead[kept.argmax(axis=1)])
        found.append(-float(chosen.mean()))
    return found


def main() -> int:
    """Print a table: measured rows, and the loss for each number of standard errors."""
    parser = script_parser(__doc__)
    parser.add_argument("--out", type=Path, nargs="+", required=True)
    parser.add_argument("--rows", default="12,30,60,150")
    parser.add_argument("--ways", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--default", default=SELF_TRAINED[0].name)
    asked: Any = parser.parse_args()
    files = [file for folder in asked.out for file in sorted(folder.glob("*/*-*.json"))]
    cells = [leads for file in files if (leads := leads_of(file, asked.default))]
    if not cells:
        parser.error(f"no cell of {', '.join(map(str, asked.out))} has {asked.default!r}")
    print(f"{len(cells)} of {len(files)} cells have the default, {asked.ways} ways\n")
    print("| measured rows |" + "".join(f" above {least:g} |" for least in ERRORS))
    print("| --- |" + " --- |" * len(ERRORS))
    for rows in map(int, asked.rows.split(",")):
        lost = [
            losses(cell, rows, asked.ways, asked.repeats, seed) for seed, cell in enumerate(cells)
        ]
        print(f"| {rows} |" + "".join(f" {loss:.1f} |" for loss in np.mean(lost, axis=0)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
