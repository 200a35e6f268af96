"""Reads a rewriter's corpus for training: checks, length limits, batches of similar lengths."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from transformers import DataCollatorForSeq2Seq

from tilth.data import read_rows
from tilth.errors import InputError
from tilth.paraphrase.candidate_reader import TAGS, TEXT_A, TEXT_B
from tilth.paraphrase.tags import CELLS

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

TRAIN, VALIDATION = "train", "validation"
COLUMNS = (TEXT_A, TEXT_B, TAGS)
_MULTIPLE = 8  # of padded lengths: few shapes run faster
_TEXTS_AT_ONCE = 1_000
_AROUND = 8  # tokens beside the text: tags, begin and end
_LONGEST = 64


def read_corpus(source: str | Path | DatasetDict) -> tuple[Dataset, Dataset]:
    """Read and check the training and validation pairs of a rewriter's corpus.

    Args:
        source: a run of `tilth paraphrase corpus`, another data set with splits train and
            validation and columns text_a, text_b and tags, or its splits.
    """
    parts = []
    for split in (TRAIN, VALIDATION):
        where = f"{source}: split {split!r}" if isinstance(source, (str, Path)) else split
        hint = ""
        if split == VALIDATION:
            hint = ": its loss says when to stop; make the corpus of more candidates"
        try:
            rows = _split(source, split)
        except InputError as error:
            raise InputError(f"{error}{hint}") from error
        if not len(rows):
            raise InputError(f"{where} holds no pairs{hint}")
        parts.append(_checked(rows, where))
    return parts[0], parts[1]


def _split(source: str | Path | DatasetDict, split: str) -> Dataset:
    if isinstance(source, (str, Path)):
        return read_rows(source, split=split)
    if not isinstance(source, dict):
        raise InputError(f"the corpus is {type(source).__name__}: give splits train and validation")
    if split not in source:
        raise InputError(f"no split {split!r} among {', '.join(source)}")
    return source[split]


def _checked(rows: Dataset, where: str) -> Dataset:
    for column in COLUMNS:
        if column not in rows.column_names:
            raise InputError(
                f"{where}: no column {column!r} among {', '.join(rows.column_names)}: give what "
                "`tilth paraphrase corpus` makes"
            )
    rows = rows.select_columns(list(COLUMNS))
    known = {cell.tags for cell in CELLS}
    wrong = [tags for tags in rows.unique(TAGS) if tags not in known]
    if wrong:
        raise InputError(f"{where}: tags {wrong[0]!r} are unknown: they look like {CELLS[-1].tags}")
    table = rows.with_format("arrow")[:]
    full = np.ones(len(rows), np.bool_)
    for column in (TEXT_A, TEXT_B):
        texts = pc.utf8_trim_whitespace(pc.fill_null(table[column].cast(pa.large_string()), ""))
        full &= pc.not_equal(texts, "").to_numpy()
    if not full.any():
        raise InputError(f"{where}: every pair has an empty text")
    if not full.all():
        log.warning("%s: %d pairs with an empty text are left out", where, int((~full).sum()))
        rows = rows.select(np.flatnonzero(full))
    return rows


class Collator:
    """Makes batches: `<SIM95> <BLEU0_5> source` as input, the rewrite as labels.

    Args:
        tokenizer: with the tags in its vocabulary.
        limit: maximum tokens of a text, tags included.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._tokenizer = tokenizer
        # Beyond the limit there are no positions.
        multiple = _MULTIPLE if limit % _MULTIPLE == 0 else 1
        self._pad = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)

    def __call__(self, pairs: Sequence[dict[str, str]]) -> dict[str, torch.Tensor]:
        """Return input_ids and attention_mask, (pairs, source), and labels, (pairs, rewrite)."""
        names = ("input_ids", "labels")
        batch: dict[str, torch.Tensor] = self._pad(
            [dict(zip(names, ids, strict=True)) for ids in zip(*self._ids(pairs), strict=True)]
        )
        return batch

    def tokens(self, pairs: Sequence[dict[str, str]]) -> NDArray[np.int64]:
        """Return the tokens of the longer text of each pair, not cut, (pairs,)."""
        return np.array(
            [max(map(len, both)) for both in zip(*self._ids(pairs), strict=True)], np.int64
        )

    def _ids(self, pairs: Sequence[dict[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        sources = [f"{pair[TAGS]} {pair[TEXT_A]}" for pair in pairs]
        rewrites = [pair[TEXT_B] for pair in pairs]
        tokenizer = self._tokenizer
        return (
            tokenizer(sources, verbose=False)["input_ids"],
            tokenizer(text_target=rewrites, verbose=False)["input_ids"],
        )


def without_long(
    rows: Dataset, collator: Collator, limit: int, what: str
) -> tuple[Dataset, NDArray[np.int64]]:
    """Leave out pairs with a text of more tokens than the limit, tags and end included.

    A token has a byte at least, so only pairs of many bytes are tokenised. `what` names the pairs
    in messages. The second result is the bytes of both texts, (pairs, 2).
    """
    lengths = np.concatenate([
        np.stack([pc.binary_length(table[name]).to_numpy() for name in (TEXT_A, TEXT_B)], 1)
        for table in rows.with_format("arrow").iter(batch_size=10_000)
    ]).astype(np.int64)  # fmt: skip
    keep = np.ones(len(rows), np.bool_)
    doubtful = np.flatnonzero(lengths.max(axis=1) + _AROUND > limit)
    for start in range(0, len(doubtful), _TEXTS_AT_ONCE):
        chosen = doubtful[start : start + _TEXTS_AT_ONCE]
        keep[chosen] = collator.tokens(rows.select(chosen).to_list()) <= limit
    if not keep.any():
        raise InputError(
            f"every {what} pair has a text of more than {limit} tokens: raise max-length"
        )
    if keep.all():
        return rows, lengths
    log.warning(
        "%d of %d %s pairs have a text of more than %d tokens and are left out",
        int((~keep).sum()), len(rows), what, limit,
    )  # fmt: skip
    return rows.select(np.flatnonzero(keep)), lengths[keep]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Pairs whose texts are short enough; `lengths` are bytes of the training texts, (pairs, 2)."""

    train: Dataset
    validation: Dataset
    lengths: NDArray[np.int64]
    collator: Collator

    def longest(self) -> int:
        """Return the tokens of about the longest text: that of the pairs with the most bytes."""
        chosen = np.argsort(-self.lengths.max(axis=1), kind="stable")[:_LONGEST]
        return int(self.collator.tokens(self.train.select(chosen).to_list()).max())
