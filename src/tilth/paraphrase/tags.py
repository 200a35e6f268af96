"""Defines the 48 cells of meaning and wording, and their control tags as published.

Reference: Ogasa, Kajiwara and Arase, section 3.3. Meaning above 70 in six steps of 5; wording up to
45 in eight: 0 to 10 in one step because few pairs lie there, then steps of 5.
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
        meaning: lower bound, one of MEANINGS; 70 itself is outside.
        wording: lower bound, one of WORDINGS.
    """

    meaning: int
    wording: int

    @property
    def meaning_end(self) -> int:
        """Return the upper bound of the meaning; only 100 itself is inside."""
        return self.meaning + STEP

    @property
    def wording_end(self) -> int:
        """Return the upper bound of the wording; only 45 itself is inside."""
        return self.wording + STEP * self.units

    @property
    def units(self) -> int:
        """Return the shares of a balanced draw: two for a cell that is twice as wide."""
        return 2 if self.wording == 0 else 1

    @property
    def tags(self) -> str:
        """Return both tags as they precede a source text: ``<SIM95> <BLEU0_5>``."""
        return f"{_meaning_tag(self.meaning)} {_wording_tag(self.wording)}"

    @property
    def words(self) -> str:
        """Return both ranges in words."""
        return (
            f"meaning {self.meaning} to {self.meaning_end}, "
            f"wording {self.wording} to {self.wording_end}"
        )

    def distance(self, meaning: float, wording: float) -> float:
        """Return the Euclidean distance of measured values; 0.0 inside and on the edges."""
        return math.hypot(
            max(self.meaning - meaning, 0.0, meaning - self.meaning_end),
            max(self.wording - wording, 0.0, wording - self.wording_end),
        )

    def is_near(self, wording: float) -> bool:
        """Return whether a measured wording lies in this wording bin or in a neighbouring one.

        The neighbour above 40 to 45 is 45 to 50, which has no tag.
        """
        bounds = (*WORDINGS, MOST_WORDING, MOST_WORDING + STEP)
        index = WORDINGS.index(self.wording)
        return bounds[max(index - 1, 0)] <= wording < bounds[index + 2]


def _meaning_tag(low: int) -> str:
    return f"<SIM{low}>"


def _wording_tag(low: int) -> str:
    return "<BLEU0_5>" if low == 0 else f"<BLEU{low}>"  # the published name of 0 to 10


CELLS = tuple(Cell(meaning, wording) for meaning in MEANINGS for wording in WORDINGS)
TAGS = tuple(map(_meaning_tag, MEANINGS)) + tuple(map(_wording_tag, WORDINGS))
UNITS = sum(cell.units for cell in CELLS)  # 54


def cells_of(meaning: ArrayLike, wording: ArrayLike) -> NDArray[np.int16]:
    """Return the indices in CELLS of measured values, -1 outside the grid or for NaN, (pairs,).

    The grid holds a meaning above 70 and a wording up to 45.
    """
    meanings, wordings = np.asarray(meaning, np.float64), np.asarray(wording, np.float64)
    row = np.searchsorted(MEANINGS, meanings, side="right") - 1  # 100 stays in the last
    column = np.searchsorted(WORDINGS, wordings, side="right") - 1
    inside = (meanings > MEANINGS[0]) & (meanings <= MOST_MEANING + ROUNDING)
    inside &= (wordings >= 0) & (wordings <= MOST_WORDING)
    return np.where(inside, row * len(WORDINGS) + column, -1).astype(np.int16)


def cell_of(meaning: float, wording: float) -> Cell | None:
    """Return the cell of two measured values; None outside the grid."""
    index = int(cells_of([meaning], [wording])[0])
    return None if index < 0 else CELLS[index]


def asked_cell(meaning: float, wording: float) -> Cell:
    """Return the cell of a requested meaning (70 to 100) and wording (0 to 45).

    A meaning of 70 requests the lowest cell.
    """
    row = _lower_bound("meaning", meaning, MEANINGS, MOST_MEANING)
    return Cell(row, _lower_bound("wording", wording, WORDINGS, MOST_WORDING))


def _lower_bound(name: str, value: float, lows: tuple[int, ...], most: int) -> int:
    number = isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    if not number or not lows[0] <= value <= most:
        raise InputError(f"{name} {value!r}: must be a number from {lows[0]} to {most}.")
    return lows[int(np.searchsorted(lows, value, side="right")) - 1]
