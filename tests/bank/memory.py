"""Shards in memory, as a search sees them, and the loops that it is held against."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilth.bank.quantization import Codes, Floats, Quantizer, Signs


@dataclass
class Shard:
    codes: np.ndarray
    scales: np.ndarray
    residual: np.ndarray | None
    first: int
    mask: np.ndarray | None = None
    signs: Signs | None = None

    @property
    def sentences(self) -> int:
        return len(self.codes)


def cut(codes: Codes, sizes: Sequence[int], *, signs: bool = False) -> list[Any]:
    """Return the codes as shards of some sizes."""
    ends = np.cumsum(sizes).tolist()
    assert ends[-1] == len(codes.codes)
    shards = []
    for size, end in zip(sizes, ends, strict=True):
        some = slice(end - size, end)
        residual = None if codes.residual is None else codes.residual[some]
        own = Codes(codes.codes[some], codes.scales[some], residual)
        made = Signs.of(own) if signs else None
        shards.append(Shard(own.codes, own.scales, residual, end - size, signs=made))
    return shards


def turned_codes(quantizer: Quantizer, codes: Codes) -> tuple[np.ndarray, np.ndarray]:
    """Return integers, (rows, dimensions), and the scale of each of them, in loops."""
    scales = codes.scales.astype(np.float64)
    if quantizer.format == "int8":
        return codes.codes.view(np.int8).astype(np.int64), scales
    found = np.zeros((len(codes.codes), quantizer.dims_4bit + quantizer.dims_2bit), np.int64)
    half, quarter = quantizer.dims_4bit // 2, quantizer.dims_2bit // 4
    for place in range(quantizer.dims_4bit):
        found[:, place] = 2 * ((codes.codes[:, place % half] >> 4 * (place // half)) % 16) - 15.0
    for place in range(quantizer.dims_2bit):
        byte = codes.codes[:, half + place % quarter]
        found[:, quantizer.dims_4bit + place] = 2 * ((byte >> 2 * (place // quarter)) % 4) - 3.0
    return found, np.repeat(scales / 2, [quantizer.dims_4bit, quantizer.dims_2bit], axis=1)


def similarities(quantizer: Quantizer, codes: Codes, queries: Floats, *, many: bool) -> np.ndarray:
    """Return the similarities with rounded queries, computed in integers, (queries, rows)."""
    coded = quantizer.queries(queries)
    values, most = coded.values.astype(np.int64), np.abs(coded.values).max(axis=1)
    if many:
        steps = np.abs(coded.rotated).max(axis=1) / np.float32(127)
        values, most = np.rint(coded.rotated / steps[:, None]).astype(np.int64), 127
    steps = np.abs(coded.rotated.astype(np.float64)).max(axis=1) / most
    integers, scales = turned_codes(quantizer, codes)
    if quantizer.format == "int8":
        found = (values @ integers.T) * scales[:, 0]
    else:
        cut = quantizer.dims_4bit
        found = (values[:, :cut] @ integers[:, :cut].T) * scales[:, :1].T
        found = found + (values[:, cut:] @ integers[:, cut:].T) * scales[:, -1:].T
    return found * steps[:, None] + coded.offsets[:, None]


def expected(found: np.ndarray, best: int, mask: np.ndarray | None = None) -> np.ndarray:
    """Return the places of the best of each row, ties by place; -1 behind the last."""
    answer = np.full((len(found), best), -1)
    for query, row in enumerate(found):
        places = np.arange(len(row)) if mask is None else np.flatnonzero(mask)
        order = sorted(places.tolist(), key=lambda place: (-row[place], place))[:best]
        answer[query, : len(order)] = order
    return answer
