"""Reads candidates of one or several data sets, and filters them with a count of each reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data import read_rows
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.labels import as_numbers, is_text
from tilth.data.normalize import exact_keys, normalize_text
from tilth.errors import InputError
from tilth.paraphrase.balance import PairPool, distinct
from tilth.paraphrase.similarity import long_enough
from tilth.paraphrase.tags import MEANINGS, ROUNDING, cells_of

if TYPE_CHECKING:
    from datasets import Dataset

TEXT_A, TEXT_B, MEANING, WORDING, TAG_COLUMN = "text_a", "text_b", "meaning", "wording", "tags"
SCORES = (MEANING, WORDING)
_ROWS_AT_ONCE = 10_000

CandidateSource: TypeAlias = "str | Path | Dataset"
BINS = 20  # of the plane of meaning and wording, in each direction: 5 points wide

NO_SCORE, SHORT = "no score from 0 to 100", "a text under 4 words"
MEANING_LOW, WORDING_HIGH = "meaning 70 or less", "wording above 45"
SAME, TWICE = "rewrite same as source", "pair there twice"
REASONS = (NO_SCORE, SHORT, MEANING_LOW, WORDING_HIGH, SAME, TWICE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one of the sets.

    Attributes:
        set: index of the set.
        start: first row in the set.
        end: exclusive.
        part: of the run that measures a set without scores; None: the set has scores.
    """

    set: int
    start: int
    end: int
    part: int | None

    def __len__(self) -> int:
        return self.end - self.start


class Candidates:
    """Rows of one or several data sets, read as one.

    Args:
        source: each with text_a and text_b, and meaning and wording where they are known.
        part_size: rows of a chunk of a set without scores.
    """

    def __init__(
        self, source: CandidateSource | Sequence[CandidateSource], *, part_size: int
    ) -> None:
        listed = list(source) if isinstance(source, (list, tuple)) else [source]
        if not listed:
            raise InputError("no candidates are given: name a run of `tilth paraphrase candidates`")
        self.names = [
            str(one) if isinstance(one, (str, Path)) else f"set {number}"
            for number, one in enumerate(listed, start=1)
        ]
        self.sets = [_checked(name, one) for name, one in zip(self.names, listed, strict=True)]
        self._columns = self._shared_columns()
        self._starts = np.cumsum([0, *(len(rows) for rows in self.sets)])
        if not len(self):
            raise InputError(f"{', '.join(self.names)}: there are no rows: give candidates")
        self.chunks: list[Chunk] = []
        self.parts: list[Chunk] = []  # the chunks without scores
        for index, rows in enumerate(self.sets):
            scored = has_scores(rows)
            step = _ROWS_AT_ONCE if scored else part_size
            for start in range(0, len(rows), step):
                end = min(start + step, len(rows))
                chunk = Chunk(index, start, end, None if scored else len(self.parts))
                self.chunks.append(chunk)
                self.parts += [] if scored else [chunk]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def texts(self, chunk: Chunk) -> tuple[list[str], list[str]]:
        """Return the sources and the rewrites of a chunk; a missing text is empty."""
        rows = _arrow(self.sets[chunk.set], (TEXT_A, TEXT_B))[chunk.start : chunk.end]
        first, second = (
            [text or "" for text in rows[name].to_pylist()] for name in (TEXT_A, TEXT_B)
        )
        return first, second

    def known_scores(self, chunk: Chunk) -> pa.Table:
        """Return meaning and wording of a chunk of a set that has them."""
        rows = _arrow(self.sets[chunk.set], SCORES)[chunk.start : chunk.end]
        try:
            return pa.table({name: as_numbers(rows[name], pa.float32()) for name in SCORES})
        except pa.ArrowException as error:
            raise InputError(
                f"{self.names[chunk.set]}: meaning and wording must be numbers from 0 to 100 "
                f"({str(error).splitlines()[0]})"
            ) from error

    def first_row(self, chunk: Chunk) -> int:
        """Return the number of a chunk's first row among all."""
        return int(self._starts[chunk.set]) + chunk.start

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return texts and origin of some rows, in the order given."""
        sets = np.searchsorted(self._starts, rows, side="right") - 1
        found, order = [], []
        for index in np.unique(sets):
            chosen = np.flatnonzero(sets == index)
            part = _arrow(self.sets[index], self._columns.names)
            found.append(part[rows[chosen] - self._starts[index]].cast(self._columns))
            order.append(chosen)
        if not found:
            return self._columns.empty_table()
        return pa.concat_tables(found).take(np.argsort(np.concatenate(order)))

    def _shared_columns(self) -> pa.Schema:
        """Return the columns of one type in all sets, except those that the corpus adds."""
        schemas = [rows.features.arrow_schema for rows in self.sets]
        kept = [pa.field(TEXT_A, pa.string()), pa.field(TEXT_B, pa.string())]
        for field in schemas[0]:
            shared = all(
                field.name in other.names and other.field(field.name).type == field.type
                for other in schemas
            )
            if shared and field.name not in (TEXT_A, TEXT_B, *SCORES, TAG_COLUMN):
                kept.append(pa.field(field.name, field.type))
        return pa.schema(kept)


def has_scores(rows: Dataset) -> bool:
    """Tell whether a set has meaning and wording."""
    return all(name in rows.column_names for name in SCORES)


def _checked(name: str, source: CandidateSource) -> Dataset:
    rows = read_rows(source) if isinstance(source, (str, Path)) else source
    columns = getattr(rows, "column_names", None)
    if not isinstance(columns, list):
        raise InputError(f"{name} is {type(rows).__name__}: give a data set, not its splits")
    for column in (TEXT_A, TEXT_B):
        if column not in columns:
            raise InputError(
                f"{name}: no column {column!r} among {', '.join(columns)}: candidates have text_a "
                "(the source) and text_b (the rewrite)"
            )
        kind = rows.features.arrow_schema.field(column).type
        if not is_text(kind):
            raise InputError(f"{name}: column {column!r} holds {kind}, no text")
    return rows


def _arrow(rows: Dataset, columns: Sequence[str]) -> Dataset:
    return rows.select_columns(list(columns)).with_format("arrow")


@dataclass(frozen=True, slots=True)
class FilteredPairs:
    """The pairs that may be drawn, and counts of all.

    Attributes:
        left_out: reason -> rows; each row counts for the first reason that applies.
        plane: pairs with a score and enough words, by meaning and wording. # (BINS, BINS)
        highest: the highest meaning, NaN without any.
    """

    pool: PairPool
    left_out: dict[str, int]
    plane: NDArray[np.int64]
    highest: float


def filter_candidates(
    candidates: Candidates,
    scores: Callable[[Chunk], pa.Table],
    *,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
) -> FilteredPairs:
    """Apply the paper's filter; leave out rewrites equal to their source, and repeated pairs.

    Memory grows with the kept pairs, by 42 bytes each, not with the texts.

    Args:
        scores: returns meaning and wording of a chunk, (rows,) each.
        seed: of the order in which pairs are drawn.
        progress: called with the number of rows after each chunk.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.3; texts under 4 words: footnote 12.
    """
    left_out = Counter(dict.fromkeys(REASONS, 0))
    plane = np.zeros((BINS, BINS), np.int64)
    pools, highest = [], float("nan")
    for chunk in candidates.chunks:
        first, second = candidates.texts(chunk)
        table = scores(chunk)
        meaning, wording = (table[name].to_numpy().astype(np.float32) for name in SCORES)
        highest = float(np.fmax(highest, np.fmax.reduce(meaning)))
        reasons = _reasons(meaning, wording, long_enough(first, second))
        measured = (reasons != NO_SCORE) & (reasons != SHORT)
        plane += plane_counts(meaning[measured], wording[measured])
        for row in np.flatnonzero(reasons == ""):
            if normalize_text(first[row]) == normalize_text(second[row]):
                reasons[row] = SAME
        left_out.update(reasons[reasons != ""].tolist())
        rows = np.flatnonzero(reasons == "")
        texts = [
            pa.array([side[row] for row in rows], pa.large_string()) for side in (first, second)
        ]
        pools.append(
            PairPool(
                row=candidates.first_row(chunk) + rows,
                cell=cells_of(meaning[rows], wording[rows]),
                source=exact_keys(texts[0]),
                rewrite=exact_keys(texts[1]),
                order=random_keys(seed, "paraphrase draw", *map(text_hashes, texts)),
                meaning=meaning[rows],
                wording=wording[rows],
            )
        )
        progress(len(first))
    names = [field.name for field in fields(PairPool)]
    pool = PairPool(*(np.concatenate([getattr(one, name) for one in pools]) for name in names))
    kept = distinct(pool)
    left_out[TWICE] += len(pool) - len(kept)
    return FilteredPairs(kept, dict(left_out), plane, highest)


def plane_counts(meaning: NDArray[np.float32], wording: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count pairs in bins of 5 points of meaning and wording; cosines below 0 count as 0."""
    bins = [
        np.clip(values * (BINS / 100), 0, BINS - 1).astype(np.int64)
        for values in (meaning, wording)
    ]
    counts = np.bincount(bins[0] * BINS + bins[1], minlength=BINS * BINS)
    return counts.reshape(BINS, BINS)  # (meaning, wording)


def _reasons(
    meaning: NDArray[np.float32], wording: NDArray[np.float32], long: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return the reason for excluding each row, or an empty text, (rows,)."""
    known = (meaning <= 100 + ROUNDING) & (wording >= 0) & (wording <= 100 + ROUNDING)
    reasons = np.full(len(meaning), WORDING_HIGH, np.object_)
    reasons[cells_of(meaning, wording) >= 0] = ""
    reasons[meaning <= MEANINGS[0]] = MEANING_LOW
    reasons[~long] = SHORT
    reasons[~known] = NO_SCORE
    return reasons
