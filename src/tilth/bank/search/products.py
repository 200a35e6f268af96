"""Multiply codes with many queries, in integers where the processor is fast at them.

Separate from the search, which does without torch for few queries.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.bank.quantization import CodedQueries, Quantizer

# Query columns are padded to a multiple: integer products are faster on such shapes.
_COLUMNS = 16


class Products:
    """Multiplies codes with queries rounded to 8 bits.

    A value is a similarity without the query's offset, divided by the query's step.

    Attributes:
        padding: columns beyond the queries.
    """

    def __init__(self, quantizer: Quantizer, queries: CodedQueries) -> None:
        self._codec = quantizer
        largest = np.abs(queries.rotated).max(axis=1, initial=0)
        steps = np.maximum(largest, 1e-12) / np.float32(127)
        values = np.rint(queries.rotated / steps[:, None]).astype(np.int8)
        self.padding = -len(values) % _COLUMNS
        values = np.pad(values, ((0, self.padding), (0, 0)))  # (columns, dimensions)
        cuts = (
            [values.shape[1]]
            if quantizer.format == "int8"
            else [quantizer.dims_4bit, values.shape[1]]
        )
        pieces = np.split(values, cuts[:-1], axis=1)
        self._queries = [torch.from_numpy(piece.T.copy()) for piece in pieces]
        self._room: list[Tensor] = []
        # Elsewhere products of small integers are slower than those of floats.
        self._whole = torch.backends.cpu.get_cpu_capability().startswith("AVX512")

    def __call__(self, codes: NDArray[np.uint8]) -> list[NDArray[np.int32]]:
        """Return int32 products per group, (rows, columns); the next call overwrites them."""
        groups = self._codec.groups(codes)
        # Allocating memory costs more than the products.
        if not self._room or len(self._room[0]) < len(codes):
            shape = (len(codes), self._queries[0].shape[1])
            self._room = [torch.empty(shape, dtype=torch.int32) for _ in groups]
        for group, queries, room in zip(groups, self._queries, self._room, strict=True):
            multiply = _in_integers if self._whole else _in_floats
            multiply(torch.from_numpy(group), queries, room[: len(codes)])
        return [room[: len(codes)].numpy() for room in self._room]


def _in_integers(codes: Tensor, queries: Tensor, products: Tensor) -> None:
    torch._int_mm(codes, queries, out=products)


def _in_floats(codes: Tensor, queries: Tensor, products: Tensor) -> None:
    """Multiply in floats: sums of a thousand such products fit into their 24 bits."""
    products.copy_(codes.float() @ queries.float())
