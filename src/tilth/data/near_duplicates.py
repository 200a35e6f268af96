"""Near duplicates: rows of one label whose texts share most of their word triples.

Exact, by an inverted index with prefix filtering (Chaudhuri et al. 2006, Bayardo et al. 2007): two
sets with a Jaccard similarity of t share one of their n - ceil(t n) + 1 rarest members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import random_keys

# Scripts written without spaces: every character stands as a word of its own.
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_PACKED_BITS = 21
_TEXTS_AT_ONCE = 100_000
# Keeps ceil(0.8 * 5) at 4 although 0.8 * 5 may come out a little larger.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Shingles:
    """The word triples of texts, as numbers.

    Attributes:
        members: of all texts, one after the other; sorted and distinct within a text.
        starts: where each text's begin, and the end. # (texts + 1,)
        kinds: how many distinct triples there are.
    """

    members: NDArray[np.int64]
    starts: NDArray[np.int64]
    kinds: int

    def of(self, text: int) -> NDArray[np.int64]:
        """Return one text's."""
        return self.members[self.starts[text] : self.starts[text + 1]]


def near_duplicates(
    texts: pa.Array,
    columns: tuple[NDArray[np.int64], ...],
    labels: NDArray[np.int64],
    threshold: float,
) -> NDArray[np.bool_]:
    """Find rows that an earlier row, itself no near duplicate, nearly repeats.

    Two rows are alike when they have one label and each text of the one shares at least
    `threshold` of its word triples with that of the other (Jaccard: common ones over all).
    Case and punctuation do not count. A text of one or two words is one triple.

    Args:
        texts: the distinct texts.
        columns: codes into `texts`, an array for each text column. # each (rows,)
        labels: codes of the labels. # (rows,)
        threshold: above 0, at most 1; the lower, the slower.

    Returns:
        Whether each row nearly repeats an earlier one. # (rows,)
    """
    shingles = shingle(texts)
    found = np.zeros(len(labels), np.bool_)
    order = np.argsort(labels, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) > 1:
            found[rows] = _repeats(shingles, tuple(codes[rows] for codes in columns), threshold)
    return found


def shingle(texts: pa.Array) -> Shingles:
    """Return the distinct word triples of each text."""
    words, starts = _words(texts)
    counts = np.maximum(np.diff(starts) - 2, 1)  # (texts,)
    slices = [slice(at, at + _TEXTS_AT_ONCE) for at in range(0, len(texts), _TEXTS_AT_ONCE)]
    kinds, members = np.unique(
        np.concatenate([_triples(words, starts[:-1][part], starts[1:][part]) for part in slices]),
        return_inverse=True,
    )
    members += np.repeat(np.arange(len(texts)), counts) * len(kinds)
    members.sort()
    members = members[np.append(True, np.diff(members) > 0)]
    text, members = np.divmod(members, len(kinds))
    return Shingles(members, np.searchsorted(text, np.arange(len(texts) + 1)), len(kinds))


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


def _repeats(
    shingles: Shingles, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> NDArray[np.bool_]:
    """Find the repeats among rows of one label.

    Rows alike in each text are alike in the union of their triples, told apart by column: the
    index holds these unions, and candidates are then compared text by text.
    """
    sizes, members, starts = _prefixes(shingles, columns, threshold)
    found = np.zeros(len(sizes), np.bool_)
    index: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.diff(starts)).tolist():
        prefix = members[starts[row] : starts[row + 1]].tolist()
        seen: set[int] = set()
        for member in prefix:
            seen.update(index.get(member, ()))
        low, high = threshold * sizes[row] - _ROUNDING, sizes[row] / threshold + _ROUNDING
        candidates = [other for other in seen if low <= sizes[other] <= high]
        if candidates and _any_alike(shingles, columns, row, candidates, threshold):
            found[row] = True
            continue
        for member in prefix:
            index.setdefault(member, []).append(row)
    return found


def _prefixes(
    shingles: Shingles, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes of the rows' unions, and their rarest members that another row may share.

    Returns:
        The sizes. # (rows,)
        The members that stand in the prefixes of two rows or more, one row after the other.
        Where each row's begin, and the end. # (rows + 1,)
    """
    members, row = _unions(shingles, columns)
    kinds, members, frequency = np.unique(members, return_inverse=True, return_counts=True)
    rank = np.empty(len(kinds), np.int64)
    rank[np.argsort(frequency, kind="stable")] = np.arange(len(kinds))
    ordered = row * len(kinds) + rank[members]
    ordered.sort()
    row, members = np.divmod(ordered, len(kinds))
    sizes = np.bincount(row)
    place = np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row]
    in_prefix = place < (sizes - np.ceil(threshold * sizes - _ROUNDING) + 1)[row]
    row, members = row[in_prefix], members[in_prefix]
    shared = np.bincount(members, minlength=len(kinds))[members] > 1
    row, members = row[shared], members[shared]
    return sizes, members, np.searchsorted(row, np.arange(len(sizes) + 1))


def _unions(
    shingles: Shingles, columns: tuple[NDArray[np.int64], ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the triples of all rows, told apart by column, and their rows."""
    members, rows = [], []
    for number, codes in enumerate(columns):
        count = shingles.starts[codes + 1] - shingles.starts[codes]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        place = np.repeat(shingles.starts[codes], count) + within
        members.append(shingles.members[place] + number * shingles.kinds)
        rows.append(np.repeat(np.arange(len(codes)), count))
    return np.concatenate(members), np.concatenate(rows)


def _any_alike(
    shingles: Shingles,
    columns: tuple[NDArray[np.int64], ...],
    row: int,
    candidates: list[int],
    threshold: float,
) -> bool:
    own = [set(shingles.of(codes[row]).tolist()) for codes in columns]
    for other in candidates:
        for codes, mine in zip(columns, own, strict=True):
            if codes[other] == codes[row]:
                continue
            theirs = shingles.of(codes[other]).tolist()
            common = len(mine.intersection(theirs))
            if common < threshold * (len(mine) + len(theirs) - common) - _ROUNDING:
                break
        else:
            return True
    return False
