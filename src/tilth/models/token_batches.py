"""Tokenised texts in batches of similar lengths."""

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

TEXTS_AT_ONCE = 16_384  # whose token ids are in memory
# Of a batch, padding included: what a core's cache holds, or a GPU keeps busy with.
_TOKENS = {"cpu": 2048, "cuda": 65_536}
_MULTIPLE = 8  # few shapes, so that few compiled products are kept


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of texts, one text after the other.

    Attributes:
        ids: the token ids. # (tokens,)
        types: 0 for tokens of a pair's first text, 1 for those of its second; None where the
            model does not use them. # (tokens,)
        lengths: tokens of each text. # (texts,)
        cut: how many of the texts were longer.
    """

    ids: NDArray[np.int64]
    types: NDArray[np.int64] | None
    lengths: NDArray[np.int64]
    cut: int = 0


def encode_texts(
    tokenizer: Any, texts: Sequence[tuple[str, ...]], max_length: int, *, with_types: bool = False
) -> Encoded:
    """Tokenise texts or pairs, with special tokens.

    Args:
        tokenizer: of the model, a fast one.
        texts: each row's texts, one or two.
        max_length: most tokens of a row; of a pair the longer text is cut.
        with_types: return token type ids of pairs.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    # The tokenizer's own truncation makes every pair of the parts of two long texts.
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
    """Return the indices of the tokens that are kept of a row: of a pair the longer text is cut.

    Args:
        sequences: the text of each token, 0 or 1; None for special tokens.
        max_length: how many are kept, special tokens included.

    Raises:
        InputError: not even the special tokens fit.
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
    """Tell whether tokenizer and model use token type ids, which say which text a token is of."""
    name = "token_type_ids"
    return name in tokenizer.model_input_names and name in signature(model.forward).parameters


def _join(
    parts: Iterable[list[int]], lengths: NDArray[np.int64], kept: dict[int, NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Join the rows' ids, of some rows only those at the kept indices, (tokens,)."""
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
    """Yield the rows of each batch and its inputs, padded to one length.

    Args:
        encoded: the texts.
        longest: most tokens of a row.
        padding: the padding token.
        device: of the inputs.
        batch_tokens: of a batch, padding included; default: what is fast.
    """
    budget = batch_tokens or _TOKENS[device.type]
    starts = np.cumsum(encoded.lengths) - encoded.lengths
    # Not beyond what the model reads: its last position need be no multiple.
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
