"""The corpus as training reads it: checked, its long texts left out, batches of like lengths."""

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

from tilth.data import read_rows
from tilth.errors import InputError
from tilth.paraphrase.candidate_reader import TAGS, TEXT_A, TEXT_B
from tilth.paraphrase.tags import CELLS

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

TRAIN, VALIDATION = "train", "validation"
COLUMNS = (TEXT_A, TEXT_B, TAGS)
IGNORED = -100  # a label that no loss is taken of
LENGTHS = 8  # batches are padded to a multiple: hardware likes few shapes
_TEXTS_AT_ONCE = 1_000
_AROUND = 8  # tokens beside the text: tags, begin and end
_LONGEST = 64


@dataclass(frozen=True, slots=True)
class Corpus:
    """Checked pairs: text_a, text_b and tags.

    Attributes:
        train: to learn from.
        validation: to stop with.
    """

    train: Dataset
    validation: Dataset


def read_corpus(source: str | Path | DatasetDict) -> Corpus:
    """Read the corpus of a rewriter and check it.

    Args:
        source: a run of `tilth paraphrase corpus`, another data set with splits train and
            validation and columns text_a, text_b and tags, or its splits.

    Raises:
        InputError: a split or a column is missing, or a tag is unknown.
    """
    parts = []
    for split in (TRAIN, VALIDATION):
        where = f"{source}: split {split!r}" if isinstance(source, (str, Path)) else f"{split}"
        try:
            rows = _rows(source, split)
        except InputError as error:
            raise InputError(f"{error}{_mend(split)}") from error
        if not len(rows):
            raise InputError(f"{where} holds no pairs{_mend(split)}")
        parts.append(_checked(rows, where))
    return Corpus(*parts)


def _mend(split: str) -> str:
    if split == TRAIN:
        return ""
    return ": its loss says when to stop; make the corpus of more candidates"


def _rows(source: str | Path | DatasetDict, split: str) -> Dataset:
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


def byte_lengths(rows: Dataset) -> NDArray[np.int64]:
    """Return the bytes of source and rewrite of each pair."""  # (pairs, 2)
    found = np.empty((len(rows), 2), np.int64)
    start = 0
    for table in rows.with_format("arrow").iter(batch_size=10_000):
        for column, name in enumerate((TEXT_A, TEXT_B)):
            lengths = pc.binary_length(table[name]).to_numpy()
            found[start : start + len(lengths), column] = lengths
        start += table.num_rows
    return found


class Collator:
    """Makes tensors of pairs: `<SIM95> <BLEU0_5> source`, and its rewrite.

    Args:
        tokenizer: with the tags in its vocabulary.
        limit: the most tokens of a text, tags included.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._tokenizer = tokenizer
        # Beyond the limit there are no positions.
        self._multiple = LENGTHS if limit % LENGTHS == 0 else 1

    def __call__(self, pairs: Sequence[dict[str, str]]) -> dict[str, torch.Tensor]:
        """Return a batch, padded."""
        sources = self._padded([f"{pair[TAGS]} {pair[TEXT_A]}" for pair in pairs])
        rewrites = self._padded([pair[TEXT_B] for pair in pairs], target=True)
        labels = rewrites["input_ids"].masked_fill(rewrites["attention_mask"] == 0, IGNORED)
        return {
            "input_ids": sources["input_ids"],  # (pairs, source tokens)
            "attention_mask": sources["attention_mask"],
            "labels": labels,  # (pairs, rewrite tokens)
        }

    def tokens(self, pairs: Sequence[dict[str, str]]) -> NDArray[np.int64]:
        """Return the tokens of the longer text of each pair, however many."""  # (pairs,)
        sources = self._ids([f"{pair[TAGS]} {pair[TEXT_A]}" for pair in pairs])
        rewrites = self._ids([pair[TEXT_B] for pair in pairs], target=True)
        return np.array(
            [max(len(one), len(two)) for one, two in zip(sources, rewrites, strict=True)], np.int64
        )

    def _ids(self, texts: list[str], *, target: bool = False) -> list[list[int]]:
        given = {"text_target" if target else "text": texts}
        ids: list[list[int]] = self._tokenizer(**given, verbose=False)["input_ids"]
        return ids

    def _padded(self, texts: list[str], *, target: bool = False) -> Any:
        given: dict[str, Any] = {"input_ids": self._ids(texts, target=target)}
        return self._tokenizer.pad(
            given,
            padding="longest",
            padding_side="right",
            pad_to_multiple_of=self._multiple,
            return_attention_mask=True,
            return_tensors="pt",
        )


def without_long(
    rows: Dataset, lengths: NDArray[np.int64], collator: Collator, limit: int
) -> tuple[Dataset, NDArray[np.int64]]:
    """Leave out pairs with a text of more tokens than the limit.

    A token has a byte at least, so only pairs of many bytes are tokenised.

    Args:
        rows: pairs.
        lengths: their bytes. # (pairs, 2)
        collator: tokenises them.
        limit: tokens of a text, tags and end included.

    Returns:
        The pairs that are left, and their bytes.
    """
    keep = np.ones(len(rows), np.bool_)
    doubtful = np.flatnonzero(lengths.max(axis=1, initial=0) + _AROUND > limit)
    for start in range(0, len(doubtful), _TEXTS_AT_ONCE):
        places = doubtful[start : start + _TEXTS_AT_ONCE]
        keep[places] = collator.tokens(rows.select(places).to_list()) <= limit
    if keep.all():
        return rows, lengths
    return rows.select(np.flatnonzero(keep)), lengths[keep]


def longest(rows: Dataset, lengths: NDArray[np.int64], collator: Collator) -> int:
    """Return the tokens of about the longest text: that of the pairs with the most bytes."""
    places = np.argsort(-lengths.max(axis=1), kind="stable")[:_LONGEST]
    return int(collator.tokens(rows.select(places).to_list()).max())
