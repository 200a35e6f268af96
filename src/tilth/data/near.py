"""Near duplicates: rows of one label whose texts share most of their word triples.

Exact, by an inverted index with prefix filtering (Chaudhuri et al. 2006, Bayardo et al. 2007): two
sets with a Jaccard similarity of t share one of their n - ceil(t n) + 1 rarest members.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Scripts written without spaces: every character stands as a word of its own.
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_PACKED_BITS = 21
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
    ids, starts = _words(texts)
    length = np.diff(starts)  # (texts,)
    count = np.maximum(length - 2, 1)  # (texts,)
    text = np.repeat(np.arange(len(texts)), count)  # (triples,)
    within = np.arange(len(text)) - np.repeat(np.cumsum(count) - count, count)
    place = starts[text] + within  # (triples,)
    last = starts[text + 1] - 1
    ids = np.append(ids, 0)  # 0 stands for no word
    first, second, third = (
        np.where(place + step <= last, ids[np.minimum(place + step, last)], 0) for step in range(3)
    )
    if ids.max() < 1 << _PACKED_BITS:
        keys = (first << 2 * _PACKED_BITS) | (second << _PACKED_BITS) | third
    else:  # more than two million different words: number the pairs first
        pairs = np.unique((first << 31) | second, return_inverse=True)[1]
        keys = (pairs << 31) | third
    del first, second, third, place, last, within
    kinds, members = np.unique(keys, return_inverse=True)
    distinct = np.unique(text * len(kinds) + members)
    text, members = np.divmod(distinct, max(len(kinds), 1))
    edges = np.searchsorted(text, np.arange(len(texts) + 1))
    return Shingles(members, edges, len(kinds))


def _words(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return word numbers from 1, of all texts, and where each text's begin, and the end."""
    lower = pc.utf8_lower(texts)
    spaced = pc.replace_substring_regex(lower, _NO_WORD, " ")
    if pc.any(pc.match_substring_regex(spaced, _SPACELESS)).as_py():
        spaced = pc.replace_substring_regex(spaced, f"({_SPACELESS})", r" \1 ")
    plain = pc.utf8_trim_whitespace(spaced)
    # A text of nothing but symbols stays as it is.
    plain = pc.if_else(pc.equal(plain, ""), pc.utf8_trim_whitespace(lower), plain)
    words = pc.utf8_split_whitespace(plain)
    starts = words.offsets.to_numpy().astype(np.int64)
    ids = pc.dictionary_encode(words.flatten()).indices.to_numpy().astype(np.int64) + 1
    return ids, starts


def _repeats(
    shingles: Shingles, columns: tuple[NDArray[np.int64], ...], threshold: float
) -> NDArray[np.bool_]:
    """Find the repeats among rows of one label.

    Rows alike in each text are alike in the union of their triples, told apart by column: the
    index holds these unions, and candidates are then compared text by text.
    """
    members, starts, frequency = _unions(shingles, columns)
    sizes = np.diff(starts).tolist()
    index: dict[int, list[int]] = {}
    found = np.zeros(len(sizes), np.bool_)
    for row, size in enumerate(sizes):
        start = starts[row]
        prefix = members[start : start + size - ceil(threshold * size - _ROUNDING) + 1]
        prefix = prefix[frequency[prefix] > 1].tolist()  # others meet no second row
        seen: set[int] = set()
        for member in prefix:
            seen.update(index.get(member, ()))
        low, high = threshold * size - _ROUNDING, size / threshold + _ROUNDING
        candidates = [other for other in seen if low <= sizes[other] <= high]
        if candidates and _any_alike(shingles, columns, row, candidates, threshold):
            found[row] = True
            continue
        for member in prefix:
            index.setdefault(member, []).append(row)
    return found


def _unions(
    shingles: Shingles, columns: tuple[NDArray[np.int64], ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's triples over all columns, rarest first, their starts and frequencies."""
    counts = [shingles.starts[codes + 1] - shingles.starts[codes] for codes in columns]
    starts = np.append(0, np.cumsum(sum(counts)))  # (rows + 1,)
    parts = []
    rows = []
    for number, (codes, count) in enumerate(zip(columns, counts, strict=True)):
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        place = np.repeat(shingles.starts[codes], count) + within
        parts.append(shingles.members[place] + number * shingles.kinds)
        rows.append(np.repeat(np.arange(len(codes)), count))
    members, row = np.concatenate(parts), np.concatenate(rows)
    kinds, members, frequency = np.unique(members, return_inverse=True, return_counts=True)
    rarity = np.argsort(frequency, kind="stable")
    rank = np.empty(len(kinds), np.int64)
    rank[rarity] = np.arange(len(kinds))
    members = np.sort(row * len(kinds) + rank[members]) % len(kinds)
    return members, starts, frequency[rarity]


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
