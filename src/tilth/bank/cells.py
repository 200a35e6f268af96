"""Cells: directions that many vectors are divided among, found by k-means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.bank.codes import Floats

# As FAISS trains its inverted lists.
ITERATIONS = 10
_PRODUCTS_AT_ONCE = 1 << 24


class Cells:
    """Says which cell a vector lies in: the one whose direction has the largest product with it.

    Where the processor is made for small integers, products are of values rounded to 8 bits: two
    and a half times as fast, and one vector in thirty goes to another cell, whose product is less
    by 0.001.

    Args:
        directions: L2-normalised. # (cells, dimension)
    """

    def __init__(self, directions: Floats) -> None:
        self._whole = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        self._rows = max(1, _PRODUCTS_AT_ONCE // len(directions))
        values = torch.from_numpy(directions)
        if self._whole:
            # One step for all: products are compared between cells.
            step = values.abs().max().clamp(min=1e-12) / 127
            values = (values / step).round().to(torch.int8)
        self._directions = values.T.contiguous()  # (dimension, cells)

    def nearest(self, vectors: Floats) -> NDArray[np.int64]:
        """Return the cell of each vector, (vectors,); of equal ones the first."""
        found = np.empty(len(vectors), np.int64)
        for start in range(0, len(vectors), self._rows):
            some = torch.from_numpy(vectors[start : start + self._rows])
            if self._whole:
                steps = some.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
                products = torch._int_mm((some / steps).round().to(torch.int8), self._directions)
            else:
                products = some @ self._directions  # (rows, cells)
            # numpy's is ten times as fast as torch's.
            found[start : start + self._rows] = products.numpy().argmax(axis=1)
        return found


def find_directions(
    vectors: Floats,
    count: int,
    *,
    seed: int,
    advance: Callable[[int], Any] = lambda _: None,
) -> Floats:
    """Divide vectors among cells by k-means over directions.

    Args:
        vectors: a sample. # (rows, dimension)
        count: of cells, at most as many as there are rows.
        seed: of the first directions and of those that take the place of empty ones.
        advance: called with 1 after each of `ITERATIONS` rounds.

    Returns:
        L2-normalised, # (count, dimension)
    """
    generator = np.random.default_rng(seed)
    first = np.sort(generator.choice(len(vectors), count, replace=False))
    directions = _unit(vectors[first])
    for _ in range(ITERATIONS):
        owners = Cells(directions).nearest(vectors)
        sums = torch.zeros(directions.shape)
        sums.index_add_(0, torch.from_numpy(owners), torch.from_numpy(vectors))
        empty = np.bincount(owners, minlength=count) == 0
        directions = _unit(sums.numpy())
        # Where nothing lies, a vector drawn anew, most likely of a large cell, makes one.
        directions[empty] = _unit(vectors[generator.integers(len(vectors), size=empty.sum())])
        advance(1)
    return directions


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
