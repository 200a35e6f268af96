"""Rows as token ids, made once, and as batches of tensors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from tilth.models.token_batches import encode_texts, uses_token_type_ids
from tilth.models.word_windows import encode_words

if TYPE_CHECKING:
    from tilth.classifiers.examples import Rows
    from tilth.models.classifier import Classifier

log = logging.getLogger(__name__)

Batch = dict[str, torch.Tensor]
TARGETS, WEIGHTS, PLACES = "targets", "weights", "places"
# Padded lengths are multiples of it in bfloat16: few shapes, each of which is prepared once. In
# float32 a shape costs nothing, and padding does.
_LENGTHS = 8
_TEXTS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Ragged:
    """Arrays of numbers of different lengths, one after the other.

    Attributes:
        values: the numbers of all.
        starts: where each begins, and the end of the last. # (arrays + 1,)
    """

    values: NDArray[Any]
    starts: NDArray[np.int64]

    def __getitem__(self, place: int) -> NDArray[Any]:
        """Return one array."""
        return self.values[self.starts[place] : self.starts[place + 1]]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How long each is."""  # (arrays,)
        return np.diff(self.starts)


class Gathered:
    """Takes arrays of numbers and makes them one `Ragged`, in a smaller type."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._kind = kind
        self._chunks: list[NDArray[Any]] = [np.empty(0, kind)]
        self._lengths = [np.zeros(1, np.int64)]

    def add(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Take some arrays."""
        lengths = np.array([len(array) for array in arrays], np.int64)
        self.add_flat(np.concatenate([np.empty(0, self._kind), *arrays]), lengths)

    def add_flat(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Take arrays that follow one another in one."""
        self._chunks.append(values.astype(self._kind))
        self._lengths.append(lengths)

    def ragged(self) -> Ragged:
        """Return what was taken."""
        return Ragged(np.concatenate(self._chunks), np.cumsum(np.concatenate(self._lengths)))


@dataclass(frozen=True, slots=True)
class EncodedRows(Dataset[Batch]):
    """Rows as token ids, with what the model should answer.

    Attributes:
        ids: token ids of each piece of work: a row, or a window of a long row of tokens.
        types: which of two texts each id is of, where the model asks.
        words: for tags, where each word's first id stands in its window; else None.
        targets: probabilities of labels, of each row, or of each word. # (answers, labels)
        weights: of the answers, 1 on average; None: all the same. # (answers,)
        pad: the id that fills up.
        limit: the most ids of a row.
        bfloat16: whether they are for passes in bfloat16.
    """

    ids: Ragged
    types: Ragged | None
    words: Ragged | None
    targets: NDArray[np.float32]
    weights: NDArray[np.float32] | None
    pad: int
    limit: int
    bfloat16: bool

    def __len__(self) -> int:
        """Return the pieces of work."""
        return len(self.ids)

    def __getitem__(self, rows: Sequence[int]) -> Batch:
        """Return some rows as a batch."""
        lengths = [int(self.ids.starts[row + 1] - self.ids.starts[row]) for row in rows]
        multiple = _LENGTHS if self.bfloat16 else 1
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
        answers = np.asarray(rows)
        if self.words is not None:
            places = [self.words[row] + place * width for place, row in enumerate(rows)]
            batch[PLACES] = torch.from_numpy(np.concatenate(places).astype(np.int64))
            starts = self.words.starts
            answers = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows])
        batch[TARGETS] = torch.from_numpy(self.targets[answers])  # (answers, labels)
        if self.weights is not None:
            batch[WEIGHTS] = torch.from_numpy(self.weights[answers])
        return batch


def encode(classifier: Classifier, rows: Rows, *, bfloat16: bool) -> EncodedRows:
    """Tokenise rows as a classifier reads them; texts that are too long are cut.

    Of rows of tokens that are too long, windows are made instead; each token is in one of them.
    """
    tokenizer, limit = classifier.tokenizer, classifier.max_length
    ids, types, words = Gathered(np.int32), Gathered(np.uint8), Gathered(np.int32)
    is_pair = rows.tokens is None and len(rows.texts[0]) > 1
    is_typed = is_pair and uses_token_type_ids(classifier.model, tokenizer)
    cut = 0
    for start in range(0, len(rows), _TEXTS_AT_ONCE):
        some = slice(start, start + _TEXTS_AT_ONCE)
        if rows.tokens is not None:
            windows = encode_words(tokenizer, rows.tokens[some], limit)
            ids.add([window.token_ids for window in windows])
            words.add([window.word_starts for window in windows])
            continue
        found = encode_texts(tokenizer, rows.texts[some], limit, with_types=is_typed)
        ids.add_flat(found.ids, found.lengths)
        if found.types is not None:
            types.add_flat(found.types, found.lengths)
        cut += found.cut
    if cut:
        log.warning(
            "%d of %d texts are longer than the %d tokens that are read: they were cut", cut,
            len(rows), limit,
        )  # fmt: skip
    targets, weights = rows.targets, rows.weights
    if isinstance(targets, list):
        if weights is not None:
            weights = np.repeat(weights, [len(target) for target in targets])
        targets = np.concatenate(targets)
    return EncodedRows(
        ids.ragged(),
        types.ragged() if is_typed else None,
        None if rows.tokens is None else words.ragged(),
        targets,
        None if weights is None else (weights / weights.mean()).astype(np.float32),
        int(tokenizer.pad_token_id or 0),
        limit,
        bfloat16,
    )
