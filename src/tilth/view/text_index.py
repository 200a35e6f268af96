"""Keep the texts of rows and an index of their words in files, of which little is in memory.

Both are read with `pread`, so that what is read does not stay in the memory of the process.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.normalize import SPACELESS, bytes_of

_BETWEEN = r"[\pP\pS\pZ\pC]+"  # words: punctuation, symbols, spaces, controls
_LAST = chr(0x10FFFF)  # comes after all characters of words


class TextFile:
    """The texts of rows, a first one (or none) and a second one each."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._ends = np.zeros(1, np.int64)  # (rows + 1,)
        self._firsts = np.empty(0, np.int32)  # bytes of the first text; -1: there is none

    def append(self, first: pa.ChunkedArray, text: pa.ChunkedArray) -> pa.Array:
        """Write the texts of further rows; return both texts of each in one."""
        lengths = pc.fill_null(pc.binary_length(first), -1)
        columns = [pc.fill_null(first, "").cast(pa.large_string()), text.cast(pa.large_string())]
        between = pa.scalar("\n", pa.large_string())
        both = pc.binary_join_element_wise(*columns, between).combine_chunks()
        data, ends = bytes_of(both)
        self._file.write(data.data)
        self._file.flush()
        self._ends = np.append(self._ends, self._ends[-1] + ends[1:])
        self._firsts = np.append(self._firsts, lengths.to_numpy().astype(np.int32))
        return both

    def read(self, row: int) -> tuple[str | None, str]:
        """Return the texts of a row."""
        start, end = self._ends[row : row + 2].tolist()
        first = int(self._firsts[row])
        data = os.pread(self._file.fileno(), end - start, start)
        before = None if first < 0 else data[:first].decode(errors="replace")
        return before, data[max(first, 0) + 1 :].decode(errors="replace")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Segment:
    """The words of some rows in order, and where the rows of each lie in the file."""

    words: pa.Array
    bounds: NDArray[np.int64]  # (words + 1,)

    def place(self, word: str) -> int:
        """Return the number of words before a word."""
        return bisect_left(range(len(self.words)), word, key=lambda at: self.words[at].as_py())


class WordIndex:
    """Which rows hold a word: a list of rows for each word, by segments of rows."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._segments: list[_Segment] = []
        self._written = 0  # row numbers

    def append(self, texts: pa.Array, first: int) -> None:
        """Add a segment of rows; `first` is the number of its first row."""
        lists = search_words(texts)
        found, rows = pc.list_flatten(lists).dictionary_encode(), pc.list_parent_indices(lists)
        order = pc.array_sort_indices(found.dictionary).to_numpy()
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        size = max(len(texts), 1)
        keys = rank[found.indices.to_numpy()] * size + rows.to_numpy()
        keys.sort()
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]  # each row once
        bounds = np.searchsorted(keys, np.arange(len(order) + 1) * size)
        self._file.write((keys % size + first).astype(np.int32).data)
        self._file.flush()
        words = found.dictionary.take(pa.array(order))
        self._segments.append(_Segment(words, bounds + self._written))
        self._written += len(keys)

    def places(self, word: str, *, is_beginning: bool = False) -> list[tuple[int, int]]:
        """Return where the rows of a word lie, or of all words that begin with it: from, to."""
        found = []
        for one in list(self._segments):
            start = one.place(word)
            end = one.place(word + _LAST) if is_beginning else start + 1
            if start < end <= len(one.words) and (is_beginning or one.words[start].as_py() == word):
                low, high = one.bounds[[start, end]].tolist()
                found.append((low, high))
        return found

    def read(self, low: int, high: int) -> NDArray[np.int32]:
        """Return the rows of a place; of several words, one may come again."""
        return np.frombuffer(os.pread(self._file.fileno(), 4 * (high - low), 4 * low), np.int32)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def search_words(texts: pa.Array) -> pa.Array:
    """Return the words of each text in lower case, some of them empty."""
    lowered = pc.utf8_lower(texts)
    apart = pc.replace_substring_regex(lowered, SPACELESS, r" \0 ")
    return pc.split_pattern(pc.replace_substring_regex(apart, _BETWEEN, " "), " ")


def words_of_search(search: str) -> list[tuple[str, bool]]:
    """Return the words of a search, and whether each is only a beginning (`park*`)."""
    found = []
    pieces = search.split()
    for piece, words in zip(
        pieces, search_words(pa.array(pieces, pa.string())).to_pylist(), strict=True
    ):
        kept = list(filter(None, words))
        found += [(word, piece.endswith("*") and word is kept[-1]) for word in kept]
    return found
