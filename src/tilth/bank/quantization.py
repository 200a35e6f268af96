"""Quantize vectors to bytes in two formats, code queries for them, and decode vectors.

Vectors are centred and rotated first. After a random rotation one scale per sentence suits all
dimensions (recall of int8 on static embeddings: 0.993 instead of 0.986); after a rotation onto the
principal components, the last ones need fewer bits or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tilth.bank.settings import GROUP, LANES, LEVEL_BITS, Format
from tilth.errors import TilthError
from tilth.limits import FORMAT, SEED
from tilth.object_code import Compiled

Floats = NDArray[np.float32]
# 4-bit and 2-bit levels of a normal variable with the least squared error (Max 1960, table II).
_STEP_4, _STEP_2 = 0.3352, 0.9957
_KEPT_4, _KEPT_2 = 1 - 0.01154, 1 - 0.1188
# Bytes of codes per sentence, without two scales of four bytes.
_COMPACT_BYTES = 64
_RESIDUAL_LEVELS = 16
# Fits into the cache from step to step.
_ROWS_AT_ONCE = 1024
_LARGEST_INT32 = 2**31 - 1
# Signs are compared by words, of a group of sentences at once.
_WORD = 64
# A sum of signs is off by this share of the query's length, if values are normal: one deviation.
_DEVIATION = np.float32(np.sqrt(1 - 2 / np.pi))
# More vectors than these are worth the kernel.
_MANY = 256
# A 32-bit product of vectors of unit length is this close; of 15 million products the
# largest error was 2e-7, the mean 1e-8.
_ERROR = 1e-6

encode_int8 = Compiled("tilth.bank.quantization_kernels", "encode_int8")


@dataclass(frozen=True, slots=True)
class Codes:
    """Quantized vectors of sentences.

    Attributes:
        codes: what a scan reads. # (sentences, bytes)
        scales: step width of the codes. # (sentences, groups)
        residual: int8 only: four more bits per dimension for rescoring.
            # (sentences, dimensions / 2)
    """

    codes: NDArray[np.uint8]
    scales: Floats
    residual: NDArray[np.uint8] | None

    @classmethod
    def joined(cls, parts: Sequence[Codes]) -> Codes:
        """Concatenate the codes of several parts."""
        residual = [part.residual for part in parts if part.residual is not None]
        return cls(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate(residual) if residual else None,
        )


@dataclass(frozen=True, slots=True)
class CodedQueries:
    """Queries as integers, to be multiplied with codes.

    Attributes:
        rotated: unrounded. # (queries, dimensions)
        values: `rotated` divided by the step width of each query, rounded. # (queries, dimensions)
        offsets: similarity with the bank's mean, which centring removes. # (queries,)
    """

    rotated: Floats
    values: NDArray[np.int16]
    offsets: Floats

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.values)

    def __getitem__(self, some: slice) -> CodedQueries:
        """Return some queries; coded alone, they may be rounded otherwise."""
        return CodedQueries(self.rotated[some], self.values[some], self.offsets[some])


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Quantizer of a bank's vectors, fitted when the bank is built.

    Attributes:
        format: `int8` (one byte per dimension to scan, half a byte to rescore) or `compact` (at
            most 72 bytes per sentence, rescored by encoding the candidates again).
        mean: mean vector of a sample. # (dimension,)
        rotation: orthonormal columns, padded with zero columns. # (dimension, rotated)
        dims_4bit: leading rotated dimensions with 4 bits; 0 for int8.
        dims_2bit: rotated dimensions after them with 2 bits; 0 for int8.
    """

    format: Format
    mean: Floats
    rotation: Floats
    dims_4bit: int
    dims_2bit: int

    @property
    def dimension(self) -> int:
        """Return the dimension of the vectors."""
        return len(self.mean)

    @property
    def row(self) -> tuple[int, int]:
        """Return the number of bytes of codes, and of scales, that a scan reads per sentence."""
        if self.format == "int8":
            return self.rotation.shape[1], 1
        return self.dims_4bit // 2 + self.dims_2bit // 4, 2

    def encode(self, vectors: Floats) -> Codes:
        """Quantize vectors.

        Args:
            vectors: L2-normalised. # (sentences, dimension)
        """
        if self.format == "int8" and len(vectors) >= _MANY:
            return self._encode_many(vectors)
        starts = range(0, max(len(vectors), 1), _ROWS_AT_ONCE)
        return Codes.joined([self._encode(vectors[at : at + _ROWS_AT_ONCE]) for at in starts])

    def _encode_many(self, vectors: Floats) -> Codes:
        """Return what `_encode` returns of int8, in a third of the time."""
        count, width = len(vectors), self.rotation.shape[1]
        codes = np.empty((count, width), np.uint8)
        scales = np.empty((count, 1), np.float32)
        residual = np.empty((count, width // 2), np.uint8)
        transposed = np.ascontiguousarray(self.rotation.T, np.float64)
        levels = np.empty((2, width), np.int16)
        for start in range(0, count, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            centred = vectors[rows] - self.mean
            rotated = centred @ self.rotation
            largest = np.abs(rotated).max(axis=1, initial=0)
            encode_int8(
                centred, transposed, rotated, largest, _ERROR, levels, codes[rows], scales[rows],
                residual[rows],
            )  # fmt: skip
        return Codes(codes, scales, residual)

    def _encode(self, vectors: Floats) -> Codes:
        # In 64 bits, then rounded: the last bits of a 32-bit product depend on the thread count
        # and the row, and equal sentences must have equal bytes.
        product = (vectors - self.mean).astype(np.float64) @ self.rotation.astype(np.float64)
        rotated = product.astype(np.float32)  # (sentences, rotated)
        return _encode_int8(rotated) if self.format == "int8" else self._encode_compact(rotated)

    def _encode_compact(self, rotated: Floats) -> Codes:
        # Columns beyond the dimensions are padding and do not count in the deviation.
        cut = self.dims_4bit
        groups = (
            (rotated[:, :cut], min(cut, self.dimension), _STEP_4, 8),
            (rotated[:, cut:], min(self.dims_2bit, self.dimension - cut), _STEP_2, 2),
        )
        packed, scales = [], []
        for values, used, step, half in groups:
            squares = (values * values).sum(axis=1, keepdims=True)
            deviation = np.sqrt(squares / np.float32(max(used, 1)))
            scaled = values / np.maximum(deviation * step, 1e-12)
            levels = np.clip(np.floor(scaled), -half, half - 1) + np.float32(0.5)
            # As in RaBitQ (Gao and Long 2024): keep the length along the true vector, so that the
            # similarity with any query is unbiased.
            along = (values * levels).sum(axis=1)
            length = squares[:, 0]
            scales.append(np.divide(length, along, out=np.zeros_like(along), where=along > 0))
            packed.append(_pack((levels + (half - 0.5)).astype(np.uint8), 4 if half == 8 else 2))
        stacked = np.stack(scales, axis=1).astype(np.float32)  # (sentences, 2)
        return Codes(np.concatenate(packed, axis=1), stacked, None)

    def groups(self, codes: NDArray[np.uint8]) -> list[NDArray[np.int8]]:
        """Return a matrix of small integers for each column of scales.

        A centred value is the integer times the scale (compact: half the scale, as its levels lie
        between integers).
        """
        if self.format == "int8":
            return [codes.view(np.int8)]
        cut = self.dims_4bit // 2
        dims_4bit = _unpack(codes[:, :cut], 4).view(np.int8) * np.int8(2) - np.int8(15)
        dims_2bit = _unpack(codes[:, cut:], 2).view(np.int8) * np.int8(2) - np.int8(3)
        return [dims_4bit, dims_2bit]

    def decode(self, codes: Codes) -> Floats:
        """Return approximate vectors, (sentences, dimension)."""
        scales = codes.scales.astype(np.float32)
        if self.format == "int8":
            rotated = codes.codes.view(np.int8).astype(np.float32)
            if codes.residual is not None:
                finer = _unpack(codes.residual, 4) - np.float32(7.5)
                rotated += finer / np.float32(_RESIDUAL_LEVELS)
            rotated *= scales
        else:
            dims_4bit, dims_2bit = self.groups(codes.codes)
            parts = [dims_4bit * (scales[:, :1] / 2), dims_2bit * (scales[:, 1:] / 2)]
            rotated = np.concatenate(parts, axis=1)
        vectors: Floats = rotated @ self.rotation.T + self.mean
        return vectors

    def queries(self, vectors: Floats) -> CodedQueries:
        """Code queries for the scan.

        Args:
            vectors: L2-normalised. # (queries, dimension)
        """
        rotated = vectors @ self.rotation  # (queries, rotated)
        # The sum over all dimensions must fit in 32 bits.
        most = min(2**15 - 1, _LARGEST_INT32 // (128 * max(rotated.shape[1], 1)))
        steps = np.maximum(np.abs(rotated).max(axis=1, initial=0), 1e-12) / most
        values = np.rint(rotated / steps[:, None]).astype(np.int16)
        return CodedQueries(rotated, values, vectors @ self.mean)

    def save(self) -> bytes:
        """Return the deterministic bytes of a safetensors file."""
        # No metadata: safetensors writes it in another order each time.
        return bytes(save({"mean": self.mean, "turn": np.ascontiguousarray(self.rotation)}))

    @classmethod
    def load(cls, path: Path, format: Format, dims_4bit: int, dims_2bit: int) -> Quantizer:  # noqa: A002
        """Read a quantizer from its file."""
        try:
            found = load_file(path)
            return cls(format, found["mean"], found["turn"], dims_4bit, dims_2bit)
        except (OSError, SafetensorError, KeyError) as error:
            raise TilthError(f"{path}: cannot be read ({error}): restore it from a copy") from error


@dataclass(frozen=True, slots=True)
class Signs:
    """Signs of int8 codes: which sentences may be near is known from an eighth of the bytes.

    Attributes:
        bits: words of one bit per dimension, word by word of each group of GROUP sentences.
            # (groups, words * GROUP)
        scales: a sum of a query's values with these signs, times the scale, estimates their
            product with the sentence without bias. # (sentences, 1)

    Reference:
        RaBitQ: Gao and Long 2024, arXiv:2405.12497, section 3.
    """

    bits: NDArray[np.uint64]
    scales: Floats

    @classmethod
    def of(cls, codes: Codes) -> Signs:
        """Return the signs of int8 codes."""
        count, width = codes.codes.shape
        words = -(-width // _WORD)
        bits = np.zeros((-(-count // GROUP) * GROUP, words), np.uint64)
        scales = np.empty((count, 1), np.float32)
        for start in range(0, count, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            some = codes.codes[rows].view(np.int8)
            bits[rows][: len(some)] = _words(some >= 0)
            values = some.astype(np.float32)
            squares = np.einsum("rd,rd->r", values, values)
            along = np.abs(values) @ np.ones(width, np.float32)
            scales[rows, 0] = squares / np.maximum(along, 1) * codes.scales[rows, 0]
        grouped = bits.reshape(-1, GROUP, words).transpose(0, 2, 1)
        return cls(np.ascontiguousarray(grouped).reshape(len(grouped), -1), scales)


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return rows of bits as words, the first bit the lowest; more bits are 0."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    packed = np.pad(packed, [*[(0, 0)] * (bits.ndim - 1), (0, -packed.shape[-1] % 8)])
    return packed.view("<u8").astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class SignQueries:
    """Queries of four bits, to be compared with signs.

    By its signs, a sentence may reach what is wanted if scale * (sum + shift) >= least.

    Attributes:
        planes: words of each bit of the values; the last bit stands for -8.
            # (queries, words * bits)
        shifts: float32. # (queries,)
        least: float32. # (queries,)
    """

    planes: NDArray[np.uint64]
    shifts: Floats
    least: Floats

    @classmethod
    def of(cls, queries: CodedQueries, least: Floats, deviations: float) -> SignQueries:
        """Code queries.

        Args:
            least: wanted products of `queries.values` and sentences. # (queries,)
            deviations: standard deviations that an estimate may be too low by.
        """
        values = queries.values.astype(np.float32)
        most = 2 ** (LEVEL_BITS - 1) - 1
        steps = np.maximum(np.abs(values).max(axis=1, initial=0), 1) / np.float32(most)
        levels = np.rint(values / steps[:, None]).astype(np.int8)  # (queries, dimensions)
        planes = _words((levels[:, None] >> np.arange(LEVEL_BITS, dtype=np.int8)[:, None]) & 1 > 0)
        lengths = np.linalg.norm(values, axis=1)
        # With signs for bits, a sum is twice that of the set bits less that of all.
        margins = np.float32(deviations) * _DEVIATION * lengths / steps
        shifts = (margins - levels.sum(axis=1, dtype=np.int32)) / np.float32(2)
        words = np.ascontiguousarray(planes.transpose(0, 2, 1)).reshape(len(values), -1)
        return cls(words, shifts, least / (2 * steps))


def fit_quantizer(format: Format, sample: Floats, *, seed: int = 0) -> Quantizer:  # noqa: A002
    """Fit a quantizer to a sample.

    Args:
        sample: L2-normalised; some ten thousand are enough. # (sentences, dimension)

    Reference:
        Random rotations before scalar quantisation: Gao and Long 2024, arXiv:2405.12497; bits by
        variance: reverse water-filling (Cover and Thomas, 2nd edition, section 10.3.3).
    """
    FORMAT.check("format", format)
    SEED.check("seed", seed)
    dimension = sample.shape[1]
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    generator = np.random.default_rng(seed)
    if format == "int8":
        width = -(-dimension // LANES) * LANES
        rotation = np.zeros((dimension, width), np.float32)
        rotation[:, :dimension] = _random_rotation(dimension, generator)
        return Quantizer(format, mean, rotation, 0, 0)
    centred = (sample - mean).astype(np.float64)
    variances, axes = np.linalg.eigh(centred.T @ centred / max(len(sample), 1))
    variances, axes = variances[::-1], axes[:, ::-1]
    # Errors are weighted by the queries' variance, taken as that of the sentences.
    dims_4bit, dims_2bit = _share_bits(np.maximum(variances, 0) ** 2)
    width = dims_4bit + dims_2bit
    rotation = np.zeros((dimension, width), np.float64)
    # Within a group the axes are rotated once more, so that one scale suits all of it.
    for first, count in ((0, dims_4bit), (dims_4bit, dims_2bit)):
        last = min(first + count, dimension)
        if last > first:
            rotated = axes[:, first:last] @ _random_rotation(last - first, generator)
            rotation[:, first:last] = rotated
    return Quantizer(format, mean, rotation.astype(np.float32), dims_4bit, dims_2bit)


def _random_rotation(dimension: int, generator: np.random.Generator) -> NDArray[np.float64]:
    rotation, upper = np.linalg.qr(generator.standard_normal((dimension, dimension)))
    rotated: NDArray[np.float64] = rotation * np.sign(np.diag(upper))
    return rotated


def _share_bits(weights: NDArray[np.float64]) -> tuple[int, int]:
    """Return the numbers of leading 4-bit and following 2-bit dimensions with the least loss."""
    best, chosen = np.inf, (0, 0)
    for high in range(0, _COMPACT_BYTES + 1, LANES):
        # Sentences without variance have a code too: empty arrays cannot be mapped.
        for low in range(0 if high else LANES, _COMPACT_BYTES - high + 1, LANES):
            dims_4bit, dims_2bit = 2 * high, 4 * low
            kept = _KEPT_4 * weights[:dims_4bit].sum()
            loss = weights.sum() - (kept + _KEPT_2 * weights[dims_4bit:][:dims_2bit].sum())
            if loss < best * (1 - 1e-9):  # the fewest bytes among equals
                best, chosen = loss, (dims_4bit, dims_2bit)
    return chosen


def _encode_int8(rotated: Floats) -> Codes:
    largest = np.abs(rotated).max(axis=1, initial=0)  # (sentences,)
    scales = (largest / np.float32(127))[:, None]
    steps = np.maximum(scales, 1e-30)
    # In sixteenths of a step, above 0 so that truncation rounds down: the last four bits are the
    # residual, those before them the code, rounded to the nearest.
    shift = np.float32(_RESIDUAL_LEVELS * 128 + _RESIDUAL_LEVELS / 2)
    levels = (rotated * (_RESIDUAL_LEVELS / steps) + shift).astype(np.int16)
    codes = (levels >> 4) - np.int16(128)
    rest = (levels & np.int16(_RESIDUAL_LEVELS - 1)).astype(np.uint8)
    return Codes(codes.astype(np.int8).view(np.uint8), scales, _pack(rest, 4))


def _pack(levels: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Pack 8 / bits levels into a byte, the first part of a row in the lowest bits."""
    parts = 8 // bits
    width = levels.shape[1] // parts
    packed = np.zeros((len(levels), width), np.uint8)
    for part in range(parts):
        packed |= levels[:, part * width : (part + 1) * width] << np.uint8(part * bits)
    return packed


def _unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Undo `_pack`."""
    mask = np.uint8(2**bits - 1)
    parts = [(packed >> np.uint8(part * bits)) & mask for part in range(8 // bits)]
    return np.concatenate(parts, axis=1)
