"""Tokenise texts and batch them by length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.errors import InputError

TEXTS_AT_ONCE = 16_384  # texts with token ids in memory
# Per batch, padding included: fits a core's cache, or keeps a GPU busy.
_TOKENS = {"cpu": 2048, "cuda": 65_536}
_MULTIPLE = 8  # of the padded length: few shapes, so few cached kernels


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
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    # The tokenizer's own truncation would build every pair of overflowing parts.
    backend.no_truncation()
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
    batch_tokens: int | None = None,
) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
    """Yield the row indices of each batch and its inputs, padded to one length.

    Args:
        longest: maximum tokens of a row.
        padding: id of the padding token.
        batch_tokens: per batch, padding included; None: chosen for speed.
    """
    budget = batch_tokens or _TOKENS[device.type]
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    # Within the model's positions, whose number need not be a multiple.
    widths = np.minimum(-(-encoded.lengths // _MULTIPLE) * _MULTIPLE, longest)
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        count = max(1, budget // max(width, 1))
        for first in range(0, len(rows), count):
            some = rows[first : first + count]
            columns = np.arange(width)
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
