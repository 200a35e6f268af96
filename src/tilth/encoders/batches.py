"""Batches of pairs of like lengths: less padding, the same pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from sentence_transformers.base.sampler import DefaultBatchSampler

from tilth.encoders.pairs import TEXT_A, TEXT_B

if TYPE_CHECKING:
    from datasets import Dataset

_BATCHES_SORTED = 64  # batches of random pairs that are sorted by length and cut anew


def characters(pairs: Dataset) -> NDArray[np.int64]:
    """Return the characters of each pair's longer text; a batch is padded to its longest."""
    table = pairs.with_format("arrow")[:]
    columns = [pc.utf8_length(table[name]).to_numpy() for name in (TEXT_A, TEXT_B)]
    longer: NDArray[np.int64] = np.maximum(*columns).astype(np.int64)  # (pairs,)
    return longer


def length_grouped(
    lengths: NDArray[np.int64], batch: int, *, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Return one epoch's batches, in random order, each of pairs of like lengths.

    Pairs are shuffled; of every 64 batches' worth the pairs are sorted by length and cut. So a
    batch is random among pairs of its length, and the only short batch is the last one cut.

    Args:
        lengths: of the pairs. # (pairs,)
        batch: pairs in a batch.
        seed: of the run.
        epoch: from 0; each is shuffled otherwise.

    Returns:
        Row numbers, each pair once. # each (batch,)
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    step = batch * _BATCHES_SORTED
    batches = []
    for start in range(0, len(order), step):
        chunk = order[start : start + step]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + batch] for i in range(0, len(chunk), batch)]
    return [batches[place] for place in rng.permutation(len(batches))]


class LengthGrouped(DefaultBatchSampler):
    """Gives sentence-transformers' trainer the batches of `length_grouped`."""

    epoch = 0

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **rest: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, **rest)
        self._lengths = characters(dataset)

    def __iter__(self) -> Iterator[list[int]]:
        for rows in length_grouped(
            self._lengths, self.batch_size, seed=self.seed, epoch=self.epoch
        ):
            yield rows.tolist()

    def __len__(self) -> int:
        return -(-len(self._lengths) // self.batch_size)
