"""The compiled kernel that quantizes rotated vectors to 8 bits and four more."""

from __future__ import annotations

import numba
import numpy as np

from tilth.object_code import FAST

# A sum of products rounds as in NumPy: no two operations become one.
_exact = numba.njit(**{**FAST, "fastmath": False})
_fast = numba.njit(**FAST)


@_fast
def _product(one, two):  # type: ignore[no-untyped-def]
    total = 0.0
    for place in range(one.shape[0]):
        total += np.float64(one[place]) * two[place]
    return total


@_exact
def encode_int8(  # type: ignore[no-untyped-def]
    vectors, rotation, rotated, largest, error, levels, codes, scales, residual
):
    """Quantize as 64-bit products that are rounded to 32 bits, from products of 32 bits.

    What an error of the 32-bit products could change is computed anew in 64 bits.

    Args:
        vectors: float32, centred. # (rows, dimension)
        rotation: float64, transposed. # (rotated, dimension)
        rotated: float32 products. # (rows, rotated)
        largest: float32 absolute value of each row of them. # (rows,)
        error: the largest of a product.
        levels: int16 work space. # (2, rotated)
        codes: uint8 output. # (rows, rotated)
        scales: float32 output. # (rows, 1)
        residual: uint8 output. # (rows, rotated / 2)
    """
    width = rotated.shape[1]
    half = width // 2
    shift = np.float32(16 * 128 + 8)
    for row in range(rotated.shape[0]):
        vector, values = vectors[row], rotated[row]
        near = largest[row] - np.float32(2 * error)
        most = np.float32(0)
        for place in range(width):
            if abs(values[place]) >= near:
                most = max(most, abs(np.float32(_product(vector, rotation[place]))))
        scale = most / np.float32(127)
        factor = np.float32(16) / max(scale, np.float32(1e-30))
        scales[row, 0] = scale
        # The rounding of levels, which are below 4,096, is less than a thousandth.
        unsure = min(np.float32(error) * factor + np.float32(0.001), np.float32(64))
        for place in range(width):
            level = values[place] * factor + shift
            levels[0, place] = np.int16(level - unsure)
            levels[1, place] = np.int16(level + unsure)
        for place in range(width):
            if levels[0, place] != levels[1, place]:
                product = np.float32(_product(vector, rotation[place]))
                levels[0, place] = np.int16(product * factor + shift)
        for place in range(width):
            codes[row, place] = np.uint8((levels[0, place] >> 4) - 128)
        for place in range(half):
            upper = levels[0, half + place] & 15
            residual[row, place] = np.uint8((levels[0, place] & 15) | (upper << 4))
