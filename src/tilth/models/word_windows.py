"""Tokenise sentences of words; split long ones into overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.errors import InputError


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a sentence that a model reads at once, and the words predicted in it.

    Attributes:
        row: index of the sentence.
        token_ids: special tokens included. # (tokens,)
        first: the first word predicted; the others follow it.
        word_starts: index in `token_ids` of the first token of each word predicted. # (words,)
    """

    row: int
    token_ids: NDArray[np.int64]
    first: int
    word_starts: NDArray[np.int64]


def encode_words(tokenizer: Any, tokens: Sequence[Sequence[str]], max_length: int) -> list[Window]:
    """Return the windows of sentences; each word is predicted in exactly one of them.

    A sentence is read as its words joined by spaces. Where it has more than `max_length` tokens,
    windows overlap by half and a word belongs to the one with more context. A word without tokens
    counts as unknown.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError("the tokenizer is a slow one, which says nothing of words: use another")
    backend.no_padding()
    backend.no_truncation()
    bare = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a").ids
    before = next(n for n in range(len(whole)) if whole[n : n + len(bare)] == bare)
    begin = np.array(whole[:before], np.int64)  # special tokens before and after a text
    end = np.array(whole[before + len(bare) :], np.int64)
    room = max_length - len(begin) - len(end)
    if room < 1:
        raise InputError(f"max_length is {max_length}: give more than {max_length - room}")
    known = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id)
    unknown = next((number for number in known if number is not None), 0)
    joined = [" ".join(words) for words in tokens]
    encodings = backend.encode_batch(joined, add_special_tokens=False)
    windows = []
    for row, (words, encoding) in enumerate(zip(tokens, encodings, strict=True)):
        ids, word_starts = _first_tokens(words, encoding, unknown)
        for start, first, last in _cores(len(ids), word_starts, room):
            token_ids = np.concatenate((begin, ids[start : start + room], end))
            inside = word_starts[first:last] - start + len(begin)  # (words,)
            windows.append(Window(row, token_ids, first, inside))
    return windows


def _first_tokens(
    words: Sequence[str], encoding: Any, unknown: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a sentence's token ids, (tokens,), and the index of each word's first, (words,)."""
    ids = np.array(encoding.ids, np.int64)
    spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)  # (tokens, 2)
    lengths = [len(word) for word in words]
    ends = np.array(list(accumulate(lengths, lambda end, length: end + 1 + length)), np.int64)
    starts = ends - np.array(lengths, np.int64)  # (words,)
    # A token may begin at the space before its word.
    indices = np.searchsorted(np.maximum.accumulate(spans[:, 1]), starts, side="right")
    begins = np.append(spans[:, 0], len(" ".join(words)))[indices]
    lacking = begins >= ends
    if lacking.any():
        ids = np.insert(ids, indices[lacking], unknown)
        indices = indices + np.cumsum(lacking) - lacking
    return ids, indices


def _cores(length: int, word_starts: NDArray[np.int64], room: int) -> list[tuple[int, int, int]]:
    """Return each window's first token, its first word and the word after its last."""
    starts = [*range(0, max(length - room, 0), max(room // 2, 1)), max(length - room, 0)]
    # Words of an overlap are divided between two windows at its middle.
    bounds = [(one + room + two) // 2 for one, two in pairwise(starts)]
    edges = [0, *np.searchsorted(word_starts, bounds).tolist(), len(word_starts)]
    found = zip(starts, edges[:-1], edges[1:], strict=True)
    return [(start, first, last) for start, first, last in found if last > first]
