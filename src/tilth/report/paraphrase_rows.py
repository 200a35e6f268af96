"""Reads a run of `tilth paraphrase` into its figures and examples, with bounded memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.paraphrase.filter import BINS, plane_counts
from tilth.paraphrase.similarity import long_enough
from tilth.paraphrase.tags import CELLS, asked_cell, cells_of
from tilth.report.paraphrase_figures import RewriteExample, RewriteSummary
from tilth.report.row_samples import row_keys
from tilth.report.run_reader import part_files, read_run_json, read_tables

COMMAND = "paraphrase"
SHOWN_EXAMPLES = 6  # of each list
_LABELS = ("label", "labels")
_ORIGIN = ("source_row", "rewrite", "tries", "drop_reason")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A run as its folder tells it: what was asked, the figures, rewrites to read."""

    asked: dict[str, Any]
    parts: list[Path]
    summary: RewriteSummary
    nearest: list[RewriteExample]
    drawn: list[RewriteExample]
    farthest: list[RewriteExample]
    notices: list[str]


def rewrite_summary(run_folder: str | Path) -> RewriteSummary:
    """Return the figures of a run of `tilth paraphrase`, finished or not.

    Memory does not grow with the rows.

    Raises:
        InputError: the folder holds no such run, or no rows yet.
        TilthError: its run.json cannot be read.
    """
    return gather_rewrites(run_folder).summary


def gather_rewrites(run_folder: str | Path, *, seed: int = 0) -> Gathered:
    """Read a run's parts; options and errors as of `rewrite_summary`.

    Args:
        run_folder: of a `tilth paraphrase FILE`.
        seed: of the random draw of examples.
    """
    folder = Path(run_folder)
    asked = read_run_json(folder, command=COMMAND)
    settings = asked["settings"]
    parts, notices = part_files(folder), list[str]()
    columns = list(settings["columns"])
    names = [name for column in columns for name in pair_columns(column, columns)]
    labels = [name for name in _LABELS if name not in columns]
    tally = _Tally(settings, _class_names(folder), seed)
    flips = ["flips"] if settings.get("polarity") else []
    for table in read_tables(parts, [*names, *labels, *_ORIGIN, *flips], notices):
        tally.add(table)
    if not tally.rows:
        raise InputError(f"{folder}: no rows to report in parts/; run `tilth paraphrase` first")
    if len(parts) < asked["parts"]:
        notices.insert(
            0,
            f"The run is not finished: {len(parts):,} of {asked['parts']:,} parts are there. "
            "The same command goes on where it stopped.",
        )
    return Gathered(
        asked, parts, tally.summary(), tally.nearest, tally.drawn, tally.farthest, notices
    )


def pair_columns(column: str, columns: Sequence[str]) -> tuple[str, str, str, str]:
    """Return where a text, its rewrite, meaning and wording stand; see `paraphrase_set`."""
    end = f"_{column}" if len(columns) > 1 else ""
    return f"original{end}", column, f"meaning{end}", f"wording{end}"


class _Tally:
    """Counts the rows of a run, a table at a time, and keeps a few of them to read."""

    def __init__(
        self, settings: Mapping[str, Any], classes: Mapping[str, Sequence[str]], seed: int
    ) -> None:
        self._settings, self._classes, self._seed = settings, classes, seed
        self._cell = asked_cell(settings["meaning"], settings["wording"])
        self._columns: list[str] = list(settings["columns"])
        self.rows, self._last, self._kept, self._tries = 0, -1, 0, 0
        self._pairs = self._counted = self._inside = self._near = self._same = 0
        self._flips = 0 if settings.get("polarity") else None
        self._sums = np.zeros(2)
        self._plane = np.zeros((BINS, BINS), np.int64)
        self._drops: Counter[str] = Counter()
        self.nearest: list[RewriteExample] = []
        self.drawn: list[RewriteExample] = []
        self.farthest: list[RewriteExample] = []

    def add(self, table: pa.Table) -> None:
        """Take in rows, those of a source row one after the other."""
        sources = table["source_row"].to_numpy()
        self.rows += int(np.count_nonzero(np.diff(sources, prepend=self._last)))
        self._last = int(sources[-1]) if len(sources) else self._last
        self._drops.update(table["drop_reason"].drop_null().to_pylist())
        if self._flips is not None:
            self._flips += int(pc.sum(table["flips"]).as_py() or 0)
        made = pc.and_(pc.is_null(table["drop_reason"]), pc.greater(table["rewrite"], 0))
        table = table.filter(made)
        self._kept += len(table)
        self._tries += int(pc.sum(table["tries"]).as_py() or 0)
        for column in self._columns:
            self._add_pairs(table, pair_columns(column, self._columns))

    def _add_pairs(self, table: pa.Table, names: tuple[str, str, str, str]) -> None:
        first, second = (table[name].to_pylist() for name in names[:2])
        scores = np.stack([table[name].to_numpy() for name in names[2:]]).astype(np.float64)
        keys = row_keys(self._pairs, len(table), self._seed)
        self._pairs += len(table)
        enough = long_enough(first, second)
        meaning, wording = scores[:, enough]  # (pairs,) each
        same = [
            normalize_text(first[place]) == normalize_text(second[place])
            for place in np.flatnonzero(enough)
        ]
        self._counted += len(meaning)
        self._sums += (meaning.sum(), wording.sum())
        self._inside += int((cells_of(meaning, wording) == CELLS.index(self._cell)).sum())
        self._near += sum(self._cell.is_near(value) for value in wording.tolist())
        self._same += sum(same)
        self._plane += plane_counts(meaning.astype(np.float32), wording.astype(np.float32))
        self._choose(table, names, enough, scores, keys)

    def _choose(
        self,
        table: pa.Table,
        names: tuple[str, str, str, str],
        enough: NDArray[np.bool_],
        scores: NDArray[np.float64],
        keys: NDArray[np.uint64],
    ) -> None:
        """Keep the pairs that are nearest, farthest or first by key, of all so far."""
        distance = np.array([self._cell.distance(*pair) for pair in scores.T.tolist()], np.float64)
        counts = np.flatnonzero(enough)
        outside = np.flatnonzero(enough & (distance > 0))
        near_first = counts[np.lexsort((keys[counts], distance[counts]))]
        far_first = outside[np.lexsort((keys[outside], -distance[outside]))]

        def examples(places: NDArray[np.int64]) -> Iterable[RewriteExample]:
            for place in places[:SHOWN_EXAMPLES].tolist():
                row = table.slice(place, 1).to_pylist()[0]
                source, text, meaning, wording = (row[name] for name in names)
                yield RewriteExample(
                    source, text, meaning, wording, float(distance[place]), self._label(row),
                    int(keys[place]),
                )  # fmt: skip

        self.nearest = sorted(
            chain(self.nearest, examples(near_first)), key=lambda one: (one.distance, one.key)
        )[:SHOWN_EXAMPLES]
        self.farthest = sorted(
            chain(self.farthest, examples(far_first)), key=lambda one: (-one.distance, one.key)
        )[:SHOWN_EXAMPLES]
        self.drawn = sorted(chain(self.drawn, examples(np.argsort(keys))), key=lambda one: one.key)[
            :SHOWN_EXAMPLES
        ]

    def _label(self, row: Mapping[str, Any]) -> str:
        name = next((name for name in _LABELS if row.get(name) is not None), None)
        if name is None:
            return ""
        value, classes = row[name], self._classes.get(name, ())
        if isinstance(value, int) and 0 <= value < len(classes):
            return classes[value]
        return f"{value:g}" if isinstance(value, float) else str(value)

    def summary(self) -> RewriteSummary:
        """Return the figures of all rows so far."""

        def share(count: float) -> float | None:
            return float(count) / self._counted if self._counted else None

        return RewriteSummary(
            asked_meaning=self._settings["meaning"],
            asked_wording=self._settings["wording"],
            asked_tries=self._settings["tries"] if self._settings.get("check", True) else 1,
            rows=self.rows,
            asked_rewrites=self.rows * self._settings["n"],
            kept=self._kept,
            dropped=dict(sorted(self._drops.items(), key=lambda drop: (-drop[1], drop[0]))),
            pairs=self._pairs,
            short=self._pairs - self._counted,
            meaning=share(self._sums[0]),
            wording=share(self._sums[1]),
            inside=share(self._inside),
            near=share(self._near),
            same=share(self._same),
            tries=self._tries / self._kept if self._kept else None,
            flips=self._flips,
            plane=self._plane,
        )


def _class_names(folder: Path) -> dict[str, list[str]]:
    """Return the classes' names of label columns that hold numbers, as the data set has them."""
    file = next(iter(sorted((folder / "dataset").rglob("*.parquet"))), None)
    try:
        metadata = (pq.read_schema(file).metadata or {}) if file else {}
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {name: list(features[name]["names"]) for name in _LABELS if name in features}
    except (KeyError, TypeError, ValueError, pa.ArrowException, OSError):
        return {}  # labels are then shown as they are stored
