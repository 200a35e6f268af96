"""Index the rows of a run: filter, sort, page, count and search them.

Numbers and codes of labels lie in memory, 40 bytes a row; texts and the index of their words in a
temporary DuckDB database, which the process removes at its end.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import text_hashes
from tilth.data.temp_arrow import process_folder
from tilth.errors import TilthError
from tilth.view.rows import NUMBERS, canonical_tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

log = logging.getLogger(__name__)

BINS = 24  # of a histogram
_TOGETHER = 100_000  # rows that are indexed together
_MOST_SOURCES = 20_000  # with more, sources are no list to choose from
_SEARCHES_KEPT = 64
_SPAN = 2_000  # rows between the first and the last of a page that are read rather than looked up
_COUNTS_KEPT = 2_000
# Letters and digits; characters of scripts without spaces stand alone.
_ALONE = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = rf"[{_ALONE}]|[^\pP\pS\pZ\pC{_ALONE}]+"
KEPT, DROPPED = "kept", "dropped"
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are shown, and in what order.

    Attributes:
        words: all must occur in the texts; one that ends with an asterisk is a beginning.
        state: `KEPT`, `DROPPED` or empty.
        group: the input that rows were made from.
        ranges: number -> least and most value.
        sort: a number's name, or empty: the order of the run.
    """

    words: str = ""
    state: str = ""
    label: str | None = None
    reason: str | None = None
    source: str | None = None
    config: str | None = None
    group: str | None = None
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    sort: str = ""
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of evenly wide bins between `low` and `high`."""

    low: float
    high: float
    counts: list[int]

    def edges(self, place: int) -> tuple[float, float]:
        """Return the least and most value of a bin."""
        width = (self.high - self.low) / len(self.counts)
        return self.low + place * width, self.low + (place + 1) * width


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of a page, and whether others stand before and after them."""

    rows: list[dict[str, Any]]
    has_before: bool
    has_after: bool


@dataclass(slots=True)
class _Codes:
    """A column of few distinct values: a number for each row, -1 for none."""

    values: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    rows: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def add(self, column: pa.ChunkedArray) -> NDArray[np.int32]:
        """Return the numbers of some rows; new values get the next ones."""
        coded = pc.dictionary_encode(column).combine_chunks()
        own = []
        for value in coded.dictionary.to_pylist():
            if value not in self.places:
                self.places[value] = len(self.values)
                self.values.append(value)
            own.append(self.places[value])
        indices = pc.fill_null(coded.indices, len(own)).to_numpy(zero_copy_only=False)
        numbers: NDArray[np.int32] = np.asarray([*own, -1], np.int32)[indices]
        return numbers  # (rows,)

    def is_value(self, value: str) -> Mask:
        """Return which rows have a value."""
        mask: Mask = self.rows == self.places.get(value, -2)
        return mask  # (rows,)

    def counts(self, mask: Mask) -> dict[str, int]:
        """Return value -> rows of a mask, the most frequent first."""
        found = np.bincount(self.rows[mask] + 1, minlength=len(self.values) + 1)[1:]
        order = np.argsort(-found, kind="stable")
        return {self.values[place]: int(found[place]) for place in order.tolist() if found[place]}


class RowStore:
    """The rows of one run, read in the background; files that appear later are added.

    Args:
        place: folder of the temporary database; None: one that is removed, after a kill as well.
        memory: megabytes of the database's cache.
    """

    def __init__(self, place: Path | None = None, *, memory: int = 96) -> None:
        import duckdb

        place = place or process_folder(tempfile.gettempdir(), os.getpid())
        folder = tempfile.mkdtemp(prefix="rows-", dir=place)
        self._remove = weakref.finalize(self, shutil.rmtree, folder, True)
        self._engine = duckdb.connect(
            f"{folder}/rows.duckdb",
            config={
                "threads": 2,
                "memory_limit": f"{memory}MB",
                "temp_directory": f"{folder}/spill",
            },
        )
        self._engine.execute(
            "CREATE TABLE texts (row INTEGER, first VARCHAR, text VARCHAR);"
            "CREATE TABLE words (word VARCHAR, row INTEGER)"
        )
        self._lock = threading.RLock()  # of the columns below and the caches
        self._adding = threading.Lock()
        self.codes = {name: _Codes() for name in ("label", "reason", "source", "config")}
        self.numbers: dict[str, NDArray[np.float32]] = {}
        self._groups = np.empty(0, np.uint64)
        self._files: list[tuple[int, Path]] = []  # first row, file
        self._seen: set[Path] = set()
        self._searches: OrderedDict[str, NDArray[np.uint8]] = OrderedDict()  # packed masks
        self._counts: OrderedDict[Any, Any] = OrderedDict()  # of filters
        self._binned: dict[str, _Binned | None] = {}
        self._orders: dict[tuple[str, bool], NDArray[np.int32]] = {}
        self.rows = 0
        self.is_loading = False
        self.notices: list[str] = []

    def close(self) -> None:
        """Remove the database."""
        self._engine.close()
        self._remove()

    def refresh(self, files: Sequence[tuple[str, Path]], *, seconds: float | None = None) -> None:
        """Read new files in the background; wait for them some seconds, or until they are read."""
        new = [one for one in files if one[1] not in self._seen]
        if not new or not self._adding.acquire(blocking=seconds is None):
            return
        self.is_loading = True
        thread = threading.Thread(target=self._read, args=(new,), daemon=True)
        thread.start()
        thread.join(seconds)

    def _read(self, files: Sequence[tuple[str, Path]]) -> None:
        try:
            waiting: list[tuple[pa.Table, str]] = []
            held = 0
            for config, path in files:
                self._seen.add(path)
                with self._lock:
                    self._files.append((self.rows + held, path))
                try:
                    for table in canonical_tables(path):
                        waiting.append((table, config))
                        held += len(table)
                        if held >= _TOGETHER:
                            self._add(waiting)
                            waiting, held = [], 0
                except (TilthError, pa.ArrowException, OSError) as error:
                    log.warning("%s cannot be read: %s", path, error)
                    self.notices.append(f"{path.name} could not be read and is left out.")
            self._add(waiting)
        finally:
            pa.default_memory_pool().release_unused()
            self.is_loading = False
            self._adding.release()

    def _add(self, tables: Sequence[tuple[pa.Table, str]]) -> None:
        """Index tables, then show them."""
        if not tables:
            return
        table = pa.concat_tables([one for one, _ in tables], promote_options="default")
        configs = np.repeat([config for _, config in tables], [len(one) for one, _ in tables])
        first, count = self.rows, len(table)
        texts = pa.table(
            {
                "row": pa.array(np.arange(first, first + count, dtype=np.int32)),
                "first": table["first"],
                "text": table["text"],
            }
        )
        with self._engine.cursor() as engine:
            engine.register("new", texts)
            engine.execute("INSERT INTO texts SELECT row, first, text FROM new")
            engine.execute(
                "INSERT INTO words SELECT DISTINCT word, row FROM (SELECT row, unnest("
                "regexp_extract_all(lower(concat_ws(' ', first, text)), ?)) AS word FROM new)"
                " ORDER BY word, row",
                [_WORD],
            )
            engine.unregister("new")
        groups = text_hashes(pc.fill_null(table["group"], "").combine_chunks())
        with self._lock:
            columns = {name: table[name] for name in ("label", "reason", "source")}
            columns["config"] = pa.chunked_array([pa.array(configs, pa.string())])
            for name, column in columns.items():
                codes = self.codes[name]
                if name == "source" and len(codes.values) > _MOST_SOURCES:
                    column = pa.chunked_array([pa.nulls(count, pa.string())])
                codes.rows = np.append(codes.rows, codes.add(column))
            self._groups = np.append(self._groups, groups)
            for name in NUMBERS:
                if name in table.column_names or name in self.numbers:
                    held = self.numbers.get(name, np.full(first, np.nan, np.float32))
                    new = (
                        table[name].to_numpy()
                        if name in table.column_names
                        else np.full(count, np.nan, np.float32)
                    )
                    self.numbers[name] = np.append(held, new.astype(np.float32))
            for cache in (self._searches, self._counts, self._binned, self._orders):
                cache.clear()
            self.rows = first + count

    def page(
        self, chosen: RowFilter, *, size: int, after: int | None = None, before: int | None = None
    ) -> RowPage:
        """Return the rows behind row `after`, or those ahead of row `before`."""
        with self._lock:
            places = self._sorted(chosen)
        start, stop = 0, size
        if after is not None:
            start = _position(places, after, chosen) + 1
            stop = start + size
        elif before is not None:
            stop = _position(places, before, chosen)
            start = max(stop - size, 0)
        return RowPage(self.fetch(places[start:stop].tolist()), start > 0, stop < len(places))

    def select(self, chosen: RowFilter) -> NDArray[np.int32]:
        """Return the numbers of all rows of a filter, in its order."""
        with self._lock:
            return self._sorted(chosen)

    def _sorted(self, chosen: RowFilter) -> NDArray[np.int32]:
        mask = self._mask(chosen)
        if chosen.sort not in self.numbers:
            places = np.flatnonzero(mask).astype(np.int32)
            return places[::-1] if chosen.descending and not chosen.sort else places
        key = chosen.sort, chosen.descending
        if key not in self._orders:
            values = self.numbers[chosen.sort]
            # Rows without the number come last either way.
            order = np.argsort(-values if chosen.descending else values, kind="stable")
            self._orders[key] = order.astype(np.int32)
        kept: NDArray[np.int32] = self._orders[key]
        return kept[mask[kept]]  # (rows of the filter,)

    def _mask(self, chosen: RowFilter, without: str = "") -> Mask:
        """Return which rows pass a filter, one part of it left out."""
        mask = np.ones(self.rows, np.bool_)
        if chosen.words.strip():
            mask &= np.unpackbits(self._search(chosen.words), count=self.rows).view(np.bool_)
        if chosen.state and without != "state":
            dropped = self.codes["reason"].rows >= 0
            mask &= dropped if chosen.state == DROPPED else ~dropped
        for name in self.codes:
            value = getattr(chosen, name)
            if value is not None and name != without:
                mask &= self.codes[name].is_value(value)
        if chosen.group is not None:
            mask &= self._groups == text_hashes(pa.array([chosen.group]))[0]
        for name, (low, high) in chosen.ranges.items():
            if name == without:
                continue
            values = self.numbers.get(name, np.full(self.rows, np.nan, np.float32))
            if low is not None:
                mask &= values >= np.float32(low)
            if high is not None:
                mask &= values <= np.float32(high)
        return mask  # (rows,)

    def _search(self, words: str) -> NDArray[np.uint8]:
        """Return which rows hold all words in their texts, as packed bits."""
        asked = " ".join(words.lower().split())
        if asked in self._searches:
            self._searches.move_to_end(asked)
            return self._searches[asked]
        found: NDArray[np.int32] | None = None
        with self._engine.cursor() as engine:
            for word, is_beginning in self._words(engine, asked):
                rows = _rows_of_word(engine, word, is_beginning)
                found = rows if found is None else found[np.isin(found, rows, assume_unique=True)]
        mask = np.zeros(self.rows, np.bool_)
        if found is not None:
            mask[found[found < self.rows]] = True  # others are being added
        packed = np.packbits(mask)
        _keep(self._searches, asked, packed, _SEARCHES_KEPT)
        return packed

    def _words(self, engine: DuckDBPyConnection, asked: str) -> Iterator[tuple[str, bool]]:
        """Yield the words of a search, and whether each is only a beginning."""
        for piece in asked.split():
            found = engine.execute("SELECT regexp_extract_all(?, ?)", [piece, _WORD]).fetchall()
            words = found[0][0]
            for word in words:
                yield word, piece.endswith("*") and word is words[-1]

    def count(self, chosen: RowFilter) -> int:
        """Return the number of rows of a filter."""
        return int(self._counted("", chosen, lambda mask: mask.sum()))

    def fetch(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows by their numbers, in the given order."""
        if not len(rows):
            return []
        low, high = min(rows), max(rows)
        which = "" if high - low < _SPAN else f" AND rowid IN ({', '.join(map(str, rows))})"
        query = "SELECT rowid, first, text FROM texts WHERE rowid BETWEEN ? AND ?"
        with self._engine.cursor() as engine:
            texts = engine.execute(query + which, [low, high]).fetchall()
        by_row = {row: (first, text) for row, first, text in texts}
        found = []
        with self._lock:
            for row in rows:
                one: dict[str, Any] = {"row": row, "first": by_row[row][0], "text": by_row[row][1]}
                for name, codes in self.codes.items():
                    code = int(codes.rows[row])
                    one[name] = codes.values[code] if code >= 0 else None
                for name, values in self.numbers.items():
                    value = float(values[row])
                    one[name] = None if np.isnan(value) else value
                found.append(one)
        return found

    def file_of(self, row: int) -> tuple[Path, int] | None:
        """Return the file of a row, and its place in it."""
        with self._lock:
            if not 0 <= row < self.rows:
                return None
            begun, path = [one for one in self._files if one[0] <= row][-1]
            return path, row - begun

    def values_of(self, name: str) -> list[str]:
        """Return the values of a column of codes, in the order in which they occur."""
        with self._lock:
            return list(self.codes[name].values)

    def counts(self, name: str, chosen: RowFilter) -> dict[str, int]:
        """Return value -> rows that pass all of a filter but its own part."""
        codes = self.codes[name]
        return dict(self._counted(name, chosen, lambda mask: codes.counts(mask)))

    def states(self, chosen: RowFilter) -> dict[str, int]:
        """Return the numbers of kept and of dropped rows of a filter."""

        def count(mask: Mask) -> dict[str, int]:
            dropped = int((mask & (self.codes["reason"].rows >= 0)).sum())
            return {KEPT: int(mask.sum()) - dropped, DROPPED: dropped}

        return dict(self._counted("state", chosen, count))

    def _counted(self, name: str, chosen: RowFilter, count: Callable[[Mask], Any]) -> Any:
        """Return what `count` says of the rows that pass a filter without one part of it."""
        parts = {one.name: getattr(chosen, one.name) for one in fields(chosen)}
        ranges = {key: ends for key, ends in parts.pop("ranges").items() if key != name}
        for other in (name, "sort", "descending"):
            parts.pop(other, None)
        key = name, *parts.values(), *sorted(ranges.items())
        with self._lock:
            if key in self._counts:
                self._counts.move_to_end(key)
                return self._counts[key]
            return _keep(self._counts, key, count(self._mask(chosen, name)), _COUNTS_KEPT)

    def histogram(self, name: str, chosen: RowFilter) -> Histogram | None:
        """Return the distribution of a number over the rows that pass a filter but its own range.

        None where no row of the run has the number.
        """
        with self._lock:
            if name not in self._binned:
                self._binned[name] = _binned(self.numbers[name])
            binned = self._binned[name]
        if binned is None:
            return None

        def count(mask: Mask) -> list[int]:
            found = np.bincount(binned.places[mask], minlength=binned.bins + 1)
            return list(found[: binned.bins].tolist())

        return Histogram(binned.low, binned.high, self._counted(name, chosen, count))


def _keep(cache: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> Any:
    """Keep a value in a cache, which loses its oldest one if it is full; return the value."""
    cache[key] = value
    if len(cache) > most:
        cache.popitem(last=False)
    return value


def _position(places: NDArray[np.int32], row: int, chosen: RowFilter) -> int:
    """Return where a row stands; in the order of the run, where it would stand."""
    if not chosen.sort and not chosen.descending:
        place = int(np.searchsorted(places, row))
        return place if place < len(places) and places[place] == row else place - 1
    found = np.flatnonzero(places == row)
    return int(found[0]) if len(found) else -1


def _rows_of_word(engine: DuckDBPyConnection, word: str, is_beginning: bool) -> NDArray[np.int32]:
    if not is_beginning:
        query = "SELECT row FROM words WHERE word = ?"
        found = engine.execute(query, [word]).fetchnumpy()["row"]
        return np.sort(np.asarray(found, np.int32))
    query = "SELECT DISTINCT row FROM words WHERE word >= ? AND starts_with(word, ?)"
    found = engine.execute(query, [word, word]).fetchnumpy()["row"]
    return np.sort(np.asarray(found, np.int32))


@dataclass(frozen=True, slots=True)
class _Binned:
    """The bin of each row's number, the last one for rows without; the ends of the bins."""

    low: float
    high: float
    bins: int
    places: NDArray[np.uint8]


def _binned(values: NDArray[np.float32]) -> _Binned | None:
    """Return the bins of numbers; None where no row has one."""
    found = _bins(values)
    if found is None:
        return None
    low, high, bins = found
    with np.errstate(invalid="ignore"):
        places = np.floor((values - low) * (bins / (high - low)))
        places = np.where(np.isfinite(values), places.clip(0, bins - 1), bins)
    return _Binned(low, high, bins, places.astype(np.uint8))


def _bins(values: NDArray[np.float32]) -> tuple[float, float, int] | None:
    """Return the ends of a histogram and its number of bins; None without values.

    The ends are 0 to 1, -1 to 1 or 0 to 100 where they fit; whole numbers lie amid their bins.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    if high - low >= 1 and not np.any(finite % 1):
        width = -(-int(high - low + 1) // BINS)
        bins = -(-int(high - low + 1) // width)
        return low - 0.5, low - 0.5 + bins * width, bins
    for least, most in ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0)):
        if least <= low and high <= most + 1e-4 and high > most / 2:
            return least, most, BINS
    return (low, high, BINS) if high > low else (low - 0.5, high + 0.5, BINS)
