"""The rows of a rewritten set: the columns as they came, the texts rewritten, and what of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tilth.data import text_id

if TYPE_CHECKING:
    from tilth.paraphrase.answers import Rewrite
    from tilth.paraphrase.settings import Asked

DROP_REASON = "drop_reason"
_NO_TEXT, _FEWER = "no text", "fewer rewrites than asked for"
# What every row says of itself, beside its texts: name -> type.
ORIGIN = {
    "source_row": pa.int64(), "source_id": pa.string(), "rewrite": pa.int32(),
    "asked_meaning": pa.float64(), "asked_wording": pa.float64(), "inside": pa.bool_(),
    "tries": pa.int32(), "flips": pa.int32(), "model": pa.string(), "seed": pa.int64(),
    DROP_REASON: pa.string(),
}  # fmt: skip


class Rows:
    """The rows of a part, built up."""

    def __init__(self, table: pa.Table, columns: tuple[str, ...], asked: Asked, model: str) -> None:
        self._table, self._columns, self._asked, self._model = table, columns, asked, model
        self._take: list[int] = []
        self._texts: dict[str, list[Any]] = {name: [] for name in columns}
        self._more: dict[str, list[Any]] = {
            name: [] for column in columns for name in measured(column, columns)
        } | {name: [] for name in ORIGIN}

    def add(
        self, row: int, source_row: int, sides: list[str | None], found: list[list[Rewrite] | None]
    ) -> None:
        """Add what became of a row."""
        problem = next(
            (f[0].problem if f else _NO_TEXT for f in found if not f or f[0].problem), None
        )
        if self._asked.originals and problem != _NO_TEXT:
            self._append(row, source_row, 0, sides, [None] * len(sides), None)
        if problem is not None:
            flips = sum(f[0].flips for f in found if f)
            self._append(row, source_row, 1, sides, [None] * len(sides), problem, flips)
            return
        rewrites: list[list[Rewrite]] = [f for f in found if f]
        for number in range(self._asked.n):
            some = [f[number] if number < len(f) else None for f in rewrites]
            if all(one is None for one in some):
                self._append(row, source_row, number + 1, sides, some, _FEWER)
                continue
            # A text with fewer rewrites than the other of its pair stays with its last.
            some = [one or f[-1] for one, f in zip(some, rewrites, strict=True)]
            self._append(row, source_row, number + 1, sides, some, None)

    def _append(
        self, row: int, source_row: int, number: int, sides: list[str | None],
        rewrites: Sequence[Rewrite | None], problem: str | None, flips: int | None = None,
    ) -> None:  # fmt: skip
        self._take.append(row)
        for name, side, rewrite in zip(self._columns, sides, rewrites, strict=True):
            self._texts[name].append(side if rewrite is None else rewrite.text)
            original, meaning, wording = measured(name, self._columns)
            self._more[original].append(side)
            self._more[meaning].append(rewrite and rewrite.meaning)
            self._more[wording].append(rewrite and rewrite.wording)
        made = [rewrite for rewrite in rewrites if rewrite is not None]
        for name, value in (
            ("source_row", source_row),
            ("source_id", text_id("\x1f".join(side or "" for side in sides))),
            ("rewrite", number),
            ("asked_meaning", self._asked.meaning if number else None),
            ("asked_wording", self._asked.wording if number else None),
            ("inside", all(rewrite.inside for rewrite in made) if made else None),
            ("tries", max((rewrite.tries for rewrite in made), default=None)),
            ("flips", sum(rewrite.flips for rewrite in made) if made else flips),
            ("model", self._model if number else None),
            ("seed", self._asked.seed),
            (DROP_REASON, problem),
        ):
            self._more[name].append(value)

    def table(self) -> pa.Table:
        """Return the rows."""
        table = self._table.take(pa.array(self._take, pa.int64()))
        for name, texts in self._texts.items():
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(texts, field.type))
        for name, values in self._more.items():
            kind = ORIGIN.get(name) or (
                pa.string() if name.startswith("original") else pa.float64()
            )
            table = table.append_column(name, pa.array(values, kind))
        return table.replace_schema_metadata(None)


def measured(column: str, columns: Sequence[str]) -> tuple[str, str, str]:
    """Return the names of the columns that say what became of a text."""
    end = f"_{column}" if len(columns) > 1 else ""
    return f"original{end}", f"meaning{end}", f"wording{end}"
