"""Draws as many pairs from every cell, and splits that share no text: arrays only."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.paraphrase.tags import CELLS, UNITS

TENTH = 10  # of what there is, at most this part goes to validation, and as much to test
_UNITS = np.array([cell.units for cell in CELLS], np.int64)


@dataclass(frozen=True, slots=True)
class Pool:
    """Pairs that may be drawn; every array has one value for each, (pairs,).

    Attributes:
        row: its number among all candidates.
        cell: place in CELLS.
        source: hash of its source, the same for texts that differ in case or punctuation alone.
        rewrite: likewise, of its rewrite.
        order: pseudo-random number that follows from its texts; the smallest are drawn first.
        meaning: measured, 0 to 100.
        wording: measured, 0 to 100.
    """

    row: NDArray[np.int64]
    cell: NDArray[np.int16]
    source: NDArray[np.uint64]
    rewrite: NDArray[np.uint64]
    order: NDArray[np.uint64]
    meaning: NDArray[np.float32]
    wording: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.row)

    def at(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Pool:
        """Return some of the pairs."""
        return Pool(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def per_cell(self) -> NDArray[np.int64]:
        """Return how many pairs each cell holds."""  # (cells,)
        return np.bincount(self.cell, minlength=len(CELLS))

    def texts(self) -> NDArray[np.uint64]:
        """Return the hashes of all its texts, sources and rewrites."""
        return np.concatenate([self.source, self.rewrite])  # (2 * pairs,)


@dataclass(frozen=True, slots=True)
class Draw:
    """What was drawn, in the order in which it is written.

    Attributes:
        train: to train on.
        validation: to stop with.
        test: to measure with.
        available: pairs of each cell that could go to training. # (cells,)
        wanted: pairs that training wanted of each cell. # (cells,)
    """

    train: Pool
    validation: Pool
    test: Pool
    available: NDArray[np.int64]
    wanted: NDArray[np.int64]

    def splits(self) -> dict[str, Pool]:
        """Return the pairs of each split."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def quotas(pairs: int) -> NDArray[np.int64]:
    """Share pairs out over the cells: as many for each, twice as many where wording is below 10.

    The shares sum to `pairs`; cells of one width differ by one at most.
    """
    ends = np.cumsum(_UNITS) * pairs // UNITS
    return np.diff(ends, prepend=0)  # (cells,)


def largest_size(available: NDArray[np.int64]) -> int:
    """Return the pairs of the largest draw for which a quarter of the cells, at most, is short.

    Of the cells that hold any pair, the one at the lower quartile of pairs a unit is just enough.

    Args:
        available: pairs of each cell. # (cells,)
    """
    held = np.sort(available[available > 0] / _UNITS[available > 0])
    if not len(held):
        return 0
    return UNITS * max(1, int(held[(len(held) - 1) // 4]))


def draw(pool: Pool, size: int | None, validation: int, test: int, *, seed: int) -> Draw:
    """Draw the three splits.

    Validation takes, of each cell, the pairs whose sources have the smallest keyed hashes; so
    few sources serve many cells. What shares a text with it is left out of the rest, from which
    test is drawn likewise, then training.

    Args:
        pool: without duplicate pairs.
        size: pairs to train on; None: `largest_size` of what is left for training.
        validation: pairs, at most a tenth of the pool and of each cell.
        test: likewise.
        seed: of the hashes.
    """
    most = pool.per_cell() // TENTH
    by_source = random_keys(seed, "paraphrase split", pool.source)
    left = np.arange(len(pool))
    parts = []
    for pairs in (validation, test):
        wanted = np.minimum(quotas(min(pairs, len(pool) // TENTH)), most)
        some = pool.at(left)
        chosen = some.at(_smallest(some.cell, wanted, by_source[left], some.order))
        parts.append(chosen)
        left = left[~_shares_text(some, chosen)]
    rest = pool.at(left)
    available = rest.per_cell()
    wanted = quotas(largest_size(available) if size is None else size)
    train = rest.at(_smallest(rest.cell, wanted, rest.order))
    return Draw(_shuffled(train), _shuffled(parts[0]), _shuffled(parts[1]), available, wanted)


def _smallest(
    cell: NDArray[np.int16], wanted: NDArray[np.int64], *keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the places of so many pairs of each cell, those with the smallest keys."""
    columns: Any = (*reversed(keys), cell)
    order = np.lexsort(columns)
    ranked = cell[order]
    rank = np.arange(len(order)) - np.searchsorted(ranked, ranked)  # within its cell
    return order[rank < wanted[ranked]]


def _shares_text(pool: Pool, others: Pool) -> NDArray[np.bool_]:
    texts = np.unique(others.texts())
    shared: NDArray[np.bool_] = np.isin(pool.source, texts) | np.isin(pool.rewrite, texts)
    return shared  # (pairs,)


def _shuffled(pool: Pool) -> Pool:
    return pool.at(np.lexsort((pool.row, pool.order)))


def distinct(pool: Pool) -> Pool:
    """Leave out the pairs whose texts another one has, in the order of `order`, then of rows."""
    order = np.lexsort((pool.row, pool.order, pool.rewrite, pool.source))
    source, rewrite = pool.source[order], pool.rewrite[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (source[1:] != source[:-1]) | (rewrite[1:] != rewrite[:-1])
    return pool.at(np.sort(order[first]))
