"""Rows of one file in each format tilth reads, with their line or row numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.data.conll import CONLL_SPLITS, is_conll, rows_of_conll
from tilth.data.lines import read_lines
from tilth.errors import InputError
from tilth.files import check_input

# A longer text is a file without line ends, not a sentence.
MAX_CHARS = 100_000
# A JSON object or a csv line holds several fields beside the text.
_MAX_RECORD_BYTES = 16_000_000
_ROWS = 10_000
_TABLE_BYTES = 256 << 20
_GROUP_BYTES = 4 << 30  # pages of a row group are decompressed together
# A file of some kB may hold a long text a million times: as many rows are decoded together as
# may take so much, if each held all bytes of its column. Fewer rows than these are slow to read.
_DECODED_BYTES = 2 << 30
_FEWEST_ROWS = 256

FileRow: TypeAlias = dict[str, Any]


def rows_of_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, FileRow]]:
    """Yield (line or row number from 1, row) of a file with one of `ENDINGS`.

    .txt and .tsv may hold tagged sentences in columns. Only Parquet gains from `columns`.
    """
    ending = ending_of(path)
    if ending is None:
        raise InputError(
            f"{path}: {path.suffix or 'no ending'!r} is no known format: use {', '.join(ENDINGS)}"
        )
    if ending in _MAY_BE_CONLL and is_conll(path):
        return rows_of_conll(path)
    if ending == ".parquet":
        return _parquet(path, columns)
    return _READERS[ending](path)


def ending_of(path: Path) -> str | None:
    """Return the known ending of a path, without .gz; None when it has none."""
    name = path.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    if ending == ".parquet":
        return None if name.endswith(".gz") else ending
    return ending if ending in _READERS else None


def split_of(path: Path) -> str:
    """Return the split that a file holds: `train` for train.jsonl.gz, `dev` for eng.testa."""
    return CONLL_SPLITS.get(ending_of(path) or "", path.name.split(".")[0])


def _txt(path: Path) -> Iterator[tuple[int, FileRow]]:
    for number, line in read_lines(path, 4 * MAX_CHARS):
        yield number, {"text": line}


def _jsonl(path: Path) -> Iterator[tuple[int, FileRow]]:
    for number, line in read_lines(path, _MAX_RECORD_BYTES):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{path}:{number}: no JSON: {error.msg} at character {error.pos + 1}: write one "
                "object a line"
            ) from error
        except RecursionError as error:
            raise InputError(
                f"{path}:{number}: nested too deep: write one object a line"
            ) from error
        except ValueError as error:  # an integer of thousands of digits
            raise InputError(
                f"{path}:{number}: a number is too long: write it as a text"
            ) from error
        if not isinstance(row, dict):
            raise InputError(
                f"{path}:{number}: the line holds a JSON {_json_kind(row)}, not an object: "
                'write {"text": ...}'
            )
        if "\\u" in line:
            _check_surrogates(path, number, row)
        yield number, row


def _json_kind(value: Any) -> str:
    kinds = {list: "list", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _check_surrogates(path: Path, number: int, row: FileRow) -> None:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path}:{number}: half a character (a lone surrogate such as \\ud83d): write the "
            "whole character"
        ) from error


def _delimited(path: Path, *, delimiter: str) -> Iterator[tuple[int, FileRow]]:
    lines = (line + "\n" for _, line in read_lines(path, _MAX_RECORD_BYTES))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    begun = 1
    try:
        header = next(reader, [])
        for name in header:
            if header.count(name) > 1:
                raise InputError(f"{path}:1: two columns are named {name!r}: name them differently")
        begun = reader.line_num + 1
        for fields in reader:
            if fields and len(fields) != len(header):
                raise InputError(
                    f"{path}:{begun}: {len(fields)} fields, the header has {len(header)}: "
                    "quote fields that hold the delimiter"
                )
            if fields:
                yield begun, dict(zip(header, fields, strict=True))
            begun = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}:{begun}: {error}: close quoted fields and double quotation marks in them"
        ) from error


def _parquet(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, FileRow]]:
    number = 0
    try:
        for table in parquet_tables(path, columns):
            for row in table.to_pylist():
                number += 1
                yield number, row
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: row {number + 1}: no readable Parquet ({reason}): make the file again"
        ) from error


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
        largest = max(largest, *sizes)
    return max(_FEWEST_ROWS, min(_ROWS, _DECODED_BYTES // largest))


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, FileRow]]]] = {
    ".txt": _txt,
    ".jsonl": _jsonl,
    ".csv": partial(_delimited, delimiter=","),
    ".tsv": partial(_delimited, delimiter="\t"),
    **dict.fromkeys((".conll", ".bio", *CONLL_SPLITS), rows_of_conll),
}
_MAY_BE_CONLL = (".txt", ".tsv")
ENDINGS = (".txt", ".jsonl", ".csv", ".tsv", ".conll", "each also with .gz", ".parquet")
