"""Rows of one file in each format tilth reads; every row knows its line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from tilth.data.columns import PARTS, holds_columns, rows_of_columns
from tilth.data.lines import MAX_CHARS, read_lines
from tilth.data.parquet import parquet_tables
from tilth.errors import InputError

Row: TypeAlias = dict[str, Any]
_Reader: TypeAlias = Callable[[Path, Sequence[str] | None], Iterator[tuple[int, Row]]]
# A JSON object or a csv line holds several fields beside the text.
_MAX_RECORD_BYTES = 16_000_000


def rows_of_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, Row]]:
    """Yield (line or row number from 1, row) of a file.

    Args:
        path: a file with one of `ENDINGS`; .txt and .tsv may hold tagged sentences in columns.
        columns: the columns wanted; None: all. Only Parquet gains from it.

    Raises:
        InputError: something in the file is wrong; file and line are named.
    """
    ending = ending_of(path)
    if ending is None:
        raise InputError(
            f"{path}: {path.suffix or 'no ending'!r} is no known format: use {', '.join(ENDINGS)}"
        )
    if ending in _MAY_HOLD_COLUMNS and holds_columns(path):
        return rows_of_columns(path)
    return _READERS[ending](path, columns)


def ending_of(path: Path) -> str | None:
    """Return the known ending of a path, without .gz; None when it has none."""
    name = path.name.lower()
    ending = Path(name.removesuffix(".gz")).suffix
    if ending not in _READERS or (name.endswith(".gz") and ending == ".parquet"):
        return None
    return ending


def part_of(path: Path) -> str:
    """Return which part of a set a file holds: `train` of train.jsonl.gz, `dev` of eng.testa."""
    return PARTS.get(ending_of(path) or "", path.name.split(".")[0])


def _txt(path: Path, _: Sequence[str] | None) -> Iterator[tuple[int, Row]]:
    for number, line in read_lines(path, 4 * MAX_CHARS):
        yield number, {"text": line}


def _jsonl(path: Path, _: Sequence[str] | None) -> Iterator[tuple[int, Row]]:
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


def _check_surrogates(path: Path, number: int, row: Row) -> None:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{path}:{number}: half a character (a lone surrogate such as \\ud83d): write the "
            "whole character"
        ) from error


def _delimited(delimiter: str) -> _Reader:
    def read(path: Path, _: Sequence[str] | None) -> Iterator[tuple[int, Row]]:
        lines = (line + "\n" for _number, line in read_lines(path, _MAX_RECORD_BYTES))
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        begun = 1
        try:
            header = next(reader, None)
            if header is None:
                return
            _check_header(path, header)
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

    return read


def _check_header(path: Path, header: list[str]) -> None:
    for name in header:
        if header.count(name) > 1:
            raise InputError(f"{path}:1: two columns are named {name!r}: name them differently")


def _parquet(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, Row]]:
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


def _columns(path: Path, _: Sequence[str] | None) -> Iterator[tuple[int, Row]]:
    return rows_of_columns(path)


_READERS: dict[str, _Reader] = {
    ".txt": _txt,
    ".jsonl": _jsonl,
    ".csv": _delimited(","),
    ".tsv": _delimited("\t"),
    ".parquet": _parquet,
    **dict.fromkeys((".conll", ".bio", *PARTS), _columns),
}
_MAY_HOLD_COLUMNS = (".txt", ".tsv")
ENDINGS = (".txt", ".jsonl", ".csv", ".tsv", ".conll", "each also with .gz", ".parquet")
