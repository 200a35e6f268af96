"""Batches of pairs of like lengths: less padding, the same pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BATCHES_SORTED = 64  # batches of random pairs that are sorted by length and cut anew


def length_grouped(
    lengths: NDArray[np.int64], batch: int, *, seed: int, epoch: int, short_last: bool = False
) -> list[NDArray[np.int64]]:
    """Return one epoch's batches, in random order, each of pairs of like lengths.

    Pairs are shuffled; of every 64 batches' worth the pairs are sorted by length and cut. So a
    batch is random among pairs of its length, and the only short batch is the last one cut.

    Args:
        lengths: of the pairs. # (pairs,)
        batch: pairs in a batch.
        seed: of the run.
        epoch: from 0; each is shuffled otherwise.
        short_last: whether the short batch is the last of the epoch.

    Returns:
        Row numbers, each pair once. # each (batch,)
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    step = batch * _BATCHES_SORTED
    end = len(order) // batch * batch if short_last else len(order)
    batches = []
    for start in range(0, end, step):
        chunk = order[start : min(start + step, end)]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += [chunk[i : i + batch] for i in range(0, len(chunk), batch)]
    rest = [order[end:]] if end < len(order) else []
    return [batches[place] for place in rng.permutation(len(batches))] + rest
