"""Near duplicates: rows of one label whose texts share most of their word triples.

Exact, by an inverted index with prefix filtering (Chaudhuri et al. 2006, Bayardo et al. 2007): two
sets with a Jaccard similarity of t share one of their n - ceil(t n) + 1 rarest members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import random_keys

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Scripts written without spaces: every character counts as a word.
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_PACKED_BITS = 21
_TEXTS_AT_ONCE = 100_000
# Keeps ceil(0.8 * 5) at 4 although 0.8 * 5 may come out a little larger.
_ROUNDING = 1e-9


def near_duplicates(
    texts: pa.Array,
    columns: tuple[NDArray[np.int64], ...],
    labels: NDArray[np.int64],
    threshold: float,
) -> NDArray[np.bool_]:
    """Find the near duplicates of earlier rows that are not near duplicates themselves.

    Two rows are near duplicates when they have one label and the word triples of their texts, in
    each column, have a Jaccard similarity of at least `threshold`. Case and punctuation do not
    count. A text of one or two words is one triple.

    Args:
        texts: the distinct texts.
        columns: codes into `texts`, an array for each text column. # each (rows,)
        labels: codes of the labels. # (rows,)
        threshold: above 0, at most 1; the lower, the slower.

    Returns:
        Whether each row is a near duplicate. # (rows,)
    """
    shingles = shingle(texts)
    found = np.zeros(len(labels), np.bool_)
    order = np.argsort(labels, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) > 1:
            found[rows] = _find(shingles, tuple(codes[rows] for codes in columns), threshold)
    return found


def shingle(texts: pa.Array) -> csr_array:
    """Return the distinct word triples of each text as the columns of a sparse matrix."""
    from scipy.sparse import csr_array

    words, starts = _words(texts)
    counts = np.maximum(np.diff(starts) - 2, 1)  # (texts,)
    slices = [slice(at, at + _TEXTS_AT_ONCE) for at in range(0, len(texts), _TEXTS_AT_ONCE)]
    kinds, triples = np.unique(
        np.concatenate([_triples(words, starts[:-1][part], starts[1:][part]) for part in slices]),
        return_inverse=True,
    )
    ends = np.append(0, np.cumsum(counts))
    found = csr_array(
        (np.ones(len(triples), np.int8), triples, ends), shape=(len(texts), len(kinds))
    )
    found.sum_duplicates()
    return found  # (texts, triples)


def _triples(
    words: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a number for each triple of some texts, one text after the other.

    Up to two million different words the numbers are exact, beyond they are 64-bit hashes.
    """
    counts = np.maximum(stops - starts - 2, 1)  # (texts,)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat(starts, counts) + within  # (triples,)
    last = np.repeat(stops, counts) - 1
    one, two, three = (
        np.where(place + step <= last, words[np.minimum(place + step, last)], 0)
        for step in range(3)
    )
    if words.max() < 1 << _PACKED_BITS:
        return (one << 2 * _PACKED_BITS) | (two << _PACKED_BITS) | three
    hashed = random_keys(0, "triple", *(part.astype(np.uint64) for part in (one, two, three)))
    return hashed.view(np.int64)


def _words(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return word numbers from 1, a 0 after the last, and where each text's begin, and the end."""
    lower = pc.utf8_lower(texts)
    spaced = pc.replace_substring_regex(lower, _NO_WORD, " ")
    if pc.any(pc.match_substring_regex(spaced, _SPACELESS)).as_py():
        spaced = pc.replace_substring_regex(spaced, f"({_SPACELESS})", r" \1 ")
    plain = pc.utf8_trim_whitespace(spaced)
    # A text of nothing but symbols stays as it is.
    plain = pc.if_else(pc.equal(plain, ""), pc.utf8_trim_whitespace(lower), plain)
    words = pc.utf8_split_whitespace(plain)
    starts = words.offsets.to_numpy().astype(np.int64)
    numbers = pc.dictionary_encode(words.flatten()).indices.to_numpy().astype(np.int64)
    return np.append(numbers + 1, 0), starts


def _find(
    shingles: csr_array, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> NDArray[np.bool_]:
    """Find the near duplicates among rows of one label.

    Rows similar in each text are similar in the union of their triples, told apart by column: the
    index holds these unions, and candidates are then compared text by text.
    """
    sizes, prefixes, starts = _prefixes(shingles, columns, threshold)
    found = np.zeros(len(sizes), np.bool_)
    index: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.diff(starts)).tolist():
        prefix = prefixes[starts[row] : starts[row + 1]].tolist()
        seen: set[int] = set()
        for triple in prefix:
            seen.update(index.get(triple, ()))
        low, high = threshold * sizes[row] - _ROUNDING, sizes[row] / threshold + _ROUNDING
        candidates = [other for other in seen if low <= sizes[other] <= high]
        if candidates and _any_similar(shingles, columns, row, candidates, threshold):
            found[row] = True
            continue
        for triple in prefix:
            index.setdefault(triple, []).append(row)
    return found


def _prefixes(
    shingles: csr_array, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of the rows' unions, and their rarest triples that another row may share.

    Returns:
        The sizes. # (rows,)
        The triples that stand in the prefixes of two rows or more, one row after the other.
        Where each row's begin, and the end. # (rows + 1,)
    """
    from scipy.sparse import hstack

    union = hstack([shingles[codes] for codes in columns], format="csr")
    sizes = np.diff(union.indptr).astype(np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    kinds, triples, frequency = np.unique(union.indices, return_inverse=True, return_counts=True)
    rank = np.empty(len(kinds), np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(kinds))
    ordered = row * len(kinds) + rank[triples]
    ordered.sort()
    triples = ordered % len(kinds)
    place = np.arange(len(row)) - union.indptr[:-1][row]
    kept = place < (sizes - np.ceil(threshold * sizes - _ROUNDING) + 1)[row]
    kept[kept] = np.bincount(triples[kept], minlength=len(kinds))[triples[kept]] > 1
    return sizes, triples[kept], np.searchsorted(row[kept], np.arange(len(sizes) + 1))


def _any_similar(
    shingles: csr_array,
    columns: tuple[NDArray[np.int64], ...],
    row: int,
    candidates: list[int],
    threshold: float,
) -> bool:
    def triples(text: int) -> list[int]:
        found: list[int] = shingles.indices[
            shingles.indptr[text] : shingles.indptr[text + 1]
        ].tolist()
        return found

    own = [set(triples(codes[row])) for codes in columns]
    for other in candidates:
        for codes, mine in zip(columns, own, strict=True):
            if codes[other] == codes[row]:
                continue
            theirs = triples(codes[other])
            common = len(mine.intersection(theirs))
            if common < threshold * (len(mine) + len(theirs) - common) - _ROUNDING:
                break
        else:
            return True
    return False
