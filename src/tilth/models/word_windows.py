"""Sentences of words to pieces of a model, in windows when they are long."""

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
    """What a model reads at once of a sentence, and which words it is asked for there.

    Attributes:
        row: the sentence.
        token_ids: its token ids, special tokens included. # (tokens,)
        first: the first word that is asked for; the others follow it.
        word_starts: index in `token_ids` of the first token of each word asked for. # (words,)
    """

    row: int
    token_ids: NDArray[np.int64]
    first: int
    word_starts: NDArray[np.int64]


def encode_words(tokenizer: Any, tokens: Sequence[Sequence[str]], max_length: int) -> list[Window]:
    """Return the windows of sentences; each word is asked for in exactly one of them.

    A sentence is read as its words joined by spaces. Where it has more pieces than fit, windows
    overlap by half, and a word is asked for where more stands around it. A word of which the
    tokenizer makes nothing counts as unknown.

    Args:
        tokenizer: of the model, a fast one.
        tokens: the words of each sentence.
        max_length: most pieces of a window, those that mark begin and end counted.

    Raises:
        InputError: the tokenizer is not a fast one, or nothing fits in a window.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError("the tokenizer is a slow one, which says nothing of words: use another")
    backend.no_padding()
    backend.no_truncation()
    begin, end = _marks(backend)
    room = max_length - len(begin) - len(end)
    if room < 1:
        raise InputError(f"max_length is {max_length}: give more than {max_length - room}")
    unknown = _unknown(tokenizer)
    joined = [" ".join(words) for words in tokens]
    encodings = backend.encode_batch(joined, add_special_tokens=False)
    windows = []
    for row, (words, encoding) in enumerate(zip(tokens, encodings, strict=True)):
        ids, places = _first_pieces(words, encoding, unknown)
        for start, first, last in _cores(len(ids), places, room):
            pieces = np.concatenate((begin, ids[start : start + room], end))
            inside = places[first:last] - start + len(begin)  # (words,)
            windows.append(Window(row, pieces, first, inside))
    return windows


def _marks(backend: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers that stand before and after a text."""
    bare = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a").ids
    before = next(n for n in range(len(whole)) if whole[n : n + len(bare)] == bare)
    after = whole[before + len(bare) :]
    return np.array(whole[:before], np.int64), np.array(after, np.int64)


def _unknown(tokenizer: Any) -> int:
    """Return the number that stands for a word without pieces."""
    known = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id)
    return next((number for number in known if number is not None), 0)


def _first_pieces(
    words: Sequence[str], encoding: Any, unknown: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a sentence's pieces, (pieces,), and the place of each word's first, (words,)."""
    ids = np.array(encoding.ids, np.int64)
    spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)  # (pieces, 2)
    lengths = [len(word) for word in words]
    ends = np.array(list(accumulate(lengths, lambda end, length: end + 1 + length)), np.int64)
    starts = ends - np.array(lengths, np.int64)  # (words,)
    # A piece may begin at the space before its word.
    places = np.searchsorted(np.maximum.accumulate(spans[:, 1]), starts, side="right")
    begins = np.append(spans[:, 0], len(" ".join(words)))[places]
    lacking = begins >= ends
    if lacking.any():
        ids = np.insert(ids, places[lacking], unknown)
        places = places + np.cumsum(lacking) - lacking
    return ids, places


def _cores(pieces: int, places: NDArray[np.int64], room: int) -> list[tuple[int, int, int]]:
    """Return the first piece of each window, and its words: the first and one past the last."""
    starts = [*range(0, max(pieces - room, 0), max(room // 2, 1)), max(pieces - room, 0)]
    # Between two windows the bound is the middle of what both show.
    bounds = [(one + room + two) // 2 for one, two in pairwise(starts)]
    edges = [0, *np.searchsorted(places, bounds).tolist(), len(places)]
    found = zip(starts, edges[:-1], edges[1:], strict=True)
    return [(start, first, last) for start, first, last in found if last > first]
