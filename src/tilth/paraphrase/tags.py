"""The 48 cells of meaning and wording, and their tags, spelt as the published rewriter spells them.

Reference: Ogasa, Kajiwara and Arase, section 3.3. Meaning above 70 in six steps of 5, wording up to
45 in eight: 0 to 10 in one step, for few pairs lie there, then steps of 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilth.errors import InputError

MEANINGS = (70, 75, 80, 85, 90, 95)  # lower bounds
WORDINGS = (0, 10, 15, 20, 25, 30, 35, 40)
STEP = 5
MOST_MEANING = 100
MOST_WORDING = 45
ROUNDING = 1e-3  # a cosine of 1 may come out as 1.0000001


@dataclass(frozen=True, order=True, slots=True)
class Cell:
    """One cell of the published grid.

    Args:
        meaning: Lower bound of its meaning, one of MEANINGS; that of 70 is itself outside.
        wording: Lower bound of its wording, one of WORDINGS.
    """

    meaning: int
    wording: int

    @property
    def meaning_end(self) -> int:
        """Upper bound of its meaning; itself inside only at 100."""
        return self.meaning + STEP

    @property
    def wording_end(self) -> int:
        """Upper bound of its wording; itself inside only at 45."""
        return self.wording + STEP * self.units

    @property
    def units(self) -> int:
        """How many shares of a balanced draw the cell takes: two where it is twice as wide."""
        return 2 if self.wording == 0 else 1

    @property
    def tags(self) -> str:
        """Both tags as they stand before a source text: ``<SIM95> <BLEU0_5>``."""
        return f"{_meaning_tag(self.meaning)} {_wording_tag(self.wording)}"

    def distance(self, meaning: float, wording: float) -> float:
        """How far measured values lie outside the cell, Euclidean; 0.0 inside and on its edges."""
        return math.hypot(
            max(self.meaning - meaning, 0.0, meaning - self.meaning_end),
            max(self.wording - wording, 0.0, wording - self.wording_end),
        )


def _meaning_tag(low: int) -> str:
    return f"<SIM{low}>"


def _wording_tag(low: int) -> str:
    return "<BLEU0_5>" if low == 0 else f"<BLEU{low}>"  # the published name of 0 to 10


CELLS = tuple(Cell(meaning, wording) for meaning in MEANINGS for wording in WORDINGS)
TAGS = tuple(map(_meaning_tag, MEANINGS)) + tuple(map(_wording_tag, WORDINGS))
UNITS = sum(cell.units for cell in CELLS)  # 54


def cells_of(meaning: ArrayLike, wording: ArrayLike) -> NDArray[np.int16]:
    """Find the cells of measured values.

    Args:
        meaning: Measured meanings, 0 to 100, shape (pairs,).
        wording: Measured wordings, 0 to 100, shape (pairs,).

    Returns:
        Places in CELLS, shape (pairs,); -1 where meaning is not above 70, wording is above 45, or
        either is NaN.
    """
    meanings, wordings = (
        np.asarray(meaning, dtype=np.float64),
        np.asarray(wording, dtype=np.float64),
    )
    row = np.searchsorted(MEANINGS, meanings, side="right") - 1  # 100 stays in the last
    column = np.searchsorted(WORDINGS, wordings, side="right") - 1
    inside = (meanings > MEANINGS[0]) & (meanings <= MOST_MEANING + ROUNDING)
    inside &= (wordings >= 0) & (wordings <= MOST_WORDING)
    return np.where(inside, row * len(WORDINGS) + column, -1).astype(np.int16)


def cell_of(meaning: float, wording: float) -> Cell | None:
    """Find the cell of two measured values; None where the pair is not kept."""
    place = int(cells_of([meaning], [wording])[0])
    return None if place < 0 else CELLS[place]


def asked_cell(meaning: float, wording: float) -> Cell:
    """Find the cell that a user asks for.

    Args:
        meaning: 70 to 100; 70 itself asks for the lowest cell.
        wording: 0 to 45.

    Raises:
        InputError: No number, or outside the grid.
    """
    row = _asked("meaning", meaning, MEANINGS, MOST_MEANING)
    return Cell(row, _asked("wording", wording, WORDINGS, MOST_WORDING))


def near(wording: float, cell: Cell) -> bool:
    """Whether a measured wording lies in the cell's wording bin or in a neighbour.

    Beside 40 to 45 lies 45 to 50, which has no tag.
    """
    bounds = (*WORDINGS, MOST_WORDING, MOST_WORDING + STEP)
    place = WORDINGS.index(cell.wording)
    return bounds[max(place - 1, 0)] <= wording < bounds[place + 2]


def _asked(name: str, value: float, lows: tuple[int, ...], most: int) -> int:
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not number or not lows[0] <= value <= most:
        raise InputError(f"{name} {value!r}: must be a number from {lows[0]} to {most}.")
    return lows[int(np.searchsorted(lows, value, side="right")) - 1]
