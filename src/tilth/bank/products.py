"""Products of codes with many queries, as small integers where the processor is made for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.bank.codes import Codec, CodedQueries, Floats

# Sizes that matrix products like: query columns are padded to a multiple.
_COLUMNS = 16


class Products:
    """Multiplies codes with queries rounded to 8 bits.

    A value is a similarity without the query's offset, divided by the query's step.

    Attributes:
        steps: of the queries. # (queries,)
        padding: columns beyond the queries.
    """

    def __init__(self, codec: Codec, queries: CodedQueries) -> None:
        self._codec = codec
        largest = np.abs(queries.turned).max(axis=1, initial=0)
        self.steps: Floats = np.maximum(largest, 1e-12) / np.float32(127)
        values = np.rint(queries.turned / self.steps[:, None]).astype(np.int8)
        self.padding = -len(values) % _COLUMNS
        values = np.pad(values, ((0, self.padding), (0, 0)))  # (columns, dimensions)
        cuts = [values.shape[1]] if codec.format == "int8" else [codec.fours, values.shape[1]]
        pieces = np.split(values, cuts[:-1], axis=1)
        self._queries = [torch.from_numpy(piece.T.copy()) for piece in pieces]
        # Elsewhere products of small integers are slower than those of floats.
        self._whole = torch.backends.cpu.get_cpu_capability().startswith("AVX512")

    def __call__(self, codes: NDArray[np.uint8], scales: Floats) -> tuple[NDArray[Any], Floats]:
        """Return what is to be multiplied to be the values.

        Args:
            codes: as stored. # (rows, bytes)
            scales: of the rows. # (rows, groups)

        Returns:
            int32 or float32, columns beyond the queries filled up, # (rows, columns); and the
            factors of the rows, # (rows,)
        """
        products = [
            self._product(torch.from_numpy(group), queries)
            for group, queries in zip(self._codec.groups(codes), self._queries, strict=True)
        ]
        if len(products) == 1:
            return products[0].numpy(), np.ascontiguousarray(scales[:, 0])
        high, low = (torch.from_numpy(scales[:, place : place + 1] / 2) for place in range(2))
        total = products[0] * high + products[1] * low  # (rows, columns)
        return total.numpy(), np.ones(len(codes), np.float32)

    def _product(self, codes: Tensor, queries: Tensor) -> Tensor:
        if self._whole:
            return torch._int_mm(codes, queries)
        # Exact as well: sums of up to a thousand such products fit into a float's 24 bits.
        return codes.float() @ queries.float()
