"""Tokenise texts, or sentences of words in windows, and batch them by length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError

TEXTS_AT_ONCE = 16_384  # texts with token ids in memory
# Per batch, padding included: fits a core's cache, or keeps a GPU busy.
_TOKENS = {"cpu": 2048, "cuda": 65_536}
_MULTIPLE = 8  # of the padded length in low precision: few shapes, so few cached kernels
_LEAST = 512  # tokens of a batch that takes no texts of other lengths


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of texts, concatenated.

    Attributes:
        ids: the token ids. # (tokens,)
        types: 0 for tokens of a pair's first text, 1 for those of its second; None where the
            model does not use them. # (tokens,)
        lengths: tokens of each text. # (texts,)
        cut: number of truncated texts.
    """

    ids: NDArray[np.int64]
    types: NDArray[np.int64] | None
    lengths: NDArray[np.int64]
    cut: int = 0


def encode_texts(
    tokenizer: Any, texts: Sequence[tuple[str, ...]], max_length: int, *, with_types: bool = False
) -> Encoded:
    """Tokenise texts or pairs with a fast tokenizer, with special tokens.

    A row is cut to `max_length` tokens, a pair at its longer text.
    """
    backend = _backend(tokenizer)
    found = backend.encode_batch_fast([row[0] if len(row) == 1 else row for row in texts])
    lengths = np.array([len(encoding) for encoding in found], np.int64)
    long = np.flatnonzero(lengths > max_length).tolist()
    kept = {row: _longest_first(found[row].sequence_ids, max_length) for row in long}
    lengths[long] = max_length
    ids = _join((encoding.ids for encoding in found), lengths, kept)
    types = None
    if with_types and any(len(row) == 2 for row in texts):
        types = _join((encoding.type_ids for encoding in found), lengths, kept)
    return Encoded(ids, types, lengths, cut=len(long))


def _backend(tokenizer: Any) -> Any:
    """Return what a fast tokenizer encodes with, without padding and truncation.

    Its truncation would build every pair of overflowing parts.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError("the model has no fast tokenizer (tokenizer.json): use another model")
    backend.no_padding()
    backend.no_truncation()
    return backend


def _longest_first(sequences: Sequence[int | None], max_length: int) -> NDArray[np.int64]:
    """Return the indices of a row's kept tokens: the longer text of a pair is cut.

    `sequences` is the text of each token, 0 or 1; None for special tokens.
    """
    of = np.array([-1 if text is None else text for text in sequences], np.int64)  # (tokens,)
    special, first, second = (np.flatnonzero(of == text) for text in (-1, 0, 1))
    room = max_length - len(special)
    if room < 0:
        raise InputError(f"max_length is {max_length}: give at least {len(special)}")
    short = min(len(first), len(second))
    if 2 * short >= room and len(second):
        short = room // 2
    shares = (short, room - short) if len(first) <= len(second) else (room - short, short)
    return np.sort(np.concatenate([special, first[: shares[0]], second[: shares[1]]]))


def uses_token_type_ids(model: Any, tokenizer: Any) -> bool:
    """Return whether tokenizer and model use token type ids, which tell a pair's texts apart."""
    name = "token_type_ids"
    return name in tokenizer.model_input_names and name in signature(model.forward).parameters


def _join(
    parts: Iterable[list[int]], lengths: NDArray[np.int64], kept: dict[int, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Join the rows' ids, (tokens,); rows in `kept` keep only those indices."""
    whole = (
        np.array(part, np.int64)[kept[row]].tolist() if row in kept else part
        for row, part in enumerate(parts)
    )
    return np.fromiter(chain.from_iterable(whole), np.int64, int(lengths.sum()))


def batches(
    encoded: Encoded,
    *,
    longest: int,
    padding: int,
    device: torch.device,
    is_float32: bool = True,
    is_unpadded: bool = False,
    batch_tokens: int | None = None,
) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
    """Yield the row indices of each batch and its inputs, padded to one length.

    Args:
        longest: maximum tokens of a row.
        padding: id of the padding token.
        is_float32: whether the model computes in float32; on a processor, texts of one length then
            make a batch without padding if they are enough.
        is_unpadded: whether the model itself takes the padding out.
        batch_tokens: per batch, padding included; None: chosen for speed.
    """
    is_exact = is_float32 and device.type == "cpu"
    budget = batch_tokens or _TOKENS[device.type]
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    multiple = 1 if is_exact or is_unpadded else _MULTIPLE
    least = budget if is_unpadded else _LEAST if is_exact else 0
    # Within the model's positions, whose number need not be a multiple.
    widths = np.minimum(-(-encoded.lengths // multiple) * multiple, longest)
    for some in _of_like_widths(widths, budget, least):
        columns = np.arange(widths[some[-1]])
        mask = columns < encoded.lengths[some, None]  # (rows, width)
        indices = np.where(mask, starts[some, None] + columns, 0)
        arrays = {
            "input_ids": np.where(mask, encoded.ids[indices], padding),
            "attention_mask": mask.astype(np.int64),
        }
        if encoded.types is not None:
            arrays["token_type_ids"] = np.where(mask, encoded.types[indices], 0)
        yield (
            some,
            {
                name: torch.from_numpy(array).to(device, non_blocking=True)
                for name, array in arrays.items()
            },
        )


def _of_like_widths(
    widths: NDArray[np.int64], budget: int, least: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each batch, the widest last: of one width, or of fewer tokens than `least`.

    The wider ones that are added to these fill it to `least`.
    """
    order = np.argsort(widths, kind="stable")
    ordered = widths[order].tolist()
    start = 0
    for end, width in enumerate([*ordered, 0]):
        count = end - start
        is_full = (count + 1) * width > budget
        differs = count > 0 and width != ordered[start] and count * ordered[end - 1] >= least
        if count and (end == len(ordered) or is_full or differs):
            yield order[start:end]
            start = end


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
    backend = _backend(tokenizer)
    joined = [" ".join(words) for words in tokens]
    encodings = backend.encode_batch(joined, add_special_tokens=False)
    special, text = set(tokenizer.all_special_ids), "a"  # around which special tokens are found
    if not backend.encode(text, add_special_tokens=False).ids:  # of another script
        usual = (n for n, one in enumerate(encodings) if one.ids and special.isdisjoint(one.ids))
        text = next((joined[number] for number in usual), text)
    bare, whole = backend.encode(text, add_special_tokens=False).ids, backend.encode(text).ids
    before = next(n for n in range(len(whole)) if whole[n : n + len(bare)] == bare)
    begin = np.array(whole[:before], np.int64)  # special tokens before and after a text
    end = np.array(whole[before + len(bare) :], np.int64)
    room = max_length - len(begin) - len(end)
    if room < 1:
        raise InputError(f"max_length is {max_length}: give more than {max_length - room}")
    known = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id)
    unknown = next((number for number in known if number is not None), 0)
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
