"""What there was and what was drawn: the counts of a corpus, and what a reader must know of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilth.paraphrase.balance import TENTH, Draw
from tilth.paraphrase.keep import Kept, planed
from tilth.paraphrase.tags import CELLS, UNITS


def results_of(
    candidates: int, kept: Kept, drawn: Draw, *, chosen: bool, asked: tuple[int, int]
) -> dict[str, Any]:
    """Return what there was and what was drawn, as JSON values.

    Args:
        candidates: rows that were read.
        kept: what the filter left.
        drawn: the splits.
        chosen: whether the size was chosen here.
        asked: pairs asked for validation and for test.
    """
    splits = drawn.splits()
    counts = {name: pool.per_cell().tolist() for name, pool in splits.items()}
    had = kept.pool.per_cell()
    cells = [
        {
            "tags": cell.tags, "meaning": cell.meaning, "wording": cell.wording,
            "units": cell.units, "had": int(had[place]), "wanted": int(drawn.wanted[place]),
            **{name: count[place] for name, count in counts.items()},
        }
        for place, cell in enumerate(CELLS)
    ]  # fmt: skip
    return {
        "candidates": candidates,
        "kept": len(kept.pool),
        "left_out": {reason: rows for reason, rows in kept.left_out.items() if rows},
        "size": int(drawn.wanted.sum()),
        "drawn": {name: len(pool) for name, pool in splits.items()},
        "cells": cells,
        "plane": kept.plane.tolist(),
        "plane_drawn": planed(drawn.train.meaning, drawn.train.wording).tolist(),
        "notes": _notes(drawn, chosen=chosen, asked=asked),
    }


def _notes(drawn: Draw, *, chosen: bool, asked: tuple[int, int]) -> list[str]:
    """Return what a reader must know of the draw."""
    notes = []
    size, had = int(drawn.wanted.sum()), len(drawn.train)
    if chosen:
        notes.append(
            f"size was not given: {size:,} pairs are wanted, {size // UNITS:,} a unit, the most "
            "that leave at most a quarter of the cells that hold pairs short"
        )
    short = np.flatnonzero(drawn.available < drawn.wanted)
    if len(short):
        lack = drawn.available[short] / drawn.wanted[short]
        worst = int(short[np.argmin(lack)])
        notes.append(
            f"{len(short)} of {len(CELLS)} cells hold fewer pairs than they should give and were "
            f"taken whole, so {had:,} of {size:,} pairs are drawn; the worst is "
            f"{CELLS[worst].tags} with {drawn.available[worst]:,} of {drawn.wanted[worst]:,}: give "
            "more candidates"
        )
    for name, pool, wanted in zip(
        ("validation", "test"), (drawn.validation, drawn.test), asked, strict=True
    ):
        if len(pool) < wanted:
            notes.append(
                f"{name} has {len(pool):,} of {wanted:,} pairs: at most 1 in {TENTH} of the pairs "
                "kept, and of those of a cell, goes there"
            )
    return notes
