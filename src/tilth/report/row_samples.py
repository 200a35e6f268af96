"""Which rows are shown to be read: drawn by the seed, never picked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_EVERY = np.uint64(0xFFFFFFFFFFFFFFFF)


def row_keys(first: int, rows: int, seed: int) -> NDArray[np.uint64]:
    """Return one random-looking number per row number (splitmix64), no two rows the same.

    A row's number depends on the seed and its place in the run alone, so a run that grows keeps
    the draw of its old rows as far as the new ones leave room.
    """
    with np.errstate(over="ignore"):
        state = np.arange(first, first + rows, dtype=np.uint64)
        state += np.uint64(seed % 2**64) * np.uint64(0xD1342543DE82EF95)
        state = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


class Draw:
    """Keeps, for every group, the rows with the `size` smallest keys."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows: dict[Hashable, list[tuple[int, Any]]] = {}
        self._limit: dict[Hashable, int] = {}

    def wanted(
        self, groups: Sequence[Hashable], codes: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Return the places of the rows that may be drawn, so that only these are read.

        Args:
            groups: the group of each code.
            codes: one code per row.
            keys: one key per row.
        """
        limits = np.array([self._limit.get(group, int(_EVERY)) for group in groups], np.uint64)
        places = np.flatnonzero(keys <= limits[codes]) if len(groups) else np.zeros(0, np.int64)
        # A group that is new has no limit yet: keep its smallest keys of this batch only.
        order = places[np.lexsort((keys[places], codes[places]))]
        starts = np.searchsorted(codes[order], codes[order], side="left")
        return np.asarray(order[np.arange(len(order)) - starts < self.size], dtype=np.int64)

    def add(self, group: Hashable, key: int, row: Any) -> None:
        """Offer one row; it stays while its key is among the smallest of its group."""
        rows = self._rows.setdefault(group, [])
        rows.append((key, row))
        if len(rows) >= 2 * self.size:
            self._cut(group)

    def rows(self, group: Hashable) -> list[Any]:
        """Return the drawn rows of a group, smallest key first."""
        if group not in self._rows:
            return []
        self._cut(group)
        return [row for _, row in self._rows[group]]

    def groups(self) -> list[Hashable]:
        """Return the groups in order of their first row."""
        return list(self._rows)

    def _cut(self, group: Hashable) -> None:
        rows = self._rows[group]
        rows.sort(key=lambda pair: pair[0])
        del rows[self.size :]
        if len(rows) == self.size:
            self._limit[group] = rows[-1][0]
