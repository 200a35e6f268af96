"""Tokenises labelled examples once, and collates them to batches of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from tilth.models.token_batches import encode_texts, encode_words, uses_token_type_ids
from tilth.models.truncation import warn_of_cuts

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.models.classifier import Classifier

Batch = dict[str, torch.Tensor]
TARGETS, WEIGHTS, WORD_STARTS = "targets", "weights", "word_starts"
TEXTS_AT_ONCE = 10_000
# In bfloat16 padded lengths are multiples of it: few shapes, each of which is prepared once. In
# float32 a shape costs nothing, and padding does.
_PAD_MULTIPLE = 8


@dataclass(frozen=True, slots=True)
class Ragged:
    """Store arrays of different lengths in one array.

    Attributes:
        starts: start of each array, then the end of the last. # (arrays + 1,)
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, values: Sequence[NDArray[Any]], lengths: Sequence[Any], dtype: Any) -> Ragged:
        """Concatenate chunks of values, and chunks of the lengths of the arrays in them."""
        joined = np.concatenate([np.empty(0, dtype), *(chunk.astype(dtype) for chunk in values)])
        return cls(joined, np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths])))

    def __getitem__(self, place: int) -> NDArray[Any]:
        """Return one array."""
        return self.values[self.starts[place] : self.starts[place + 1]]

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each array."""  # (arrays,)
        return np.diff(self.starts)


@dataclass(frozen=True, slots=True)
class EncodedRows(Dataset[Batch]):
    """Hold tokenised rows with their targets.

    Attributes:
        ids: token ids of each sequence: of a row, or of a window of a long row of words.
        types: token type ids of pairs, where the model reads them.
        word_starts: for tags, the index of each word's first token in its window; else None.
        targets: label probabilities of each row or each word. # (answers, labels)
        weights: 1 on average; None: all the same. # (answers,)
        limit: maximum tokens of a sequence.
    """

    ids: Ragged
    types: Ragged | None
    word_starts: Ragged | None
    targets: NDArray[np.float32]
    weights: NDArray[np.float32] | None
    pad: int
    limit: int
    bfloat16: bool

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.ids)

    def __getitem__(self, rows: Sequence[int]) -> Batch:
        """Return some sequences as a padded batch."""
        lengths = [int(self.ids.starts[row + 1] - self.ids.starts[row]) for row in rows]
        multiple = _PAD_MULTIPLE if self.bfloat16 else 1
        width = min(-(-max(lengths) // multiple) * multiple, max(self.limit, *lengths))
        ids = np.full((len(rows), width), self.pad, np.int64)
        mask = np.zeros((len(rows), width), np.int64)
        types = None if self.types is None else np.zeros((len(rows), width), np.int64)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            ids[place, :length] = self.ids[row]
            mask[place, :length] = 1
            if types is not None and self.types is not None:
                types[place, :length] = self.types[row]
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if types is not None:
            batch["token_type_ids"] = torch.from_numpy(types)
        if self.word_starts is not None:
            places = [self.word_starts[row] + place * width for place, row in enumerate(rows)]
            batch[WORD_STARTS] = torch.from_numpy(np.concatenate(places).astype(np.int64))
        answers = self.answers_of(rows)
        batch[TARGETS] = torch.from_numpy(self.targets[answers])  # (answers, labels)
        if self.weights is not None:
            batch[WEIGHTS] = torch.from_numpy(self.weights[answers])
        return batch

    def answers_of(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Return where the targets of some sequences stand, (answers,)."""
        if self.word_starts is None:
            return np.asarray(rows)
        starts = self.word_starts.starts
        return np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])


def encode(classifier: Classifier, rows: LabeledExamples, *, bfloat16: bool) -> EncodedRows:
    """Tokenise rows for a classifier; truncate texts that are too long.

    Long rows of words are split into windows; each word is in one of them.
    """
    tokenizer, limit = classifier.tokenizer, classifier.max_length
    ids: list[NDArray[Any]] = []
    types: list[NDArray[Any]] = []
    lengths: list[Any] = []
    words: list[NDArray[Any]] = []
    word_counts: list[Any] = []
    is_pair = rows.tokens is None and len(rows.texts[0]) > 1
    is_typed = is_pair and uses_token_type_ids(classifier.model, tokenizer)
    cut = 0
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        some = slice(start, start + TEXTS_AT_ONCE)
        if rows.tokens is not None:
            windows = encode_words(tokenizer, rows.tokens[some], limit)
            ids += [window.token_ids for window in windows]
            words += [window.word_starts for window in windows]
            lengths.append([len(window.token_ids) for window in windows])
            word_counts.append([len(window.word_starts) for window in windows])
            continue
        found = encode_texts(tokenizer, rows.texts[some], limit, with_types=is_typed)
        ids.append(found.ids.astype(np.int32))
        lengths.append(found.lengths)
        if found.types is not None:
            types.append(found.types.astype(np.uint8))
        cut += found.cut
    warn_of_cuts(cut, len(rows), limit, classifier.name)
    targets, weights = rows.targets, rows.weights
    if isinstance(targets, list):
        if weights is not None:
            weights = np.repeat(weights, [len(target) for target in targets])
        targets = np.concatenate(targets)
    return EncodedRows(
        Ragged.of(ids, lengths, np.int32),
        Ragged.of(types, lengths, np.uint8) if is_typed else None,
        None if rows.tokens is None else Ragged.of(words, word_counts, np.int32),
        targets,
        None if weights is None else (weights / weights.mean()).astype(np.float32),
        int(tokenizer.pad_token_id or 0),
        limit,
        bfloat16,
    )
