"""Find near duplicates among sentences with the same key: each is compared with a few before it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.near_duplicates import SIMILARITY, jaccard
from tilth.data.normalize import normalize_texts
from tilth.errors import TilthError

CANDIDATES = pa.schema([("key", pa.uint64()), ("id", pa.int64()), ("text", pa.large_string())])
# Messages of DuckDB where it cannot write its temporary files.
_CANNOT_WRITE = re.compile(r"(?i)could not write|no space left")
# Memory of DuckDB in a worker; it sorts larger data on disk. It exceeds this by some hundred MB.
_MEMORY = "1GB"
_ROWS_AT_ONCE = 100_000
# Sentences that share a key without being similar, such as boilerplate with varying halves, are not
# compared each with each: a group has at most so many sentences that others are compared with.
_LEADERS = 16


def similar_ids(batches: Iterator[pa.RecordBatch], spill: Path) -> NDArray[np.int64]:
    """Return the ids of sentences that are similar to an earlier one with the same key, sorted.

    Args:
        batches: candidates, with the columns of `CANDIDATES`.
        spill: folder for what does not fit into memory; removed at the end.
    """
    first = next(batches, None)
    if first is None:  # starting DuckDB for nothing takes 17 ms, six times a build
        return np.zeros(0, np.int64)
    failed: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            yield first
            yield from batches
        except (Exception, KeyboardInterrupt) as error:  # DuckDB would raise an error of its own
            failed.append(error)
            raise

    group, found = _Group(), [np.zeros(0, np.int64)]
    try:
        with duckdb.connect(
            config={"memory_limit": _MEMORY, "threads": 1, "temp_directory": str(spill)}
        ) as engine:
            engine.register("candidates", pa.RecordBatchReader.from_batches(CANDIDATES, watched()))
            rows = engine.sql("select key, id, text from candidates order by key, id")
            for batch in rows.to_arrow_reader(_ROWS_AT_ONCE):
                similar = group.add(batch["key"].to_numpy(), batch["text"].cast(pa.large_string()))
                found.append(batch["id"].to_numpy()[similar])
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except (duckdb.Error, RuntimeError) as error:
        if failed:
            raise failed[0] from error
        line = str(error).splitlines()[0]
        if isinstance(error, duckdb.OutOfMemoryException) or _CANNOT_WRITE.search(line):
            raise TilthError(
                f"{spill.parent}: no disk space or memory is left to look for duplicates ({line}): "
                "free some and run the same command again"
            ) from error
        if "interrupted" in line.lower():  # Ctrl-C may arrive as this, too
            raise KeyboardInterrupt from error
        raise
    finally:
        shutil.rmtree(spill, ignore_errors=True)
    return np.sort(np.concatenate(found))


class _Group:
    """Compare the sentences of a key with up to `_LEADERS` of them, in linear time.

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
