"""Index the rows of a run: filter, sort, page, count and search them.

Numbers and codes of labels lie in memory, 50 bytes a row; texts and the index of their words in
temporary files, which the process removes at its end.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import text_hashes
from tilth.data.temp_arrow import process_folder
from tilth.view.annotations import NO_LABEL
from tilth.view.columns import Binned, CodedColumn, Histogram, Mask, Rows, RowSelection, binned_of
from tilth.view.rows import NUMBERS, canonical_tables
from tilth.view.text_index import TextFile, WordIndex, words_of_search

log = logging.getLogger(__name__)

_TOGETHER, _BYTES_TOGETHER = 50_000, 64 << 20  # rows and bytes that are indexed together
_MOST_SOURCES = 20_000  # with more, sources are no list to choose from
_SEARCHES_KEPT, _SELECTIONS_KEPT = 64, 4
_COUNTS_KEPT, _MADE_KEPT = 2_000, 300
_WALKED = 4_096  # rows of an order that are looked at together
_COMMON = 0.05  # words of a larger share of the rows say little of which rows are similar
_MOST_COMPARED = 64  # words of a row, the rarest
_SHARED_LEAST = 1e-3  # weight of what two rows share
_FEW = 50_000  # rows that are sorted at once rather than looked for in the order of all
_CODED = ("label", "reason", "source", "config")
KEPT, DROPPED = "kept", "dropped"
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are shown, and in what order.

    Attributes:
        words: all must occur in the texts; one that ends with an asterisk is a beginning.
        state: `KEPT`, `DROPPED` or empty.
        kind: one of a row's several classes, or of the types of its entities.
        group: the input that rows were made from.
        ranges: number -> least and most value.
        sort: a number's name, or empty: the order of the run.
    """

    words: str = ""
    state: str = ""
    label: str | None = None
    kind: str | None = None
    reason: str | None = None
    source: str | None = None
    config: str | None = None
    group: str | None = None
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    sort: str = ""
    descending: bool = False

    def parts(self) -> dict[str, Any]:
        """Return what rows are filtered by: name -> value."""
        named = {name: getattr(self, name) for name in (*_CODED, "kind", "group")}
        found: dict[str, Any] = {"words": " ".join(self.words.split()), "state": self.state}
        found = {name: value for name, value in found.items() if value}
        found |= {name: value for name, value in named.items() if value is not None}
        return found | dict(self.ranges)


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of a page, and whether others stand before and after them."""

    rows: list[dict[str, Any]]
    has_before: bool
    has_after: bool


class RowStore:
    """The rows of one run, read in the background; files that appear later are added.

    Args:
        place: folder of the temporary files; None: one that is removed, after a kill as well.
    """

    def __init__(self, place: Path | None = None) -> None:
        place = place or process_folder(tempfile.gettempdir(), os.getpid())
        folder = Path(tempfile.mkdtemp(prefix="rows-", dir=place))
        self._texts = TextFile(folder / "texts")
        self._index = WordIndex(folder / "words")
        self._remove = weakref.finalize(self, _remove, folder, self._texts, self._index)
        self._lock = threading.RLock()  # of the columns below and the caches
        self._adding = threading.Lock()
        self.codes = {name: CodedColumn() for name in _CODED}
        self.codes["label"].none = NO_LABEL
        self.kinds = CodedColumn()  # a code for each kind of each row
        self._kind_rows = np.empty(0, np.int32)
        self.numbers: dict[str, NDArray[np.float32]] = {}
        self._groups = np.empty(0, np.uint64)
        self._files: list[tuple[int, Path]] = []  # first row, file
        self._seen: set[Path] = set()
        self._searches: OrderedDict[Any, NDArray[np.uint8]] = OrderedDict()  # packed masks
        self._selections: OrderedDict[Any, RowSelection] = OrderedDict()
        self._counts: OrderedDict[Any, Any] = OrderedDict()  # of filters
        self._made: OrderedDict[Any, Any] = OrderedDict()  # parts of pages
        self._binned: dict[str, Binned | None] = {}
        self._orders: dict[tuple[str, bool], Rows] = {}
        self.rows = 0
        self.is_loading = self._is_broken = False
        self.notices: list[str] = []

    @property
    def is_waiting(self) -> bool:
        """Return whether the first rows are still being read."""
        return self.is_loading and not self.rows

    def close(self) -> None:
        """Remove the files."""
        self._remove()

    def refresh(self, files: Sequence[tuple[str, Path]], *, seconds: float | None = None) -> None:
        """Read new files in the background; wait for them some seconds, or until all are read."""
        if not self._adding.acquire(blocking=seconds is None):
            return
        new = [one for one in files if one[1] not in self._seen]
        if not new or self._is_broken:
            self._adding.release()
            return
        self.is_loading = True
        thread = threading.Thread(target=self._read, args=(new,), daemon=True)
        thread.start()
        thread.join(seconds)

    def _read(self, files: Sequence[tuple[str, Path]]) -> None:
        waiting: list[tuple[pa.Table, str]] = []
        held = size = 0
        try:
            for config, path in files:
                self._seen.add(path)
                with self._lock:
                    self._files.append((self.rows + held, path))
                for table in self._tables(path):
                    waiting.append((table, config))
                    held, size = held + len(table), size + table.nbytes
                    if held >= _TOGETHER or size >= _BYTES_TOGETHER:
                        self._add(waiting)
                        waiting, held, size = [], 0, 0
            self._add(waiting)
        except (pa.ArrowException, OSError) as error:  # the disk of temporary files is full
            self._is_broken = True  # a part of the rows may be written
            log.warning("rows cannot be indexed: %s", error)
            self.notices.append(f"Not all rows could be indexed: {error}")
        finally:
            pa.default_memory_pool().release_unused()
            self.is_loading = False
            self._adding.release()

    def _tables(self, path: Path) -> Iterator[pa.Table]:
        """Yield the rows of a file; what cannot be read is left out and named."""
        try:
            yield from canonical_tables(path)
        except Exception as error:  # whatever is in it, other files are shown
            log.warning("%s cannot be read: %s", path, error)
            self.notices.append(f"{path.name} could not be read and is left out.")

    def _add(self, tables: Sequence[tuple[pa.Table, str]]) -> None:
        """Index tables, then show them."""
        if not tables:
            return
        table = pa.concat_tables([one for one, _ in tables], promote_options="default")
        configs = np.repeat([config for _, config in tables], [len(one) for one, _ in tables])
        first, count = self.rows, len(table)
        self._index.append(self._texts.append(table["first"], table["text"]), first)
        groups = text_hashes(pc.fill_null(table["group"], "").combine_chunks())
        with self._lock:
            columns = {name: table[name] for name in ("label", "reason", "source")}
            columns["config"] = pa.chunked_array([pa.array(configs, pa.string())])
            for name, column in columns.items():
                codes = self.codes[name]
                if name == "source" and len(codes.values) > _MOST_SOURCES:
                    column = pa.chunked_array([pa.nulls(count, pa.string())])
                codes.rows = np.append(codes.rows, codes.add(column))
            kinds = table["kinds"].combine_chunks()
            own = self.kinds.add(pa.chunked_array([kinds.flatten()]))
            self.kinds.rows = np.append(self.kinds.rows, own)
            rows = pc.list_parent_indices(kinds).to_numpy() + first
            self._kind_rows = np.append(self._kind_rows, rows.astype(np.int32))
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
            caches = self._searches, self._selections, self._counts, self._made
            for cache in (*caches, self._binned, self._orders):
                cache.clear()
            self.rows = first + count

    def page(
        self, chosen: RowFilter, *, size: int, after: int | None = None, before: int | None = None
    ) -> RowPage:
        """Return the rows behind row `after`, or those ahead of row `before`."""
        selection, order = self._selected(chosen), self._order(chosen)
        mask = selection.mask()
        is_older = order is not None and mask is not None and len(order) != len(mask)
        if order is None or mask is None or is_older or len(selection.numbers()) <= _FEW:
            places = self.select(chosen)
            start, stop = 0, size
            if after is not None:
                start = _position(places, after, chosen, "right")
                stop = start + size
            elif before is not None and (end := _position(places, before, chosen, "left")):
                start, stop = max(end - size, 0), end
            return RowPage(self.fetch(places[start:stop].tolist()), start > 0, stop < len(places))
        seen = after if after is not None else before
        if seen is None or not (seen < len(mask) and mask[seen]):
            found = _walk(order, mask, size)
            return RowPage(self.fetch(found[:size]), False, len(found) > size)
        place = int(np.flatnonzero(order == seen)[0])
        if after is not None:
            found = _walk(order[place + 1 :], mask, size)
            return RowPage(self.fetch(found[:size]), True, len(found) > size)
        found = _walk(order[:place][::-1], mask, size)
        return RowPage(self.fetch(found[:size][::-1]), len(found) > size, True)

    def select(self, chosen: RowFilter) -> Rows:
        """Return the numbers of all rows of a filter, in its order."""
        rows = self._selected(chosen).numbers()
        if chosen.sort not in self.numbers:
            return rows[::-1] if chosen.descending and not chosen.sort else rows
        order = self._order(chosen)
        if order is not None and len(rows) == len(order):
            return order
        values = self.numbers[chosen.sort][rows]
        return rows[np.argsort(-values if chosen.descending else values, kind="stable")]

    def _order(self, chosen: RowFilter) -> Rows | None:
        """Return all rows in the order of a number, those without it last; None: none is asked."""
        with self._lock:
            if chosen.sort not in self.numbers:
                return None
            key = chosen.sort, chosen.descending
            if key not in self._orders:
                values = self.numbers[chosen.sort]
                order = np.argsort(-values if chosen.descending else values, kind="stable")
                self._orders[key] = order.astype(np.int32)
            return self._orders[key]

    def _selected(self, chosen: RowFilter) -> RowSelection:
        """Return the rows of a filter."""
        parts, rows = chosen.parts(), self.rows

        def make() -> RowSelection:
            masks = {name: self._mask(name, value, rows)[:rows] for name, value in parts.items()}
            return RowSelection(masks, rows)

        return self._cached(self._selections, (rows, *parts.items()), make, _SELECTIONS_KEPT)

    def _cached(
        self, cache: OrderedDict[Any, Kept], key: Any, make: Callable[[], Kept], most: int
    ) -> Kept:
        """Return what a cache holds for a key, or make it; a full cache loses its oldest value."""
        with self._lock:
            if key in cache:
                cache.move_to_end(key)
                return cache[key]
        made = make()
        with self._lock:
            cache[key] = made
            if len(cache) > most:
                cache.popitem(last=False)
        return made

    def _mask(self, name: str, value: Any, rows: int) -> Mask:
        """Return which rows pass one part of a filter."""
        if name == "words":
            return np.unpackbits(self._search(value, rows), count=rows).view(np.bool_)
        if name == "state":
            dropped: Mask = self.codes["reason"].rows >= 0
            return dropped if value == DROPPED else ~dropped
        if name in self.codes:
            return self.codes[name].is_value(value)
        if name == "kind":
            mask = np.zeros(rows, np.bool_)
            some = self._kind_rows[self.kinds.is_value(value)]
            mask[some[some < rows]] = True
            return mask
        if name == "group":
            return np.asarray(self._groups == text_hashes(pa.array([value]))[0])
        values = self.numbers.get(name, np.full(rows, np.nan, np.float32))
        low, high = value
        above = values >= np.float32(-np.inf if low is None else low)
        return np.asarray(above & (values <= np.float32(np.inf if high is None else high)))

    def _search(self, words: str, rows: int) -> NDArray[np.uint8]:
        """Return which rows hold all words in their texts, as packed bits."""

        def make() -> NDArray[np.uint8]:
            found: Mask | None = None
            for word, is_beginning in words_of_search(words):
                mask = np.zeros(rows, np.bool_)
                for place in self._index.places(word, is_beginning=is_beginning):
                    some = self._index.read(*place)
                    mask[some[some < rows]] = True  # others are being added
                found = mask if found is None else found & mask
            return np.packbits(np.zeros(rows, np.bool_) if found is None else found)

        return self._cached(self._searches, (rows, words), make, _SEARCHES_KEPT)

    def count(self, chosen: RowFilter) -> int:
        """Return the number of rows of a filter."""
        return len(self._selected(chosen).numbers())

    def fetch(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return rows by their numbers, in the given order."""
        texts = [self._texts.read(row) for row in rows]
        columns: dict[str, list[Any]] = {
            "row": list(rows), "first": [one[0] for one in texts], "text": [one[1] for one in texts]
        }  # fmt: skip
        places = np.array(rows, np.int64)
        with self._lock:
            for name, codes in self.codes.items():
                columns[name] = [codes.values[code] if code >= 0 else None
                                 for code in codes.rows[places].tolist()]  # fmt: skip
            for name, values in self.numbers.items():
                columns[name] = [None if value != value else value
                                 for value in values[places].tolist()]  # fmt: skip
        return [dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)]

    def similar(self, row: int, count: int, group: str | None) -> list[tuple[int, float]]:
        """Return the rows that share most with a row, and what they share.

        A word weighs its inverse document frequency; the share is of the weights of the row's
        rarest words. Words of many rows are not compared, rows of the same group left out.
        """
        with self._lock:
            rows, groups = self.rows, self._groups
        first, text = self._texts.read(row)
        words = {word for word, _ in words_of_search(f"{first or ''} {text}")}
        places = [self._index.places(word) for word in words]
        held = [(sum(high - low for low, high in each), each) for each in places]
        most = max(_COMMON * rows, _FEW)
        shared, whole = np.zeros(rows, np.float32), 0.0
        for count_of_rows, each in sorted(one for one in held if one[0])[:_MOST_COMPARED]:
            weight = math.log(max(rows, count_of_rows) / count_of_rows)
            whole += weight
            for place in each if count_of_rows <= most else ():
                some = self._index.read(*place)
                shared[some[some < rows]] += weight
        shared[row] = 0
        if group is not None:
            shared[groups[:rows] == text_hashes(pa.array([group]))[0]] = 0
        least = float(shared.max())
        while (best := np.flatnonzero(shared >= least)).size < count and least > _SHARED_LEAST:
            least /= 2
        order = best[np.argsort(-shared[best], kind="stable")][:count]
        return [(one, float(shared[one]) / whole) for one in order.tolist() if shared[one] > 0]

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
            return list((self.kinds if name == "kind" else self.codes[name]).values)

    def counts(self, name: str, chosen: RowFilter) -> dict[str, int]:
        """Return value -> rows that pass all of a filter but its own part."""

        def count(rows: Rows | slice) -> dict[str, int]:
            if name != "kind":
                return self.codes[name].counts(rows)
            mask = np.zeros(self.rows, np.bool_)
            mask[rows] = True
            return self.kinds.counts(np.flatnonzero(mask[self._kind_rows]).astype(np.int32))

        return dict(self._counted(name, chosen, count))

    def states(self, chosen: RowFilter) -> dict[str, int]:
        """Return the numbers of kept and of dropped rows of a filter."""

        def count(rows: Rows | slice) -> dict[str, int]:
            reasons = self.codes["reason"].rows[rows]
            dropped = int(np.count_nonzero(reasons >= 0))
            return {KEPT: len(reasons) - dropped, DROPPED: dropped}

        return dict(self._counted("state", chosen, count))

    def _counted(self, name: str, chosen: RowFilter, count: Callable[[Rows | slice], Any]) -> Any:
        """Return what `count` says of the rows that pass a filter without one part of it."""
        parts = chosen.parts()
        parts.pop(name, None)
        return self._cached(
            self._counts, (self.rows, name, *parts.items()),
            lambda: count(self._selected(chosen).rows(name)), _COUNTS_KEPT,
        )  # fmt: skip

    def remembered(self, key: Any, make: Callable[[], Kept]) -> Kept:
        """Return what was made for a key while the rows were the same; make it otherwise."""
        made: Kept = self._cached(self._made, (self.rows, key), make, _MADE_KEPT)
        return made

    def histogram(self, name: str, chosen: RowFilter) -> Histogram | None:
        """Return the distribution of a number over the rows that pass a filter but its own range.

        None where no row of the run has the number.
        """
        with self._lock:
            if name not in self._binned:
                self._binned[name] = binned_of(self.numbers[name])
            binned = self._binned[name]
        if binned is None:
            return None

        def count(rows: Rows | slice) -> list[int]:
            if not isinstance(rows, slice):  # some may have been added since
                rows = rows[rows < len(binned.places)]
            found = np.bincount(binned.places[rows], minlength=binned.bins + 1)
            return list(found[: binned.bins].tolist())

        return Histogram(binned.low, binned.high, self._counted(name, chosen, count))


def _remove(folder: Path, *files: TextFile | WordIndex) -> None:
    for file in files:
        file.close()
    shutil.rmtree(folder, ignore_errors=True)


def _position(places: Rows, row: int, chosen: RowFilter, side: Literal["left", "right"]) -> int:
    """Return how many rows stand ahead of a row, on the right side with itself.

    A row that does not pass counts by its number in the order of the run, and as the first in
    another order.
    """
    if not chosen.sort and not chosen.descending:
        return int(np.searchsorted(places, row, side))
    found = np.flatnonzero(places == row)
    return int(found[0]) + (side == "right") if len(found) else 0


def _walk(order: Rows, mask: Mask, size: int) -> list[int]:
    """Return the first rows of an order that pass, one more than `size` if there are as many."""
    found: list[int] = []
    for at in range(0, len(order), _WALKED):
        some = order[at : at + _WALKED]
        found += some[mask[some]].tolist()
        if len(found) > size:
            break
    return found[: size + 1]
