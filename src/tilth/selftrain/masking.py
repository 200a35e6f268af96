"""Masks tokens of texts that a model is to guess: the same for the same step, whenever it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Sampler

from tilth.selftrain.encoded import Batch, EncodedRows

TARGETS = "labels"
IGNORED = -100
_MASKED, _RANDOM = 0.8, 0.1  # of the tokens to guess; the others stay


def masked(
    ids: NDArray[np.int64],
    special: NDArray[np.bool_],
    share: float,
    mask: int,
    vocabulary: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids with masks, and what is to be guessed.

    Args:
        ids: of a batch. # (rows, tokens)
        special: which are no text: begin, end, padding. # (rows, tokens)
        share: of the tokens of text that are to be guessed; one of a row at least.
        mask: the id of the mask.
        vocabulary: ids that may stand for another.
        rng: draws.

    Returns:
        The ids, and those to guess, -100 elsewhere; both (rows, tokens).

    Reference:
        Devlin et al. 2019, section 3.1: 8 in 10 are masked, 1 in 10 is another, 1 in 10 stays.
    """
    drawn = np.where(special, 2.0, rng.random(ids.shape))  # (rows, tokens)
    asked = drawn < share
    rows = np.arange(len(ids))
    first = drawn.argmin(axis=1)
    asked[rows, first] |= ~special[rows, first]
    how = rng.random(ids.shape)
    others = vocabulary[rng.integers(len(vocabulary), size=ids.shape)]
    given = np.where(asked & (how < _MASKED), mask, ids)
    given = np.where(asked & (how >= 1 - _RANDOM), others, given)
    return given, np.where(asked, ids, IGNORED)


@dataclass(frozen=True, slots=True)
class MaskedRows(Dataset[Batch]):
    """Texts of which each batch has masks that follow from its number alone.

    Attributes:
        rows: the texts.
        share: see `masked`.
        mask: see there.
        specials: ids that are no text.
        vocabulary: see there.
        seed: of the run.
    """

    rows: EncodedRows
    share: float
    mask: int
    specials: NDArray[np.int64]
    vocabulary: NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        """Return the texts."""
        return len(self.rows)

    def __getitem__(self, item: tuple[int, int, Sequence[int]]) -> Batch:
        """Return a batch: of an epoch, its number there, its rows."""
        epoch, number, rows = item
        batch = self.rows[rows]
        ids = batch["input_ids"].numpy()
        special = np.isin(ids, self.specials) | (batch["attention_mask"].numpy() == 0)
        rng = np.random.default_rng((self.seed, epoch, number))
        given, wanted = masked(ids, special, self.share, self.mask, self.vocabulary, rng)
        return {
            "input_ids": torch.from_numpy(given),
            "attention_mask": batch["attention_mask"],
            TARGETS: torch.from_numpy(wanted),
        }


class Numbered(Sampler[tuple[int, int, list[int]]]):
    """Gives the batches of another sampler, each with its epoch and number.

    Args:
        sampler: yields batches of rows, by epochs.
    """

    def __init__(self, sampler: Sampler[list[int]]) -> None:
        self._sampler, self._epoch = sampler, 0

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next, from 0."""
        self._epoch = epoch
        self._sampler.set_epoch(epoch)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[tuple[int, int, list[int]]]:
        for number, rows in enumerate(self._sampler):
            yield self._epoch, number, rows
