"""Draws balanced pairs from the cells, and splits that share no text, on arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.paraphrase.settings import CorpusSettings
from tilth.paraphrase.tags import CELLS, UNITS

TENTH = 10  # at most a tenth of the pairs goes to validation, and as much to test
_UNITS = np.array([cell.units for cell in CELLS], np.int64)


@dataclass(frozen=True, slots=True)
class PairPool:
    """Pairs that may be drawn; every array is (pairs,).

    Attributes:
        row: number among all candidates.
        cell: index in CELLS.
        source: hash of the source without case and punctuation.
        rewrite: likewise, of the rewrite.
        order: pseudo-random number derived from the texts; the smallest are drawn first.
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

    def select(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> PairPool:
        """Return some of the pairs."""
        return PairPool(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def per_cell(self) -> NDArray[np.int64]:
        """Return the number of pairs of each cell, (cells,)."""
        return np.bincount(self.cell, minlength=len(CELLS))

    def texts(self) -> NDArray[np.uint64]:
        """Return the hashes of all sources and rewrites, (2 * pairs,)."""
        return np.concatenate([self.source, self.rewrite])


@dataclass(frozen=True, slots=True)
class DrawnSplits:
    """The splits of a corpus, in writing order.

    Attributes:
        available: pairs of each cell that could go to training. # (cells,)
        wanted: training quota of each cell. # (cells,)
    """

    train: PairPool
    validation: PairPool
    test: PairPool
    available: NDArray[np.int64]
    wanted: NDArray[np.int64]

    def splits(self) -> dict[str, PairPool]:
        """Return the pairs of each split."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def quotas(pairs: int) -> NDArray[np.int64]:
    """Distribute pairs equally over the cells, twice as many where wording is below 10, (cells,).

    The quotas sum to `pairs`; cells of one width differ by one at most.
    """
    ends = np.cumsum(_UNITS) * pairs // UNITS
    return np.diff(ends, prepend=0)  # (cells,)


def largest_size(available: NDArray[np.int64]) -> int:
    """Return the pairs of the largest draw for which at most a quarter of the cells is short.

    Of the cells that hold any pair, the one at the lower quartile of pairs a unit is just enough.
    """
    held = np.sort(available[available > 0] / _UNITS[available > 0])
    if not len(held):
        return 0
    return UNITS * max(1, int(held[(len(held) - 1) // 4]))


def draw_splits(pool: PairPool, settings: CorpusSettings) -> DrawnSplits:
    """Draw the three splits of distinct pairs.

    Validation takes, from each cell, the pairs whose sources have the smallest keyed hashes, so
    that few sources serve many cells. Pairs that share a text with it are left out of the rest,
    from which test is drawn likewise, then training.
    """
    most = pool.per_cell() // TENTH
    by_source = random_keys(settings.seed, "paraphrase split", pool.source)
    left = np.arange(len(pool))
    held_out = []
    for pairs in (settings.validation, settings.test):
        wanted = np.minimum(quotas(min(pairs, len(pool) // TENTH)), most)
        some = pool.select(left)
        chosen = some.select(_smallest(some.cell, wanted, by_source[left], some.order))
        held_out.append(_in_draw_order(chosen))
        texts = np.unique(chosen.texts())
        left = left[~(np.isin(some.source, texts) | np.isin(some.rewrite, texts))]
    rest = pool.select(left)
    available = rest.per_cell()
    wanted = quotas(largest_size(available) if settings.size is None else settings.size)
    train = _in_draw_order(rest.select(_smallest(rest.cell, wanted, rest.order)))
    return DrawnSplits(train, held_out[0], held_out[1], available, wanted)


def _smallest(
    cell: NDArray[np.int16], wanted: NDArray[np.int64], *keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the indices of the wanted number of pairs of each cell with the smallest keys."""
    columns: Any = (*reversed(keys), cell)
    order = np.lexsort(columns)
    ranked = cell[order]
    rank = np.arange(len(order)) - np.searchsorted(ranked, ranked)  # rank within the cell
    return order[rank < wanted[ranked]]


def _in_draw_order(pool: PairPool) -> PairPool:
    return pool.select(np.lexsort((pool.row, pool.order)))


def distinct(pool: PairPool) -> PairPool:
    """Keep the first of pairs with the same two texts, by `order`, then by row."""
    order = np.lexsort((pool.row, pool.order, pool.rewrite, pool.source))
    source, rewrite = pool.source[order], pool.rewrite[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (source[1:] != source[:-1]) | (rewrite[1:] != rewrite[:-1])
    return pool.select(np.sort(order[first]))
