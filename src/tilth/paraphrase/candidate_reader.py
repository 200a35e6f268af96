"""Reads candidates: rows of one or several data sets, with or without scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data import read_rows
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

TEXT_A, TEXT_B, MEANING, WORDING, TAGS = "text_a", "text_b", "meaning", "wording", "tags"
SCORES = (MEANING, WORDING)
_ROWS_AT_ONCE = 10_000

CandidateSource: TypeAlias = "str | Path | Dataset"


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
            return rows.cast(pa.schema([(name, pa.float32()) for name in SCORES]))
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
            if shared and field.name not in (TEXT_A, TEXT_B, *SCORES, TAGS):
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
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(f"{name}: column {column!r} holds {kind}, no text")
    return rows


def _arrow(rows: Dataset, columns: Sequence[str]) -> Dataset:
    return rows.select_columns(list(columns)).with_format("arrow")
