"""Compute the figures and examples of a `tilth paraphrase` run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.labels import label_text
from tilth.data.normalize import normalize_text
from tilth.data.parquet import schema_class_names
from tilth.errors import InputError
from tilth.paraphrase.candidates import BINS
from tilth.paraphrase.paraphrase_set import measured_names
from tilth.paraphrase.settings import FEWER
from tilth.paraphrase.similarity import long_enough
from tilth.paraphrase.tags import CELLS, Cell, asked_cell, cells_of
from tilth.report.html import number, percent
from tilth.report.quality import by_count
from tilth.report.run_reader import (
    counts_of,
    database,
    part_files,
    read_run,
    read_tables,
    row_keys,
    select,
    unfinished,
)

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN_EXAMPLES = 6  # of each list
DROPPED = "dropped: "  # before a reason, in a table
_LABELS = ("label", "labels")
_ORIGIN = ("source_row", "rewrite", "tries", "drop_reason")
_ROWS = pa.schema(
    {
        "source_row": pa.int64(),
        "tries": pa.int64(),
        "reason": pa.string(),
        "is_rewrite": pa.bool_(),
        "flips": pa.int64(),
    }
)
_PAIRS = pa.schema(
    {
        "row": pa.int64(),
        "key": pa.uint64(),  # of samples: the smallest are taken
        "source": pa.string(),
        "text": pa.string(),
        "label": pa.string(),
        "meaning": pa.float64(),
        "wording": pa.float64(),
        "is_counted": pa.bool_(),
        "distance": pa.float64(),
        "is_inside": pa.bool_(),
        "is_near": pa.bool_(),
        "is_same": pa.bool_(),
    }
)


@dataclass(frozen=True, slots=True)
class RewriteExample:
    """A text and its rewrite.

    Attributes:
        meaning: semantic similarity, 0-100.
        wording: lexical similarity, 0-100.
        distance: how far meaning and wording lie outside the requested cell; None: none is.
        label: empty for an unlabelled row.
    """

    source: str
    text: str
    meaning: float
    wording: float
    distance: float | None
    label: str


@dataclass(frozen=True, slots=True)
class RewriteSummary:
    """The figures of a run. A share is between 0 and 1; None where nothing was counted.

    Means and shares are over pairs of a text and its rewrite (several for a row with several
    texts), both with 4 words or more (Ogasa, Kajiwara and Arase, footnote 12). Nothing is requested
    of round trips.

    Attributes:
        asked_meaning: 70-100; None for round trips.
        asked_wording: 0-45; None for round trips.
        asked_tries: maximum decodings per sentence.
        asked_rewrites: rows times rewrites per row.
        dropped: reason -> rewrites that are missing for it, the most frequent first.
        short: pairs not counted because a text has under 4 words.
        meaning: mean, 0-100.
        wording: mean, 0-100.
        inside: share with meaning and wording in the requested cell.
        near: share with the wording in the requested step or an adjacent one.
        same: share equal to the source apart from case, punctuation and white space.
        tries: mean decodings per sentence of the rewritten rows.
        flips: outputs dropped for reversed polarity; None where polarity was not checked.
        plane: counted pairs by meaning and wording, in bins of 5 points. # (20, 20)
    """

    asked_meaning: float | None
    asked_wording: float | None
    asked_tries: int
    rows: int
    asked_rewrites: int
    kept: int
    dropped: dict[str, int]
    pairs: int
    short: int
    meaning: float | None
    wording: float | None
    inside: float | None
    near: float | None
    same: float | None
    tries: float | None
    flips: int | None
    plane: NDArray[np.int64] = field(repr=False)

    @property
    def cell(self) -> Cell | None:
        """Return the requested cell; None for round trips."""
        return _cell(self.asked_meaning, self.asked_wording)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable figures, without the plane."""
        names = [name for name in self.__dataclass_fields__ if name != "plane"]
        return {name: getattr(self, name) for name in names}

    def lines(self) -> list[list[str]]:
        """Return table rows to print: name, requested, obtained."""
        meaning = wording = searches = ""
        near: list[list[str]] = []
        if cell := self.cell:
            meaning = f"{self.asked_meaning:g} ({cell.meaning} to {cell.meaning_end})"
            wording = f"{self.asked_wording:g} ({cell.wording} to {cell.wording_end})"
            searches = f"at most {self.asked_tries}"
            near = [
                ["inside the asked cell", "", percent(self.inside)],
                ["wording in the asked step or beside it", "", percent(self.near)],
            ]
        flips = "not checked" if self.flips is None else f"{self.flips:,}"
        return [
            ["rewrites", f"{self.asked_rewrites:,}", f"{self.kept:,}"],
            *([f"{DROPPED}{why}", "", f"{count:,}"] for why, count in self.dropped.items()),
            ["meaning, mean", meaning, number(self.meaning, 1)],
            ["wording, mean", wording, number(self.wording, 1)],
            *near,
            ["same as the source", "", percent(self.same)],
            ["searches, mean", searches, number(self.tries, 1)],
            ["outputs left out, they say the opposite", "", flips],
            ["not counted, a text under 4 words", "", f"{self.short:,}"],
        ]


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """The content of a run's page: run.json, figures and example rewrites."""

    run: dict[str, Any]
    parts: list[Path]
    summary: RewriteSummary
    nearest: list[RewriteExample]
    sample: list[RewriteExample]
    farthest: list[RewriteExample]
    notices: list[str]


def read_rewrites(folder: Path) -> RewriteReport:
    """Read the parts of a run."""
    run = read_run(folder, "paraphrase")
    settings, parts = run["settings"], part_files(folder)
    cell, notices = _cell(*_asked(settings)), unfinished(run, parts)
    rows = _rows(read_tables(parts, (*_ORIGIN, "flips"), notices))
    tables = read_tables(parts, _pair_names(settings), notices)
    pairs = _pairs(tables, list(settings["columns"]), cell, _class_names(folder))
    with database(rewrites=(_ROWS, rows), pairs=(_PAIRS, pairs)) as engine:
        return RewriteReport(
            run=run,
            parts=parts,
            summary=_summary(engine, folder, settings),
            nearest=_examples(
                engine, "WHERE is_counted AND distance IS NOT NULL ORDER BY distance, key"
            ),
            sample=_examples(engine, "ORDER BY key"),
            farthest=_examples(
                engine, "WHERE is_counted AND distance > 0 ORDER BY distance DESC, key"
            ),
            notices=list(dict.fromkeys(notices)),  # both passes say so of a damaged part
        )


def _rows(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables with the columns of `_ROWS`."""
    for table in tables:
        yield pa.table(
            {
                "source_row": table["source_row"],
                "tries": table["tries"],
                "reason": table["drop_reason"],
                "is_rewrite": _is_rewrite(table),
                "flips": table["flips"],
            }
        )


def _is_rewrite(table: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.is_null(table["drop_reason"]), pc.greater(table["rewrite"], 0))


def _pair_names(settings: Mapping[str, Any]) -> list[str]:
    columns = list(settings["columns"])
    names = [name for one in columns for name in (one, *measured_names(one, columns))]
    return [*names, *(name for name in _LABELS if name not in columns), *_ORIGIN]


def _pairs(
    tables: Iterator[pa.Table],
    columns: Sequence[str],
    cell: Cell | None,
    classes: Mapping[str, Sequence[str]],
) -> Iterator[pa.Table]:
    """Yield tables with the columns of `_PAIRS`."""
    first = 0
    for table in tables:
        made = table.filter(_is_rewrite(table))
        labels = [name for name in _LABELS if name in made.column_names and name not in columns]
        told = [_label(row, classes) for row in made.select(labels).to_pylist()]
        for column in columns:
            original, *measured = measured_names(column, columns)
            source, text = (made[name].to_pylist() for name in (original, column))
            meaning, wording = (made[name].to_numpy().astype(np.float64) for name in measured)
            yield pa.table(
                {
                    "row": np.arange(first, first + len(made)),
                    "key": row_keys(first, len(made)),
                    "source": source,
                    "text": text,
                    "label": told or [""] * len(made),
                    "meaning": meaning,
                    "wording": wording,
                    "is_counted": long_enough(source, text),
                    **_nearness(cell, meaning, wording),
                    "is_same": [
                        normalize_text(a) == normalize_text(b)
                        for a, b in zip(source, text, strict=True)
                    ],
                }
            )
            first += len(made)


def _asked(settings: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the requested meaning and wording; None for round trips."""
    if settings.get("round_trip"):
        return None, None
    return settings["meaning"], settings["wording"]


def _cell(meaning: float | None, wording: float | None) -> Cell | None:
    return None if meaning is None or wording is None else asked_cell(meaning, wording)


def _nearness(
    cell: Cell | None, meaning: NDArray[np.float64], wording: NDArray[np.float64]
) -> dict[str, Any]:
    """Return the columns that compare pairs with the requested cell; nulls without one."""
    if cell is None:
        return dict.fromkeys(("distance", "is_inside", "is_near"), pa.nulls(len(meaning)))
    pairs = zip(meaning.tolist(), wording.tolist(), strict=True)
    return {
        "distance": [cell.distance(*pair) for pair in pairs],
        "is_inside": cells_of(meaning, wording) == CELLS.index(cell),
        "is_near": [cell.is_near(value) for value in wording.tolist()],
    }


def _label(row: Mapping[str, Any], classes: Mapping[str, Sequence[str]]) -> str:
    name = next((name for name in _LABELS if row.get(name) is not None), None)
    if name is None:
        return ""
    value, names = row[name], classes.get(name, ())
    if isinstance(value, list):
        return ", ".join(label_text(one, names) for one in value) or "none"
    return label_text(value, names)


def _class_names(folder: Path) -> dict[str, list[str]]:
    """Return label column -> class names, from the data set's metadata."""
    file = next(iter(sorted((folder / "dataset").rglob("*.parquet"))), None)
    try:
        return schema_class_names(pq.read_schema(file)) if file else {}
    except (pa.ArrowException, OSError):
        return {}  # labels are then shown as they are stored


def _summary(
    engine: DuckDBPyConnection, folder: Path, settings: Mapping[str, Any]
) -> RewriteSummary:
    (rows,) = select(
        engine,
        "SELECT count(DISTINCT source_row) AS rows, count(*) FILTER (is_rewrite) AS kept,"
        " avg(tries) FILTER (is_rewrite) AS tries, coalesce(sum(flips), 0)::BIGINT AS flips"
        " FROM rewrites",
    )
    if not rows["rows"]:
        raise InputError(f"{folder}: no rows to report in parts/; run `tilth paraphrase` first")
    # Of a row that is dropped all rewrites are missing.
    dropped = (
        f"SELECT reason, sum(CASE reason WHEN '{FEWER}' THEN 1 ELSE {int(settings['n'])} END)"
        "::BIGINT FROM rewrites WHERE reason IS NOT NULL GROUP BY reason"
    )
    (pairs,) = select(
        engine,
        "SELECT count(*) AS pairs, count(*) FILTER (NOT is_counted) AS short,"
        " fsum(meaning) FILTER (is_counted) / count(*) FILTER (is_counted) AS meaning,"
        " fsum(wording) FILTER (is_counted) / count(*) FILTER (is_counted) AS wording,"
        " avg(is_inside::INT) FILTER (is_counted) AS inside,"
        " avg(is_near::INT) FILTER (is_counted) AS near,"
        " avg(is_same::INT) FILTER (is_counted) AS same FROM pairs",
    )
    plane = np.zeros((BINS, BINS), np.int64)
    place = "greatest(least(floor({} / 5), 19), 0)::INTEGER"
    bins = (
        f"SELECT {place.format('meaning')}, {place.format('wording')}, count(*) FROM pairs"
        " WHERE is_counted GROUP BY ALL"
    )
    for meaning, wording, count in engine.execute(bins).fetchall():
        plane[meaning, wording] = count
    asked_meaning, asked_wording = _asked(settings)
    return RewriteSummary(
        asked_meaning=asked_meaning,
        asked_wording=asked_wording,
        asked_tries=settings["tries"],
        rows=rows["rows"],
        asked_rewrites=rows["rows"] * settings["n"],
        kept=rows["kept"],
        dropped=by_count(counts_of(engine, dropped)),
        tries=rows["tries"],
        flips=rows["flips"] if settings["polarity"] else None,
        plane=plane,
        **pairs,
    )


def _examples(engine: DuckDBPyConnection, order: str) -> list[RewriteExample]:
    names = ", ".join(RewriteExample.__dataclass_fields__)
    rows = select(engine, f"SELECT {names} FROM pairs {order} LIMIT {SHOWN_EXAMPLES}")
    return [RewriteExample(**row) for row in rows]
