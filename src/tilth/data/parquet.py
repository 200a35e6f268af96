"""Rows and tables of Parquet files, whose row groups may decompress to any size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import InputError
from tilth.files import check_input

_ROWS = 10_000
_TABLE_BYTES = 256 << 20
_GROUP_BYTES = 4 << 30  # pages of a row group are decompressed together
# A file of some kB may hold a long text a million times: as many rows are decoded together as
# may take so much, if each held all bytes of its column. Fewer rows than these are slow to read.
_DECODED_BYTES = 2 << 30
_FEWEST_ROWS = 256


def rows_of_parquet(
    path: Path, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row number from 1, row) of a file; class numbers that have names are named."""
    number = 0
    try:
        named = schema_class_names(pq.read_schema(path))
        for table in parquet_tables(path, columns):
            for row in table.to_pylist():
                number += 1
                for name, names in named.items():
                    if name in row:
                        row[name] = _class_of(row[name], names)
                yield number, row
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: row {number + 1}: no readable Parquet ({reason}): make the file again"
        ) from error


def schema_class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of the classes of columns, as `datasets` writes them into a schema.

    The columns hold numbers of classes, or lists of them.
    """
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"].items()
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    found = {}
    for name, feature in about:
        inner = feature[0] if isinstance(feature, list) and feature else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get("names"), list):
            found[name] = [str(one).strip() for one in inner["names"]]
    return found


def _class_of(value: Any, names: Sequence[str]) -> Any:
    """Return the names of class numbers; of -1, which stands for none, null."""
    if isinstance(value, list):
        return [_class_of(one, names) for one in value]
    if not isinstance(value, int) or value >= len(names):
        return value
    return names[value] if value >= 0 else None


def parquet_tables(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a Parquet file's rows in order; columns that are missing are not an error.

    Raises:
        InputError: a row group is larger than 4 GB.
        pyarrow.ArrowException: the file is damaged, or texts are no UTF-8.
        OSError: it cannot be read.
    """
    check_input(path)
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = [name for name in names if columns is None or name in columns] or names
        rows = _rows_together(path, file.metadata, wanted)
        waiting: list[pa.RecordBatch] = []
        held = size = 0
        for batch in file.iter_batches(rows, columns=wanted):
            waiting.append(batch)
            held, size = held + batch.num_rows, size + batch.nbytes
            if held >= _ROWS or size >= _TABLE_BYTES:
                yield _together(waiting)
                waiting, held, size = [], 0, 0
        if waiting:
            yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(batches).combine_chunks()
    table.validate(full=True)
    return table


def _rows_together(path: Path, metadata: pq.FileMetaData, wanted: Sequence[str]) -> int:
    """Return how many rows may be decoded together."""
    largest = 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(place) for place in range(metadata.num_columns)]
        sizes = [
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema.split(".")[0] in wanted
        ]
        if sum(sizes) > _GROUP_BYTES:
            raise InputError(
                f"{path}: row group {number} holds {sum(sizes):,} bytes, at most {_GROUP_BYTES:,} "
                "are read: write smaller row groups"
            )
        largest = max([largest, *sizes])  # a file may have no column
    return max(_FEWEST_ROWS, min(_ROWS, _DECODED_BYTES // largest))
