"""Overlap of training rows with the sentences of evaluation sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.evaluate.sts_sets import StsSet

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame  # type: ignore[import-untyped]

Rows: TypeAlias = "Dataset | DataFrame | Sequence[Mapping[str, Any]] | Sequence[str]"

_PAIR = ("text_a", "text_b")
_NEGATIVE, _SINGLE = "negative", "text"
_ROWS_AT_ONCE = 10_000


@dataclass(slots=True)
class Overlap:
    """Overlap of the training rows with one evaluation set.

    Attributes:
        rows: training rows that hold a sentence of the set.
        pairs: training rows that hold both sentences of a pair of the set, in either order.
        sentences: the sentences found, normalized.
    """

    rows: int = 0
    pairs: int = 0
    sentences: set[str] = field(default_factory=set)

    def counts(self) -> dict[str, int]:
        """Return the counts; each sentence counts once."""
        return {"rows": self.rows, "pairs": self.pairs, "sentences": len(self.sentences)}


def find_overlap(training: Rows, sets: Iterable[StsSet]) -> dict[str, Overlap]:
    """Return the overlap with each set, by its name.

    Texts of a row are text_a, text_b and negative, else text, else every column of texts.
    """
    index = _Index(sets)
    for texts in _texts_of_rows(training):
        index.count(texts)
    return index.found


def apart(rows: Dataset, sets: Iterable[StsSet]) -> list[int]:
    """Return the training rows that hold no sentence of an evaluation set."""
    index = _Index(sets)
    return [row for row, texts in enumerate(_texts_of_rows(rows)) if not index.count(texts)]


def untouched(sts: StsSet, overlap: Overlap) -> NDArray[np.bool_]:
    """Return which pairs of a set share no text with the training rows, (pairs,)."""
    free = [
        overlap.sentences.isdisjoint(map(normalize_text, texts))
        for texts in zip(sts.texts_a, sts.texts_b, strict=True)
    ]
    return np.array(free, np.bool_)


class _Index:
    """Index of the sets' sentences and pairs, with their overlap so far."""

    def __init__(self, sets: Iterable[StsSet]) -> None:
        self.found: dict[str, Overlap] = {}
        self._sentences: dict[str, set[str]] = {}
        self._pairs: dict[tuple[str, str], set[str]] = {}
        for sts in sets:
            self.found[sts.name] = Overlap()
            for texts in zip(sts.texts_a, sts.texts_b, strict=True):
                one, two = sorted(map(normalize_text, texts))
                for sentence in (one, two):
                    self._sentences.setdefault(sentence, set()).add(sts.name)
                self._pairs.setdefault((one, two), set()).add(sts.name)

    def count(self, texts: Iterable[str]) -> bool:
        """Count a training row; return whether it holds a sentence of any set."""
        held = sorted(text for text in map(normalize_text, texts) if text in self._sentences)
        touched: set[str] = set()
        for text in held:
            for name in self._sentences[text]:
                self.found[name].sentences.add(text)
                touched.add(name)
        for name in touched:
            self.found[name].rows += 1
        both = (self._pairs.get(pair, set()) for pair in combinations(held, 2))
        for name in set().union(*both):
            self.found[name].pairs += 1
        return bool(held)


def _texts_of_rows(rows: Rows) -> Iterator[list[str]]:
    """Yield the texts of each row."""
    for number, row in enumerate(_each_row(rows)):
        if all(name in row for name in _PAIR):
            texts = [row[name] for name in (*_PAIR, _NEGATIVE) if name in row]
        else:
            texts = [row[_SINGLE]] if _SINGLE in row else list(row.values())
        texts = [text for text in texts if isinstance(text, str)]
        if not texts:
            raise InputError(
                f"training row {number} has no text among {', '.join(row) or 'no columns'} (rows "
                "count from 0): give rows with text_a and text_b, or text"
            )
        yield texts


def _each_row(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield rows, those of a `datasets.Dataset` in batches and with the text columns only."""
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        yield from rows
        return
    from tilth.data.examples import open_rows

    rows, _ = open_rows(rows, "train")
    names = rows.column_names
    is_pair = set(_PAIR) <= set(names)
    wanted = [name for name in (*_PAIR, _NEGATIVE) if is_pair and name in names]
    wanted = wanted or [name for name in names if name == _SINGLE] or list(names)
    for batch in rows.select_columns(wanted).with_format(None).iter(batch_size=_ROWS_AT_ONCE):
        for values in zip(*(batch[name] for name in wanted), strict=True):
            yield dict(zip(wanted, values, strict=True))
