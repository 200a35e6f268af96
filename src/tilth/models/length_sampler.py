"""Batches of rows of similar length, in an order determined by seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

_BATCHES_SORTED = 64  # batches of shuffled rows that are sorted by length and cut anew


def length_grouped(
    lengths: NDArray[np.int64], batch: int, *, seed: int, epoch: int, short_last: bool = False
) -> list[NDArray[np.int64]]:
    """Return one epoch's batches of row indices in random order, each of similar lengths.

    Rows are shuffled; within every 64 batches' worth they are sorted by length and cut: a batch is
    random among rows of its length, and at most one is short. With `short_last` that one comes last
    and holds randomly chosen rows of any length. # each (batch,)
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    end = len(order) // batch * batch if short_last else len(order)
    step = batch * _BATCHES_SORTED
    batches = []
    for start in range(0, end, step):
        chunk = order[start : min(start + step, end)]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + batch] for i in range(0, len(chunk), batch)]
    rest = [order[end:]] if end < len(order) else []
    return [batches[index] for index in rng.permutation(len(batches))] + rest


class LengthBatchSampler(Sampler[Any]):
    """Yields `length_grouped` batches, in an order of seed and epoch alone, even when resumed."""

    def __init__(self, lengths: NDArray[np.int64], batch: int, seed: int) -> None:
        self._lengths, self._batch, self._seed, self.epoch = lengths, batch, seed, 0

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch)

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch, from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        for rows in length_grouped(self._lengths, self._batch, seed=self._seed, epoch=self.epoch):
            yield rows.tolist()


class LengthSampler(LengthBatchSampler):
    """Yields rows for a data loader that cuts batches itself: the short batch comes last."""

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[Any]:
        batches = length_grouped(
            self._lengths, self._batch, seed=self._seed, epoch=self.epoch, short_last=True
        )
        return chain.from_iterable(rows.tolist() for rows in batches)
