"""Tokenised pairs on disk, and batches of pairs of like length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

PADDED_TO = 8  # lengths are padded to a multiple of this: few shapes are fast shapes


def save(path: Path, pairs: list[tuple[list[int], list[int]]]) -> None:
    """Write (source ids, target ids) pairs."""
    flat = [np.array(side, dtype=np.uint16) for pair in pairs for side in pair]
    lengths = np.array([len(side) for side in flat], dtype=np.int64)
    np.savez(path, tokens=np.concatenate(flat), offsets=np.concatenate([[0], lengths.cumsum()]))


@dataclass(frozen=True)
class Batch:
    """Pairs, padded on the right.

    Attributes:
        inputs: Source ids, shape (pairs, source length); `mask` tells which are real.
        shifted: Target ids that begin with `<s>`, shape (pairs, target length).
        used: Places of the flattened targets that are real.
        targets: Their ids.
        weights: Their weights, all one.
    """

    inputs: Tensor
    mask: Tensor
    shifted: Tensor
    used: Tensor
    targets: Tensor
    weights: Tensor


class Mix:
    """Pairs of one or several files.

    Args:
        work: the files' folder.
        names: of the files, each with the share of its pairs that one pass takes, where not all:
            `translate:0.25`.
    """

    def __init__(self, work: Path, *names: str) -> None:
        split = [name.partition(":") for name in names]
        held = [np.load(work / f"{name}.npz") for name, _, _ in split]
        self.tokens = np.concatenate([file["tokens"] for file in held]).astype(np.int64)
        starts = np.cumsum([0, *(len(file["tokens"]) for file in held)])
        bounds = [file["offsets"] + start for file, start in zip(held, starts, strict=False)]
        self.begins = np.concatenate([b[:-1] for b in bounds]).reshape(-1, 2)
        self.ends = np.concatenate([b[1:] for b in bounds]).reshape(-1, 2)
        self.lengths = self.ends - self.begins  # (pairs, 2)
        counts = [len(file["offsets"]) // 2 for file in held]
        self.shares = np.repeat([float(share or 1) for _, _, share in split], counts)  # (pairs,)

    def batches(self, budget: int, seed: int) -> Iterator[np.ndarray]:
        """Yield one pass of batches of at most `budget` padded tokens, in random order."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(np.flatnonzero(rng.random(len(self.shares)) < self.shares))
        padded = -(-self.lengths // PADDED_TO) * PADDED_TO
        # The sort is stable: pairs of one length meet others from pass to pass.
        order = order[np.lexsort((padded[order, 0], padded[order, 1]))]
        found, begin = [], 0
        widths = padded[order]
        while begin < len(order):
            end, widest = begin, widths[begin].copy()
            while end < len(order):
                grown = np.maximum(widest, widths[end])
                if end > begin and int(grown.sum()) * (end - begin + 1) > budget:
                    break
                widest, end = grown, end + 1
            found.append(order[begin:end])
            begin = end
        for place in rng.permutation(len(found)):
            yield found[place]

    def collate(self, rows: np.ndarray, begin: int = 1, pad: int = 0) -> Batch:
        """Pad pairs into one batch."""
        sides = []
        for side in (0, 1):
            lengths = self.lengths[rows, side]
            width = -(-int(lengths.max()) // PADDED_TO) * PADDED_TO
            out = np.full((len(rows), width), pad)
            for place, row in enumerate(rows):
                ids = self.tokens[self.begins[row, side] : self.ends[row, side]]
                out[place, : len(ids)] = ids
            sides.append((out, np.arange(width)[None] < lengths[:, None]))
        (inputs, mask), (targets, real) = sides
        shifted = np.concatenate([np.full((len(rows), 1), begin), targets[:, :-1]], axis=1)
        used = torch.from_numpy(np.flatnonzero(real))
        return Batch(
            inputs=torch.from_numpy(inputs),
            mask=torch.from_numpy(mask),
            shifted=torch.from_numpy(shifted),
            used=used,
            targets=torch.from_numpy(targets.ravel()[real.ravel()]),
            weights=torch.ones(len(used)),
        )
