"""How alike two sentences are in their words, and keys that find the pairs worth comparing.

A sentence is the set of its words and of its pairs of neighbouring words; two are as alike as the
Jaccard similarity of their sets. Case, punctuation and which digits stand in numbers do not count.
With the threshold of 0.8, sentences of 13 words or more may differ in one word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.hashing import random_keys

_SPACE = ord(" ")
# Odd, hence with an inverse modulo 2^64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_BYTE_VALUES = random_keys(0, "byte of a word", np.arange(256, dtype=np.uint64))
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


def hash_words(plain: pa.Array) -> Words:
    """Return the words of texts as `plain` has them: parted by single spaces."""
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


SIMILARITY = 0.8
# MinHash-LSH (Broder 1997; Leskovec et al. 2020, ch. 3): a row of a band agrees with the
# probability s, the similarity; one of 6 bands of 4 rows does with 1 - (1 - s^4)^6:
# s = 0.4: 0.14, 0.6: 0.57, 0.7: 0.81, 0.8: 0.95, 0.9: 0.9984, 1: 1. Pairs found are compared.
BANDS = 6
_ROWS = 4
NEAR = tuple(f"near_{band}" for band in range(BANDS))
_SHINGLES_AT_ONCE = 1 << 16
# A member is compared as one number: which text or pair of a block it belongs to, then its hash.
_OWNER_BITS = 18
# Multiply-shift hashing (Dietzfelbinger et al. 1997): the high half of member * odd + addend.
_FACTORS = random_keys(0, "min hash factor", np.arange(BANDS * _ROWS, dtype=np.uint64)) | np.uint64(
    1
)
_ADDENDS = random_keys(0, "min hash addend", np.arange(BANDS * _ROWS, dtype=np.uint64))


def near_keys(texts: pa.Array) -> NDArray[np.uint64]:
    """Return the keys of normalized texts; two similar texts probably share one in a column.

    Example:
        >>> keys = near_keys(pa.array(["page 12 of the book", "page 13 of the book"]))
        >>> bool((keys[0] == keys[1]).all())
        True
    """
    shingles, starts = hash_shingles(texts)
    keys = np.empty((len(texts), BANDS), np.uint64)
    cuts = np.searchsorted(starts, np.arange(0, len(shingles), _SHINGLES_AT_ONCE), "right") - 1
    cuts = np.unique(np.append(cuts, len(texts)))
    for begin, end in pairwise(cuts.tolist()):
        part = shingles[starts[begin] : starts[end]]
        keys[begin:end] = _bands(part, starts[begin:end] - starts[begin])
    return keys  # (texts, bands)


def hash_shingles(texts: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the words and word pairs of plain texts, with repeats, and where each text's begin.

    An empty text has one member of its own kind.
    """
    words = hash_words(texts)
    counts = np.diff(words.starts)
    starts = np.append(0, np.cumsum(np.maximum(2 * counts - 1, 1)))
    shingles = np.zeros(starts[-1], np.uint64)
    # Words stand at even places of a text, the pair of each with the next in between.
    text = np.repeat(np.arange(len(counts)), counts)
    place = starts[:-1][text] + 2 * (np.arange(len(text)) - words.starts[:-1][text])
    shingles[place] = words.hashes
    inner = text[1:] == text[:-1]
    pairs = words.hashes[:-1] * np.uint64(3) + np.uint64(2) * (
        words.hashes[1:] ^ (words.hashes[1:] >> np.uint64(31))
    )
    shingles[place[:-1][inner] + 1] = pairs[inner]
    return shingles, starts


def jaccard(texts: pa.Array, one: NDArray[np.int64], two: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how alike the plain texts of some pairs are, from 0 to 1.

    Members are compared by 46 bits of their hashes: two different shingles of a pair of texts of 20
    words pass for one in one pair of tens of billions. Memory does not grow with the pairs.

    Args:
        texts: plain.
        one: places of the first texts of the pairs. # (pairs,)
        two: and of the second. # (pairs,)
    """
    found = np.empty(len(one))
    at_once = 1 << (_OWNER_BITS - 1)  # pairs, of twice as many texts at most
    for start in range(0, len(one), at_once):
        some = slice(start, start + at_once)
        used = np.zeros(len(texts), np.bool_)
        used[one[some]] = used[two[some]] = True
        places = np.cumsum(used) - 1
        few = texts.filter(pa.array(used))
        found[some] = _jaccard(few, places[one[some]], places[two[some]])
    return found  # (pairs,)


def _jaccard(
    texts: pa.Array, one: NDArray[np.int64], two: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return what `jaccard` does, of at most 2^_OWNER_BITS texts and pairs."""
    assert max(len(texts), len(one)) <= 1 << _OWNER_BITS
    hash_bits = np.uint64(64 - _OWNER_BITS)
    shingles, starts = hash_shingles(texts)
    shingles >>= np.uint64(_OWNER_BITS)
    shingles |= np.repeat(np.arange(len(texts), dtype=np.uint64), np.diff(starts)) << hash_bits
    shingles.sort()
    shingles = shingles[np.append(True, shingles[1:] != shingles[:-1])]
    places = (shingles >> hash_bits).astype(np.int64)
    starts = np.searchsorted(places, np.arange(len(texts) + 1))
    sizes = np.diff(starts)
    pairs = np.concatenate([_shingles_of(shingles, starts, side) for side in (one, two)])
    pairs.sort()
    same = pairs[1:][pairs[1:] == pairs[:-1]] >> hash_bits
    common = np.bincount(same.astype(np.int64), minlength=len(one))
    return common / (sizes[one] + sizes[two] - common)  # (pairs,)


def _shingles_of(
    shingles: NDArray[np.uint64], starts: NDArray[np.int64], side: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the shingles of one side of pairs, marked with the pair in place of the text."""
    hash_bits = np.uint64(64 - _OWNER_BITS)
    counts = starts[side + 1] - starts[side]
    pair = np.repeat(np.arange(len(side), dtype=np.uint64), counts)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = shingles[np.repeat(starts[side], counts) + within]
    marked: NDArray[np.uint64] = (found & ((np.uint64(1) << hash_bits) - np.uint64(1))) | (
        pair << hash_bits
    )
    return marked


def _bands(shingles: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    keys = np.empty((len(starts), BANDS), np.uint64)
    for band in range(BANDS):
        key = np.full(len(starts), band, np.uint64)
        for row in range(band * _ROWS, (band + 1) * _ROWS):
            hashed = ((shingles * _FACTORS[row] + _ADDENDS[row]) >> np.uint64(32)).astype(np.uint32)
            least = np.minimum.reduceat(hashed, starts)
            key = (key ^ least) * np.uint64(0xFF51AFD7ED558CCD)
            key ^= key >> np.uint64(33)
        keys[:, band] = key
    return keys
