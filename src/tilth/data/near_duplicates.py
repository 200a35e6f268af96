"""Find near duplicates: texts that share most of their words and pairs of neighbouring words.

Similarity is the Jaccard similarity of the sets of words and word pairs, without case, punctuation
and the values of digits. With a threshold of 0.8, texts of 13 words or more may differ in one word.

MinHash keys find pairs among any number of texts. Among the rows of one label pairs are found
exactly, by an inverted index with prefix filtering (Chaudhuri et al. 2006, Bayardo et al. 2007):
two sets with a Jaccard similarity of t share one of their n - ceil(t n) + 1 rarest members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.data.normalize import SPACELESS, bytes_of, normalize_texts
from tilth.object_code import Compiled

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_hash_words = Compiled("tilth.data.text_kernels", "hash_words")
_min_hashes = Compiled("tilth.data.text_kernels", "min_hashes")
_STEP = np.array([0x9E3779B97F4A7C15], np.uint64)
_BYTE_VALUES = random_keys(0, "byte of a word", np.arange(256, dtype=np.uint64))
# All digits are one, as for CCNet's duplicates (Wenzek et al. 2019, arXiv 1911.00359).
_BYTE_VALUES[ord("0") : ord("9") + 1] = _BYTE_VALUES[ord("0")]
# Threshold of banks and of decontamination.
SIMILARITY = 0.8
# MinHash-LSH (Broder 1997; Leskovec et al. 2020, ch. 3): a row of a band agrees with the
# probability s, the similarity; one of 6 bands of 4 rows does with 1 - (1 - s^4)^6:
# s = 0.4: 0.14, 0.6: 0.57, 0.7: 0.81, 0.8: 0.95, 0.9: 0.9984, 1: 1. Pairs found are compared.
BANDS = 6
_ROWS = 4
NEAR = tuple(f"near_{band}" for band in range(BANDS))
# Multiply-shift hashing (Dietzfelbinger et al. 1997): the high half of hash * odd + addend.
_FACTORS = random_keys(0, "min hash factor", np.arange(BANDS * _ROWS, dtype=np.uint64)) | np.uint64(
    1
)
_ADDENDS = random_keys(0, "min hash addend", np.arange(BANDS * _ROWS, dtype=np.uint64))
_SPACELESS_BYTE = 0xE0  # first byte in UTF-8 of the characters of SPACELESS, at least
_PAIRS_AT_ONCE = 1 << 17
# Columns of the sparse matrix of shingles; two of them side by side fit into 63 bits.
_SHINGLE_BITS = 60
# Keeps ceil(0.8 * 5) at 4 although 0.8 * 5 may come out a little larger.
_ROUNDING = 1e-9


def hash_words(texts: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash the words, separated by single spaces, of normalized texts.

    Returns:
        The hashes of all words; those that differ in digits alone share theirs. # (words,)
        Where the words of each text begin, and the end. # (texts + 1,)
    """
    data, starts = bytes_of(texts)
    hashes = np.empty((len(data) + len(texts) + 1) // 2, np.uint64)
    first = np.empty(len(starts), np.int64)
    _hash_words(data, starts, _BYTE_VALUES, _STEP, hashes, first)
    return hashes[: first[-1]], first


def _spaced(texts: pa.Array) -> pa.Array:
    """Put spaces around the characters of SPACELESS: each counts as a word."""
    data = texts.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < _SPACELESS_BYTE:
        return texts
    if not pc.any(pc.match_substring_regex(texts, SPACELESS)).as_py():
        return texts
    return pc.utf8_trim(pc.replace_substring_regex(texts, SPACELESS, r" \0 "), " ")


def hash_shingles(texts: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash the words and word pairs of normalized texts; return hashes and starts of texts.

    Repeats are kept. An empty text has one shingle of its own kind.
    """
    words, first = hash_words(_spaced(texts))
    counts = np.diff(first)
    starts = np.append(0, np.cumsum(np.maximum(2 * counts - 1, 1)))
    shingles = np.zeros(starts[-1], np.uint64)
    # Words stand at even places of a text, the pair of each with the next in between.
    text = np.repeat(np.arange(len(counts)), counts)
    place = starts[:-1][text] + 2 * (np.arange(len(text)) - first[:-1][text])
    shingles[place] = words
    inner = text[1:] == text[:-1]
    pairs = words[:-1] * np.uint64(3) + np.uint64(2) * (words[1:] ^ (words[1:] >> np.uint64(31)))
    shingles[place[:-1][inner] + 1] = pairs[inner]
    return shingles, starts


def near_keys(texts: pa.Array) -> NDArray[np.uint64]:
    """Return MinHash keys; two similar normalized texts probably share one in a column.

    Example:
        >>> keys = near_keys(pa.array(["page 12 of the book", "page 13 of the book"]))
        >>> bool((keys[0] == keys[1]).all())
        True
    """
    words, first = hash_words(_spaced(texts))
    keys = np.empty((len(texts), BANDS), np.uint64)
    least = np.empty(len(_FACTORS), np.uint32)
    _min_hashes(words, first, _FACTORS, _ADDENDS, least, keys)
    return keys  # (texts, bands)


def shingle(texts: pa.Array) -> csr_array:
    """Return the distinct shingles (60 bits of hash) of normalized texts as a sparse matrix."""
    from scipy.sparse import csr_array

    hashes, starts = hash_shingles(texts)
    columns = (hashes >> np.uint64(64 - _SHINGLE_BITS)).astype(np.int64)
    shape = (len(texts), 1 << _SHINGLE_BITS)
    found = csr_array((np.ones(len(columns), np.int32), columns, starts), shape=shape)
    found.sum_duplicates()
    return found  # (texts, shingles)


def jaccard(texts: pa.Array, one: NDArray[np.int64], two: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard similarities of pairs of normalized texts.

    Args:
        one: indices of the first texts of the pairs. # (pairs,)
        two: indices of the second texts. # (pairs,)
    """
    used, places = np.unique(np.concatenate([one, two]), return_inverse=True)
    one, two = np.split(places, 2)
    shingles = shingle(texts.take(pa.array(used)))
    sizes = np.diff(shingles.indptr)
    common = np.empty(len(one), np.int64)
    for start in range(0, len(one), _PAIRS_AT_ONCE):
        some = slice(start, start + _PAIRS_AT_ONCE)
        common[some] = np.diff(shingles[one[some]].multiply(shingles[two[some]]).indptr)
    similarities: NDArray[np.float64] = common / (sizes[one] + sizes[two] - common)
    return similarities  # (pairs,)


def near_duplicates(
    texts: pa.Array,
    columns: tuple[NDArray[np.int64], ...],
    labels: NDArray[np.int64],
    threshold: float,
) -> NDArray[np.bool_]:
    """Find the near duplicates of earlier rows that are not near duplicates themselves.

    Two rows are near duplicates if they have one label and their texts, in each column, have a
    Jaccard similarity of at least `threshold`.

    Args:
        texts: the distinct texts.
        columns: codes into `texts` for each text column. # each (rows,)
        labels: codes of the labels. # (rows,)
        threshold: above 0, at most 1; the lower, the slower.

    Returns:
        Whether each row is a near duplicate. # (rows,)
    """
    shingles = shingle(normalize_texts(texts))
    found = np.zeros(len(labels), np.bool_)
    order = np.argsort(labels, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) > 1:
            found[rows] = _find(shingles, tuple(codes[rows] for codes in columns), threshold)
    return found


def _find(
    shingles: csr_array, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> NDArray[np.bool_]:
    """Find the near duplicates of one label: index unions of columns, then compare text by text."""
    sizes, prefixes, starts = _prefixes(shingles, columns, threshold)
    found = np.zeros(len(sizes), np.bool_)
    index: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.diff(starts)).tolist():
        prefix = prefixes[starts[row] : starts[row + 1]].tolist()
        seen: set[int] = set()
        for member in prefix:
            seen.update(index.get(member, ()))
        low, high = threshold * sizes[row] - _ROUNDING, sizes[row] / threshold + _ROUNDING
        candidates = [other for other in seen if low <= sizes[other] <= high]
        if candidates and _any_similar(shingles, columns, row, candidates, threshold):
            found[row] = True
            continue
        for member in prefix:
            index.setdefault(member, []).append(row)
    return found


def _prefixes(
    shingles: csr_array, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of the rows' unions, their rarest shared members, and starts by row."""
    from scipy.sparse import hstack

    union = hstack([shingles[codes] for codes in columns], format="csr")
    sizes = np.diff(union.indptr).astype(np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    kinds, members, frequency = np.unique(union.indices, return_inverse=True, return_counts=True)
    rank = np.empty(len(kinds), np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(kinds))
    ordered = row * len(kinds) + rank[members]
    ordered.sort()
    members = ordered % len(kinds)
    place = np.arange(len(row)) - union.indptr[:-1][row]
    kept = place < (sizes - np.ceil(threshold * sizes - _ROUNDING) + 1)[row]
    kept[kept] = np.bincount(members[kept], minlength=len(kinds))[members[kept]] > 1
    return sizes, members[kept], np.searchsorted(row[kept], np.arange(len(sizes) + 1))


def _any_similar(
    shingles: csr_array,
    columns: tuple[NDArray[np.int64], ...],
    row: int,
    candidates: list[int],
    threshold: float,
) -> bool:
    def shingles_of(text: int) -> list[int]:
        found: list[int] = shingles.indices[
            shingles.indptr[text] : shingles.indptr[text + 1]
        ].tolist()
        return found

    own = [set(shingles_of(codes[row])) for codes in columns]
    for other in candidates:
        for codes, mine in zip(columns, own, strict=True):
            if codes[other] == codes[row]:
                continue
            theirs = shingles_of(codes[other])
            common = len(mine.intersection(theirs))
            if common < threshold * (len(mine) + len(theirs) - common) - _ROUNDING:
                break
        else:
            return True
    return False
