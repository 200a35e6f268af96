"""Read what the pages share of a run folder: run.json, parts as tables, settings, time."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.errors import InputError, TilthError
from tilth.report.html import duration
from tilth.runs import read_run_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TIME_NOTE = "from the start to the last part written, pauses included"
log = logging.getLogger(__name__)


def read_run(folder: Path, *commands: str) -> dict[str, Any]:
    """Return the run.json of a run of one of `commands`; raise InputError for any other folder."""
    found = read_run_json(folder)
    command = found["command"]
    if command not in commands:
        raise InputError(
            f"{folder}: holds a run of `tilth {command}`, not of {' or '.join(commands)}"
        )
    return found


@contextmanager
def refuse_edited(folder: Path) -> Iterator[None]:
    """Turn the errors of a missing or mistyped value in a run's files into a TilthError."""
    try:
        yield
    except (InputError, TilthError):
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TilthError(
            f"{folder}: run.json, results.json or a part holds what tilth did not write "
            f"({type(error).__name__}: {str(error)[:80]}): restore it, or start the run anew"
        ) from error


def part_files(folder: Path) -> list[Path]:
    """Return the parts of a run, in order."""
    return sorted(folder.glob("parts/part-*.parquet"))


def unfinished(run: Mapping[str, Any], parts: Sequence[Path]) -> list[str]:
    """Return a notice where parts of a run are missing."""
    if len(parts) >= run["parts"]:
        return []
    return [
        f"The run is not finished: {len(parts):,} of {run['parts']:,} parts are there. "
        "The same command goes on where it stopped."
    ]


def read_tables(
    parts: Sequence[Path], columns: Sequence[str], notices: list[str]
) -> Iterator[pa.Table]:
    """Yield the present `columns` of part files, a bounded number of rows at a time.

    A part that cannot be read is skipped, logged and named in `notices`.
    """
    for part in parts:
        try:
            with pq.ParquetFile(part) as file:
                there = [name for name in columns if name in file.schema_arrow.names]
                for batch in file.iter_batches(batch_size=65_536, columns=there):
                    yield pa.Table.from_batches([batch])
        except (pa.ArrowException, OSError) as error:  # noqa: PERF203 - one part, not all
            log.warning("%s cannot be read and is left out of the report: %s", part, error)
            notices.append(f"{part.name} could not be read and is left out.")


@contextmanager
def database(**tables: tuple[pa.Schema, Iterable[pa.Table]]) -> Iterator[DuckDBPyConnection]:
    """Load name -> (schema, tables) into a temporary DuckDB database of bounded memory."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="tilth-report-") as spill:
        # One thread: sums of floating point numbers are then the same each time.
        config: dict[str, Any] = {"threads": 1, "memory_limit": "1GB", "temp_directory": spill}
        with duckdb.connect(config=config) as engine:
            for name, (schema, rows) in tables.items():
                batches = (batch for table in rows for batch in table.cast(schema).to_batches())
                engine.register("rows", pa.RecordBatchReader.from_batches(schema, batches))
                try:
                    engine.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
                except duckdb.Error as error:  # of reading the rows
                    raise ValueError(str(error).rpartition("Unknown error: ")[2]) from error
                engine.unregister("rows")
            yield engine


def select(engine: DuckDBPyConnection, query: str, *values: object) -> list[dict[str, Any]]:
    """Return the rows of a query by column name."""
    found = engine.execute(query, values)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def counts_of(engine: DuckDBPyConnection, query: str) -> dict[str, int]:
    """Return the rows of a query with two columns: name -> count."""
    return dict(engine.execute(query).fetchall())


def row_keys(first: int, rows: int, seed: int = 0) -> NDArray[np.uint64]:
    """Return a pseudo-random key per row number from `first`; samples take the smallest."""
    return random_keys(seed, "report", np.arange(first, first + rows, dtype=np.uint64))  # (rows,)


def settings_facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and value of a run's start, settings and versions."""
    versions = ", ".join(f"{name} {v}" for name, v in run["versions"].items())
    begun = str(run.get("created", ""))
    return [("begun", begun), *_flat(run["settings"]), ("versions", versions)]


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            if "labels" not in value:  # the instructions of a task have a place of their own
                yield from _flat(value, f"{before}{name}.")
        elif value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"{before}{name}", text


def time_figure(run: Mapping[str, Any], parts: Sequence[Path]) -> tuple[str, str, str] | None:
    """Return the time from the start to the last part; None for copied files."""
    seconds = seconds_taken(run, parts)
    return ("time", duration(seconds), TIME_NOTE) if seconds else None


def seconds_taken(run: Mapping[str, Any], parts: Sequence[Path]) -> float | None:
    """Return the seconds from a run's start to its last part; None for copied files."""
    try:
        began = datetime.fromisoformat(str(run.get("created")).replace("Z", "+00:00"))
    except ValueError:
        return None
    seconds = max((part.stat().st_mtime for part in parts), default=0.0) - began.timestamp()
    return seconds if seconds > 0 else None
