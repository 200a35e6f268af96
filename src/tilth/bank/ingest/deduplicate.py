"""Find duplicates among any number of sentences, out of core: DuckDB groups keys on disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.near_duplicates import NEAR, SIMILARITY, jaccard
from tilth.data.normalize import normalize_texts
from tilth.errors import TilthError
from tilth.files import disk_errors

EXACT_DUPLICATE = "exact duplicate"
NEAR_DUPLICATE = "near duplicate"
REASONS = ("", EXACT_DUPLICATE, NEAR_DUPLICATE)
_EXACT, _NEAR = 1, 2
_MARKS = "duplicates.u8"
_SPILL = "spill"
# DuckDB's words where its own files cannot be written.
_CANNOT_WRITE = re.compile(r"(?i)could not write|no space left")
# Limit of DuckDB; some hundred megabytes come on top.
_MEMORY = "4GB"
_ROWS_AT_ONCE = 100_000
# Sentences that share a key without being similar, such as boilerplate with varying halves, are not
# compared each with each: a group has at most so many sentences that others are compared with.
_LEADERS = 4


class DamagedPart(TilthError):  # noqa: N818 - named for what it is
    """A part cannot be read."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The rows of the parts that duplicate earlier rows.

    Attributes:
        marks: 0 or the index of the reason in `REASONS`; on disk. # (rows of all parts,)
        starts: first row of each part, and the end. # (parts + 1,)
        counts: reason -> number of dropped rows.
    """

    marks: NDArray[np.uint8]
    starts: NDArray[np.int64]
    counts: dict[str, int]

    def kept(self, part: int) -> NDArray[np.bool_]:
        """Return whether each row of a part stays."""  # (rows,)
        found: NDArray[np.bool_] = self.marks[self.starts[part] : self.starts[part + 1]] == 0
        return found


def find_duplicates(
    parts: Sequence[Path],
    *,
    stored: Sequence[Path] = (),
    stored_texts: Callable[[NDArray[np.int64]], pa.Array] | None = None,
    near: bool = True,
    folder: Path,
    threads: int = 2,
) -> Duplicates:
    """Find the sentences that repeat an earlier one, exactly or nearly.

    Exact duplicates are equal when normalized; the first stays. Near duplicates have a Jaccard
    similarity of 0.8 or more with an earlier sentence that shares a MinHash key with them and is
    not dropped yet. The keys find 95% of the pairs at 0.8 and nearly all at 0.9. The result
    depends on the sentences and their order alone.

    Args:
        parts: Parquet files with the columns of `tilth.bank.ingest.sentences.SCHEMA`, in order;
            near-duplicate keys only with `near`.
        stored: Parquet files with the keys of the bank's sentences, which count as earlier.
        stored_texts: returns the texts of stored sentences by id; needed for `near`.
        folder: for the result and spilled data.
    """
    stored_rows, starts = _rows(stored), _rows(parts)
    keys = ["exact", *(NEAR if near else ())]
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        marks = _new_marks(folder / _MARKS, int(starts[-1]))
    spill = folder / _SPILL
    shutil.rmtree(spill, ignore_errors=True)
    try:
        if len(marks):
            with _engine(spill, threads) as engine:
                new = int(stored_rows[-1])
                _view(engine, "sentences", parts, starts + new, ["text", *keys])
                if new:
                    _view(engine, "stored", stored, stored_rows, ["null as text", *keys])
                    engine.execute("create view all_ as from stored union all from sentences")
                else:
                    engine.execute("create view all_ as from sentences")
                _mark_exact(engine, marks, new)
                for key in keys[1:]:
                    _mark_near(engine, key, marks, new, stored_texts)
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except RuntimeError as error:  # Ctrl-C may arrive as this, too
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        line = str(error).splitlines()[0]
        if isinstance(error, duckdb.OutOfMemoryException) or _CANNOT_WRITE.search(line):
            raise TilthError(
                f"{folder}: no disk space or memory is left to look for duplicates ({line}): free "
                "some and run the same command again"
            ) from error
        raise DamagedPart(f"{folder}: {line}: run the same command again") from error
    finally:
        shutil.rmtree(spill, ignore_errors=True)
    counts = np.bincount(marks, minlength=len(REASONS)).tolist()
    found = {reason: counts[mark] for mark, reason in enumerate(REASONS) if mark and counts[mark]}
    return Duplicates(marks, starts, found)


def _rows(files: Sequence[Path]) -> NDArray[np.int64]:
    """Return where the rows of each file begin among all, and the end."""
    counts = [0]
    for file in files:
        try:
            counts.append(pq.read_metadata(file).num_rows)
        except (pa.ArrowException, OSError) as error:  # noqa: PERF203 - it ends here
            reason = str(error).splitlines()[0]
            raise DamagedPart(f"{file}: no readable Parquet ({reason}): make it again") from error
    return np.cumsum(counts)  # (files + 1,)


def _new_marks(path: Path, rows: int) -> NDArray[np.uint8]:
    if not rows:
        return np.zeros(0, np.uint8)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, rows)  # or a full disk ends the process
    return np.memmap(path, np.uint8, "r+", shape=(rows,))


def _engine(spill: Path, threads: int) -> duckdb.DuckDBPyConnection:
    spill.mkdir(parents=True)
    return duckdb.connect(
        str(spill / "keys.duckdb"),
        config={
            "memory_limit": _MEMORY,
            "threads": threads,
            "temp_directory": str(spill),
            "preserve_insertion_order": False,
        },
    )


def _view(
    engine: duckdb.DuckDBPyConnection,
    name: str,
    files: Sequence[Path],
    starts: NDArray[np.int64],
    columns: Sequence[str],
) -> None:
    """Make a view of some columns of files, and `id`, a row's number among those of all files."""
    names = [str(file) for file in files]
    engine.register("file_rows", pa.table({"filename": names, "start": starts[: len(names)]}))
    engine.execute(f"create table {name}_files as select * from file_rows")
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    engine.execute(
        f"create view {name} as select start + file_row_number as id, {', '.join(columns)}"
        f" from read_parquet([{listed}], filename = true, file_row_number = true)"
        f" join {name}_files using (filename)"
    )


def _mark_exact(engine: duckdb.DuckDBPyConnection, marks: NDArray[np.uint8], new: int) -> None:
    """Mark all rows but the first with each exact key."""
    engine.execute(
        "create table repeated as select exact, min(id) as first from all_"
        " group by exact having count(*) > 1"
    )
    engine.execute(
        "create table dropped as select id from all_ join repeated using (exact)"
        f" where id > first and id >= {new}"
    )
    for batch in _batches(engine, "select id from dropped"):
        marks[batch["id"].to_numpy() - new] = _EXACT


def _mark_near(
    engine: duckdb.DuckDBPyConnection,
    key: str,
    marks: NDArray[np.uint8],
    new: int,
    stored_texts: Callable[[NDArray[np.int64]], pa.Array] | None,
) -> None:
    """Mark rows that are similar to an earlier row with the same key, neither dropped so far."""
    engine.execute(
        f"create or replace table shared as select {key} as key from all_"
        f" anti join dropped using (id) group by key having count(*) > 1 and max(id) >= {new}"
    )
    rows = _batches(
        engine,
        f"select key, id, text from all_ join shared on {key} = key"
        " anti join dropped using (id) order by key, id",
    )
    group = _Group()
    for batch in rows:
        ids, texts = batch["id"].to_numpy(), batch["text"].cast(pa.large_string())
        old = ids < new
        if old.any():
            assert stored_texts is not None
            earlier = stored_texts(ids[old]).cast(pa.large_string())
            texts = pc.replace_with_mask(texts, pa.array(old), earlier)
        stays = old | (marks[np.maximum(ids - new, 0)] == 0)
        ids, keys = ids[stays], batch["key"].to_numpy()[stays]
        found = ids[group.add(keys, texts.filter(pa.array(stays)))]
        marks[found[found >= new] - new] = _NEAR


def _batches(engine: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in batches, while it runs."""
    reader = engine.sql(query).to_arrow_reader(_ROWS_AT_ONCE)
    assert reader is not None
    yield from reader


class _Group:
    """Compare the sentences of each key with up to `_LEADERS` of them, in linear time.

    A leader is the first sentence that is similar to no leader before it.
    """

    def __init__(self) -> None:
        self._key: int | None = None
        self._leaders = pa.array([], pa.large_string())

    def add(self, keys: NDArray[np.uint64], texts: pa.Array) -> NDArray[np.int64]:
        """Return the places of rows that are similar to an earlier one; rows are sorted by key."""
        if not len(keys):
            return np.zeros(0, np.int64)
        texts = normalize_texts(texts)
        carried = len(self._leaders) if self._key == keys[0] else 0
        if carried:  # the group goes on: its leaders stand before it
            texts = pa.concat_arrays([self._leaders, texts])
            keys = np.concatenate([np.repeat(keys[:1], carried), keys])
        similar = np.zeros(len(keys), np.bool_)
        leading = []
        left = np.arange(len(keys))
        for _ in range(_LEADERS):
            if not len(left):
                break
            first = np.append(True, keys[left][1:] != keys[left][:-1])
            leading.append(left[first])
            leader = left[first][np.cumsum(first) - 1][~first]
            left = left[~first]
            like = jaccard(texts, leader, left) >= SIMILARITY if len(left) else first[:0]
            similar[left[like]] = True
            left = left[~like]
        leaders = np.sort(np.concatenate(leading))
        last = leaders[keys[leaders] == keys[-1]]
        self._key, self._leaders = int(keys[-1]), texts.take(pa.array(last))
        return np.flatnonzero(similar) - carried
