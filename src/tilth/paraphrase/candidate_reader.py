"""Candidates as they are read: rows of one or several data sets, with or without scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

Source: TypeAlias = "str | Path | Dataset"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows in a row of one of the sets; those of a set without scores are a part each."""

    place: int
    start: int
    end: int
    part: int | None


class Candidates:
    """Rows of one or several data sets, read as one.

    Args:
        source: data sets or where they lie, each with text_a and text_b, and meaning and wording
            where they are known.
        part_size: rows of a set without scores that are scored at once.

    Raises:
        InputError: a set is not there, or a column is missing or holds something else.
    """

    def __init__(self, source: Source | Sequence[Source], *, part_size: int) -> None:
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
        self._chunks: list[Chunk] = []
        part = 0
        for place, rows in enumerate(self.sets):
            scored = has_scores(rows)
            step = _ROWS_AT_ONCE if scored else part_size
            for start in range(0, len(rows), step):
                end = min(start + step, len(rows))
                self._chunks.append(Chunk(place, start, end, None if scored else part))
                part += not scored

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def parts(self) -> list[Chunk]:
        """The chunks still to be scored."""
        return [chunk for chunk in self._chunks if chunk.part is not None]

    def texts(self, chunk: Chunk) -> tuple[list[str], list[str]]:
        """Return the sources and the rewrites of a chunk; a missing text is empty."""
        rows = _arrow(self.sets[chunk.place], (TEXT_A, TEXT_B))[chunk.start : chunk.end]
        first, second = (
            [text or "" for text in rows[name].to_pylist()] for name in (TEXT_A, TEXT_B)
        )
        return first, second

    def known_scores(self, chunk: Chunk) -> pa.Table:
        """Return meaning and wording of a chunk of a set that has them."""
        rows = _arrow(self.sets[chunk.place], SCORES)[chunk.start : chunk.end]
        try:
            return rows.cast(pa.schema([(name, pa.float32()) for name in SCORES]))
        except pa.ArrowException as error:
            raise InputError(
                f"{self.names[chunk.place]}: meaning and wording must be numbers from 0 to 100 "
                f"({str(error).splitlines()[0]})"
            ) from error

    def first_row(self, chunk: Chunk) -> int:
        """Return the number of a chunk's first row among all."""
        return int(self._starts[chunk.place]) + chunk.start

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks in order."""
        yield from self._chunks

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return texts and origin of some rows, in the order asked for."""
        sets = np.searchsorted(self._starts, rows, side="right") - 1
        found, places = [], []
        for place in np.unique(sets):
            chosen = np.flatnonzero(sets == place)
            part = _arrow(self.sets[place], self._columns.names)
            found.append(part[rows[chosen] - self._starts[place]].cast(self._columns))
            places.append(chosen)
        if not found:
            return self._columns.empty_table()
        return pa.concat_tables(found).take(np.argsort(np.concatenate(places)))

    def _shared_columns(self) -> pa.Schema:
        """Return the columns that all sets have alike, but for those this work adds."""
        schemas = [rows.features.arrow_schema for rows in self.sets]
        kept = [pa.field(TEXT_A, pa.string()), pa.field(TEXT_B, pa.string())]
        for field in schemas[0]:
            if field.name in (TEXT_A, TEXT_B, *SCORES, TAGS):
                continue
            if all(
                field.name in other.names and other.field(field.name).type == field.type
                for other in schemas
            ):
                kept.append(pa.field(field.name, field.type))
        return pa.schema(kept)


def has_scores(rows: Dataset) -> bool:
    """Tell whether a set comes with meaning and wording."""
    return all(name in rows.column_names for name in SCORES)


def _checked(name: str, source: Source) -> Dataset:
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
