"""Columns of rows in memory: codes of labels, bins of numbers, and the rows that pass a filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BINS = 24  # of a histogram
Mask = NDArray[np.bool_]
Rows = NDArray[np.int32]


@dataclass(slots=True)
class CodedColumn:
    """A column of few distinct values: a number for each row, -1 for none.

    Attributes:
        none: stands for the rows without a value among the counts and in filters; empty: nothing.
    """

    none: str = ""
    values: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    rows: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def add(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the numbers of some rows; new values get the next ones."""
        coded = pc.dictionary_encode(column).combine_chunks()
        own = []
        for value in coded.dictionary.to_pylist():
            if value not in self.places:
                self.places[value] = len(self.values)
                self.values.append(value)
            own.append(self.places[value])
        indices = pc.fill_null(coded.indices, len(own)).to_numpy(zero_copy_only=False)
        numbers: NDArray[np.int32] = np.asarray([*own, -1], np.int32)[indices]
        return numbers  # (rows,)

    def is_value(self, value: str) -> Mask:
        """Return which rows have a value."""
        missing = -1 if self.none and value == self.none else -2
        mask: Mask = self.rows == self.places.get(value, missing)
        return mask  # (rows,)

    def counts(self, rows: Rows | slice) -> dict[str, int]:
        """Return value -> how many of some rows have it, the most frequent first."""
        values = [self.none, *self.values]
        found = np.bincount(self.rows[rows] + 1, minlength=len(values))
        if not self.none:
            found[0] = 0
        order = np.argsort(-found, kind="stable")
        return {values[place]: int(found[place]) for place in order.tolist() if found[place]}


class RowSelection:
    """The rows that pass all parts of a filter, or all but one."""

    def __init__(self, masks: Mapping[str, Mask], rows: int) -> None:
        self._masks, self._count = masks, rows
        self._rows: dict[str, Rows | slice] = {}

    def mask(self, without: str = "") -> Mask | None:
        """Return which rows pass; None: all."""
        masks = [mask for name, mask in self._masks.items() if name != without]
        return np.logical_and.reduce(masks) if masks else None

    def rows(self, without: str = "") -> Rows | slice:
        """Return the numbers of the rows that pass."""
        without = without if without in self._masks else ""
        if without not in self._rows:
            mask = self.mask(without)
            all_rows = slice(0, self._count)
            found = all_rows if mask is None else np.flatnonzero(mask).astype(np.int32)
            self._rows[without] = found
        return self._rows[without]

    def numbers(self) -> Rows:
        """Return the rows that pass all parts as an array."""
        rows = self.rows()
        return np.arange(self._count, dtype=np.int32) if isinstance(rows, slice) else rows


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of evenly wide bins between `low` and `high`."""

    low: float
    high: float
    counts: list[int]

    def edges(self, place: int) -> tuple[float, float]:
        """Return the least value of a bin, and of the next one."""
        edges = _edges(self.low, self.high, len(self.counts))
        return float(edges[place]), float(edges[place + 1])


@dataclass(frozen=True, slots=True)
class Binned:
    """The bin of each row's number, the last one for rows without; the ends of the bins."""

    low: float
    high: float
    bins: int
    places: NDArray[np.uint8]


def binned_of(values: NDArray[np.float32]) -> Binned | None:
    """Return the bins of numbers; None where no row has one."""
    found = _bins(values)
    if found is None:
        return None
    low, high, bins = found
    places = np.searchsorted(_edges(low, high, bins), values, "right") - 1
    places = np.where(np.isfinite(values), places.clip(0, bins - 1), bins)
    return Binned(low, high, bins, places.astype(np.uint8))


def _edges(low: float, high: float, bins: int) -> NDArray[np.float32]:
    """Return the ends of bins, (bins + 1,); a bin holds its least value, and not its most."""
    return np.linspace(low, high, bins + 1).astype(np.float32)


def _bins(values: NDArray[np.float32]) -> tuple[float, float, int] | None:
    """Return the ends of a histogram and its number of bins; None without values.

    The ends are 0 to 1, -1 to 1 or 0 to 100 where they fit; whole numbers lie amid their bins.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    if high - low >= 1 and not np.any(finite % 1):
        width = -(-int(high - low + 1) // BINS)
        bins = -(-int(high - low + 1) // width)
        return low - 0.5, low - 0.5 + bins * width, bins
    for least, most in ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0)):
        if least <= low and high <= most + 1e-4 and high > most / 2:
            return least, most, BINS
    return (low, high, BINS) if high > low else (low - 0.5, high + 0.5, BINS)
