"""Words as numbers: 64-bit hashes of all words of many texts at once, without a loop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.keys import keyed

_SPACE = ord(" ")
# Odd, hence with an inverse modulo 2^64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BYTE_VALUES = keyed(0, "byte of a word", np.arange(256, dtype=np.uint64))
# All digits are one, as for CCNet's duplicates (Wenzek et al. 2019, arXiv 1911.00359).
_BYTE_VALUES[ord("0") : ord("9") + 1] = _BYTE_VALUES[ord("0")]
_BYTES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Words:
    """The words of texts.

    Attributes:
        hashes: of all texts, one after the other; words that differ in digits alone share theirs.
        starts: where each text's begin, and the end. # (texts + 1,)
    """

    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]


def words_of(plain: pa.Array) -> Words:
    """Return the words of texts as `tilth.data.plain.plain` has them: parted by single spaces."""
    plain = plain.cast(pa.large_string())
    offsets = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset :][: len(plain) + 1]
    data = plain.buffers()[2]
    text = np.frombuffer(b"" if data is None else data, np.uint8)[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    # Some texts at a time: what is in the cache is not fetched again for each step.
    cuts = np.searchsorted(offsets, np.arange(0, len(text), _BYTES_AT_ONCE))
    cuts = np.unique(np.append(cuts, [0, len(plain)]))
    hashes, counts = [np.empty(0, np.uint64)], [np.zeros(1, np.int64)]
    for begin, end in pairwise(cuts.tolist()):
        part = text[offsets[begin] : offsets[end]]
        found, count = _hashes(part, offsets[begin : end + 1] - offsets[begin])
        hashes.append(found)
        counts.append(count)
    return Words(np.concatenate(hashes), np.cumsum(np.concatenate(counts)))


def _hashes(
    text: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes of the words and how many each text has.

    A hash is the sum of value(byte) * step^place over the bytes of the word: a difference of two
    sums over the text from its start, shifted back to the place of the word.
    """
    full = np.diff(offsets) > 0  # (texts,)
    space = text == _SPACE
    first, last = ~space, ~space
    first[1:] &= space[:-1]
    last[:-1] &= space[1:]
    first[offsets[:-1][full]] = last[offsets[1:][full] - 1] = True
    starts, stops = np.flatnonzero(first), np.flatnonzero(last) + 1
    powers, inverses = _powers(max(len(text), _BYTES_AT_ONCE).bit_length())
    sums = np.zeros(len(text) + 1, np.uint64)
    np.cumsum(_BYTE_VALUES[text] * powers[: len(text)], out=sums[1:])
    hashes = (sums[stops] - sums[starts]) * inverses[starts]
    # The low bits of such a sum follow from the low bits of its terms alone.
    hashes = (hashes ^ (hashes >> np.uint64(32))) * _STEP
    return hashes ^ (hashes >> np.uint64(29)), np.diff(np.searchsorted(starts, offsets))


@cache
def _powers(bits: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the powers of the step from 0, and those of its inverse."""  # (2^bits,) each
    inverse = np.uint64(pow(int(_STEP), -1, 1 << 64))
    ups, downs = (np.full(1 << bits, base, np.uint64) for base in (_STEP, inverse))
    ups[0] = downs[0] = 1
    return np.cumprod(ups), np.cumprod(downs)
