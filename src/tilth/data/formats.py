"""Rows of one file in each format tilth reads, with their line or row numbers.

Tagged sentences stand in columns, as in CoNLL-2003. Text files are UTF-8, plain or gz. Neither
numpy nor pyarrow is imported before a file is read: the names of sources are checked first.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from tilth.errors import InputError
from tilth.files import check_input

TOKENS, TAGS = "tokens", "tags"
SINGLE = ("text", "sentence")  # usual names of a column of texts
# IOB1, IOB2, BIOES and BILOU write no other tags.
TAG = re.compile(r"O|[BIESLU]-\S.*")
NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
# Endings of CoNLL-2003's files and sets like it. Other files with these names hold anything.
CONLL_SPLITS = {
    ".train": "train", ".dev": "dev", ".valid": "dev", ".testa": "dev", ".test": "test",
    ".testb": "test",
}  # fmt: skip
# What to do with a file of another ending, where other endings are not the answer.
_REMEDIES = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as .csv in UTF-8"),
}
_NEW_DOCUMENT = "-DOCSTART-"
_MAX_LINE_BYTES = 100_000
_NAME_WORDS = 4  # of a column's name
_DECIMAL = re.compile(r"[+-]?\d*[.,]\d+")
_MOST_TOKENS = 10_000  # of a sentence; more are a file without empty lines
_LOOKED_AT, _FEWEST, _SHARE = 200, 3, 0.9
# A longer text is a file without line ends, not a sentence.
MAX_CHARS = 100_000
# A JSON object or a csv line holds several fields beside the text.
_MAX_RECORD_BYTES = 16_000_000
_MAX_LIST_BYTES = 1 << 30  # of a line of a .json file, which is in memory as a whole

FileRow: TypeAlias = dict[str, Any]
Record: TypeAlias = tuple[int, list[str]]  # first line, fields
_BOM = b"\xef\xbb\xbf"
_GZ = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_READ_BYTES = 1 << 20


def rows_of_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, FileRow]]:
    """Yield (line or row number from 1, row) of a file with one of `ENDINGS`.

    .txt and .tsv may hold tagged sentences in columns. Only Parquet gains from `columns`.
    """
    ending = known_ending(path)
    if ending in _MAY_BE_CONLL and is_conll(path):
        return rows_of_conll(path)
    if ending == ".parquet":
        from tilth.data.parquet import rows_of_parquet

        return rows_of_parquet(path, columns)
    return _READERS[ending](path)


def columns_of_file(path: Path) -> list[str] | None:
    """Return the columns of a file; None where later rows, of jsonl, may have others."""
    rows = [row for _, row in islice(rows_of_file(path), _LOOKED_AT)]
    if len(rows) == _LOOKED_AT and known_ending(path) in (".json", ".jsonl"):
        return None
    return list(dict.fromkeys(name for row in rows for name in row))


def check_column(column: str, names: Sequence[str], name: str) -> None:
    """Refuse a column that is not there; `name` begins the message."""
    if column not in names:
        nested = column.partition(".")[0] in names
        remedy = "; write a nested field to a column of its own" if nested else ""
        raise InputError(f"{name}no column {column!r}: there are {', '.join(names)}{remedy}")


def as_number(label: str) -> float | None:
    """Return a label that is written as a finite number, such as "0.5", as one; else None."""
    number = float(label) if re.fullmatch(NUMBER, label) else math.inf
    return number if math.isfinite(number) else None


def usual_name(usual: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the column that has the first of some usual names, in capitals only if none has."""
    found = [name for name in usual if name in names]
    lower = {name.lower(): name for name in names}
    found += [lower[name.lower()] for name in usual if name.lower() in lower]
    return found[0] if found else None


def head_hint(names: Iterable[str]) -> str:
    """Return what to do where names of columns look like a row, of a table without a first line."""
    if any(_DECIMAL.fullmatch(name) or len(name.split()) > _NAME_WORDS for name in names):
        return "; the first line seems to be a row: write the columns' names above it"
    return ""


def usual_names(groups: Iterable[Sequence[str]], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns of the first group of usual names that are all there."""
    for group in groups:
        found = [usual_name([one], names) for one in group]
        if all(found):
            return tuple(map(str, found))
    return None


def known_ending(path: Path) -> str:
    """Return the ending of a path, without .gz.

    Raises:
        InputError: it is none of `ENDINGS`; says what to do.
    """
    ending = ending_of(path)
    if ending is None:
        remedy = _REMEDIES.get(path.suffix.lower(), f"use {', '.join(ENDINGS)}")
        raise InputError(f"{path}: the ending is not known: {remedy}")
    return ending


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
            said = error.msg.removesuffix(" at")
            raise InputError(
                f"{path}:{number}: no JSON: {said} at character {error.pos + 1}: write one object "
                "a line"
            ) from error
        except RecursionError as error:
            raise InputError(
                f"{path}:{number}: nested too deep: write one object a line"
            ) from error
        except ValueError as error:  # an integer of thousands of digits
            raise InputError(
                f"{path}:{number}: a number is too long: write it as a text"
            ) from error
        yield number, _object(path, number, row, escaped="\\u" in line)


def _json(path: Path) -> Iterator[tuple[int, FileRow]]:
    """Yield the objects of a list by their number, or those of JSON lines by their line."""
    lines = read_lines(path, _MAX_LIST_BYTES)
    before, (_, first) = 0, next(lines, (1, ""))
    while not first.strip() and (following := next(lines, None)) is not None:
        before, first = before + 1, following[1]
    if not first.lstrip().startswith("["):
        yield from _jsonl(path)
        return
    text = "\n".join([first, *(line for _, line in lines)])
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{before + error.lineno}: no JSON: {error.msg.removesuffix(' at')}: write a "
            "list of objects, or one object a line"
        ) from error
    except RecursionError as error:
        raise InputError(f"{path}: nested too deep: write a list of flat objects") from error
    except ValueError as error:  # an integer of thousands of digits
        raise InputError(f"{path}: a number is too long: write it as a text") from error
    escaped = "\\u" in text
    for number, row in enumerate(whole, 1):
        yield number, _object(path, number, row, escaped=escaped)


def _object(path: Path, number: int, row: Any, *, escaped: bool) -> FileRow:
    """Return a row that is an object, without halves of characters, which escapes may hold."""
    if not isinstance(row, dict):
        raise InputError(
            f'{path}:{number}: holds a JSON {_json_kind(row)}, not an object: write {{"text": ...}}'
        )
    if escaped:
        _check_surrogates(path, number, row)
    return row


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


def _csv(path: Path) -> Iterator[tuple[int, FileRow]]:
    lines = read_lines(path, _MAX_RECORD_BYTES)
    first = next(lines, (1, ""))
    # Semicolons: of spreadsheets where a comma begins the decimals.
    delimiter = next((mark for mark in ",;\t" if mark in first[1]), ",")
    if told := re.fullmatch(r"\ufeff?\"?sep=([^\"\w])\"?", first[1], re.IGNORECASE):  # for Excel
        delimiter, first = told[1], next(lines, (2, ""))
    if delimiter == "\t":
        return _rows_of_records(path, _tab_records(path, chain([first], lines)))
    names = first[1].split(delimiter)
    spaced = len(names) > 1 and all(name.startswith(" ") for name in names[1:])  # "text, label"
    records = _quoted_records(path, chain([first], lines), delimiter, spaced=spaced)
    return _rows_of_records(path, records)


def _tsv(path: Path) -> Iterator[tuple[int, FileRow]]:
    return _rows_of_records(path, _tab_records(path, read_lines(path, _MAX_RECORD_BYTES)))


def _rows_of_records(path: Path, records: Iterator[Record]) -> Iterator[tuple[int, FileRow]]:
    line, header = next(records, (1, []))
    for name in header:
        if header.count(name) > 1:
            raise InputError(
                f"{path}:{line}: two columns are named {name!r}: name them differently"
            )
    for begun, fields in records:
        if len(fields) != len(header):
            if len(header) == 1 and "|" in header[0]:
                mend = "divide fields by commas, semicolons or, in tsv, tabs"
            elif len(fields) < len(header):
                mend = "write all fields, also empty ones"
            else:
                mend = "quote fields that hold the delimiter"
            raise InputError(
                f"{path}:{begun}: {len(fields)} field{'s' * (len(fields) > 1)}, the header has "
                f"{len(header)}: {mend}"
            )
        yield begun, dict(zip(header, fields, strict=True))


def _quoted_records(
    path: Path, lines: Iterator[tuple[int, str]], delimiter: str, *, spaced: bool = False
) -> Iterator[Record]:
    """Yield the first line and the fields of each record; a quoted field may hold line ends."""
    begun = 0

    def texts() -> Iterator[str]:
        nonlocal begun
        for number, line in lines:
            begun = begun or number
            yield line + "\n"

    csv.field_size_limit(_MAX_RECORD_BYTES)
    try:
        for fields in csv.reader(
            texts(), delimiter=delimiter, skipinitialspace=spaced, strict=True
        ):
            if fields:
                yield begun, fields
            begun = 0
    except csv.Error as error:
        raise InputError(
            f"{path}:{begun}: {error}: close quoted fields and double quotation marks in them"
        ) from error


def _tab_records(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[Record]:
    """Yield the records of tabs: some writers quote fields, others mean each mark as it stands.

    A line of as many fields as the header is a record. It is the first of a quoted record, though,
    where a quotation is opened in its last field and the next line is no record, and in files of
    one column or with a header in quotation marks. Other lines are read as quoted ones.
    """
    ahead: list[tuple[int, str]] = []  # read already, the next one last

    def source() -> Iterator[tuple[int, str]]:
        for number, line in lines:
            yield number, line.rstrip("\r")
            while ahead:
                yield ahead.pop()

    def is_record_next() -> bool:
        seen = []
        for one in left:
            seen.append(one)
            if one[1]:  # blank lines are none
                break
        ahead.extend(reversed(seen))
        return not seen or not seen[-1][1] or seen[-1][1].count("\t") == width - 1

    left, width, quotes = source(), 0, False
    for number, line in left:
        fields = line.split("\t")
        if not width:
            width = len(fields)
            quotes = width == 1 or all(_unquoted(field) != field for field in fields)
        whole = len(fields) == width
        if whole and quotes:
            whole = not any(map(_opens, fields))
        elif whole and _opens(fields[-1]):
            whole = is_record_next()
        if not line:
            continue
        if whole:
            yield number, [_unquoted(field) for field in fields]
        else:
            yield from islice(_quoted_records(path, chain([(number, line)], left), "\t"), 1)


def _opens(field: str) -> bool:
    """Return whether a field begins a quotation that it does not end."""
    return field.startswith('"') and '"' not in field[1:].replace('""', "")


def _unquoted(field: str) -> str:
    """Return a quoted field's text; a field that is not quoted as a whole, as it is."""
    inner = field[1:-1]
    if len(field) < 2 or not field[0] == field[-1] == '"' or '"' in inner.replace('""', ""):
        return field
    return inner.replace('""', '"')


def rows_of_conll(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line of its first token, row) of each sentence of a file, plain or gz.

    Columns are separated by tabs, in lines without any by spaces. Lines of `-DOCSTART-` and
    comments, `# ...` before a sentence, are skipped. IOB1 and BIOES become IOB2. Rows have
    `tokens`, `tags` and, for the columns between them, `column2` and so on.
    """
    sentence: list[list[str]] = []
    begun = width = 0
    for number, line in read_lines(path, _MAX_LINE_BYTES):
        fields = _fields(line)
        if not fields or fields[0] == _NEW_DOCUMENT:
            if sentence:
                yield begun, _tagged_row(sentence)
            sentence = []
            continue
        if not sentence and _is_comment(line, fields, width):
            continue
        width = width or len(fields)
        _check_columns(path, number, fields, width)
        if not sentence:
            begun = number
        sentence.append(fields)
        if len(sentence) > _MOST_TOKENS:
            raise InputError(
                f"{path}:{begun}: a sentence of more than {_MOST_TOKENS:,} tokens: put an empty "
                "line after each sentence"
            )
    if sentence:
        yield begun, _tagged_row(sentence)


def is_conll(path: Path) -> bool:
    """Return whether a text file holds tagged sentences in columns, by its first lines.

    Nine tenths of them must have one number of columns, the last an IOB tag (of .tsv of more than
    one kind, or in several sentences): errors in a file of columns are then reported by line, and
    no file of texts is taken for one.
    """
    try:
        lines = list(islice(read_lines(path, _MAX_LINE_BYTES), _LOOKED_AT))
    except InputError:
        return False  # reading it reports what is wrong
    rows = [fields for _, line in lines if (fields := _fields(line)) and line[0] != "#"]
    rows = [fields for fields in rows if fields[0] != _NEW_DOCUMENT]
    tagged = [fields for fields in rows if len(fields) > 1 and TAG.fullmatch(fields[-1])]
    widths = [len(fields) for fields in tagged]
    most = max(map(widths.count, set(widths)), default=0)
    is_split = any(not line.strip() for _, line in lines)
    varied = is_split or len({fields[-1] for fields in tagged}) > 1
    is_columns = len(rows) >= _FEWEST and most >= _SHARE * len(rows)
    return is_columns and (varied or ending_of(path) != ".tsv")


def _fields(line: str) -> list[str]:
    if not line.strip():
        return []
    if "\t" in line:
        return [field.strip(" ") for field in line.rstrip().split("\t")]
    return [field for field in line.split(" ") if field]


def _is_comment(line: str, fields: Sequence[str], width: int) -> bool:
    """Tell whether a line before a sentence is a comment, and `#` in it no token."""
    if not line.startswith("#"):
        return False
    if width and len(fields) != width:
        return True
    return not (TAG.fullmatch(fields[-1]) or (width and "\t" in line))


def _check_columns(path: Path, number: int, fields: Sequence[str], width: int) -> None:
    if len(fields) == 1:
        raise InputError(
            f"{path}:{number}: one column, {fields[0]!r:.60}: write a token and its tag a line, "
            "with a tab or spaces between them"
        )
    if len(fields) != width:
        raise InputError(
            f"{path}:{number}: {len(fields)} columns, the lines before it have {width}: give each "
            "token as many, and no spaces inside of one"
        )
    empty = next((place for place, field in enumerate(fields) if not field), None)
    if empty is not None:
        raise InputError(f"{path}:{number}: column {empty + 1} is empty: fill it in, as with '_'")


def _tagged_row(sentence: Sequence[Sequence[str]]) -> dict[str, Any]:
    from tilth.metrics.scores import iob2

    tokens, *others = map(list, zip(*sentence, strict=True))
    names = [*(f"column{place}" for place in range(2, len(others) + 1)), TAGS]
    tags = {
        name: iob2(column) if all(map(TAG.fullmatch, column)) else column
        for name, column in zip(names, others, strict=True)
    }
    return {TOKENS: tokens, **tags}


def read_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 file.

    Memory is bounded whatever a line's length. A byte order mark and CRLF ends are removed.
    """
    number = offset = 0
    with _opened(path) as file, _gz_errors(path, lambda: number + 1):
        while line := file.readline(max_bytes + 3):
            number += 1
            if number == 1:
                _check_start(path, line)
            if len(line) > max_bytes + 2 or (
                len(line) > max_bytes and len(line.rstrip(b"\r\n")) > max_bytes
            ):
                raise _too_long(path, number, max_bytes)
            yield number, decode_line(path, number, offset, line)
            offset += len(line)


def read_chunks(path: Path, chunk_bytes: int, max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number of the first line, byte of the file where it begins, whole lines).

    A chunk ends with the last line that ends within `chunk_bytes`, or else with its first line.
    Memory is bounded whatever a line's length. The content of the lines is not checked.
    """
    number, start, held, more = 1, 0, bytearray(), True
    with _opened(path) as file, _gz_errors(path, lambda: number + held.count(b"\n")):
        while more or held:
            end = _chunk_end(held, chunk_bytes, more)
            if end:
                chunk = bytes(held[:end])
                del held[:end]
                _check_lengths(path, number, chunk, max_bytes)
                yield number, start, chunk
                number, start = number + chunk.count(b"\n"), start + end
                continue
            if len(held) > chunk_bytes + max_bytes:
                _check_lengths(path, number, bytes(held), max_bytes)
            piece = file.read1(_READ_BYTES)
            if not start and not held:
                _check_start(path, piece)
            more = bool(piece)
            held += piece


def decode_line(path: Path, number: int, offset: int, line: bytes) -> str:
    """Return a line without its end; `number` counts from 1, `offset` is its byte in the file."""
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
        offset += len(_BOM)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    nul = line.find(b"\0")
    if nul >= 0:
        raise InputError(
            f"{path}:{number}: NUL byte at byte {offset + nul} of the file: is it a text file"
            " in UTF-8?"
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: byte {line[error.start]:#04x} at byte {offset + error.start} of the "
            "file is not UTF-8: save the file as UTF-8, of Windows' characters with "
            "iconv -f cp1252 -t utf-8"
        ) from error


def _chunk_end(held: bytearray, chunk_bytes: int, more: bool) -> int:
    """Return where the next chunk ends; 0: not known before more is read."""
    if more and len(held) < chunk_bytes:
        return 0
    end = held.rfind(b"\n", 0, chunk_bytes) + 1
    return end or held.find(b"\n", chunk_bytes) + 1 or (0 if more else len(held))


def _check_lengths(path: Path, number: int, lines: bytes, max_bytes: int) -> None:
    if len(lines) <= max_bytes:
        return
    import numpy as np

    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    lengths = np.diff(ends, prepend=-1, append=len(lines)) - 1
    for line in np.flatnonzero(lengths > max_bytes).tolist():
        stop = ends[line] if line < len(ends) else len(lines)
        if lengths[line] - lines[:stop].endswith(b"\r") > max_bytes:
            raise _too_long(path, number + line, max_bytes)


def _too_long(path: Path, number: int, max_bytes: int) -> InputError:
    return InputError(
        f"{path}:{number}: the line is longer than {max_bytes:,} bytes: write one text a line"
    )


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    check_input(path)
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


@contextmanager
def _gz_errors(path: Path, line: Callable[[], int]) -> Iterator[None]:
    """Name the line after which a gz file is broken."""
    try:
        yield
    except EOFError as error:
        raise InputError(
            f"{path}:{line()}: the gz file is cut short: copy or download it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path}:{line()}: the gz file is broken ({error}): copy or download it again, "
            "or take .gz off the name of a plain file"
        ) from error


def _check_start(path: Path, line: bytes) -> None:
    if line.startswith(_UTF16):
        raise InputError(
            f"{path}:1: the file is UTF-16: save it as UTF-8, or iconv -f utf-16 -t utf-8"
        )
    if line.startswith(_GZ):
        raise InputError(f"{path}:1: the file is compressed with gz: name it {path.name}.gz")


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, FileRow]]]] = {
    ".txt": _txt,
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    **dict.fromkeys((".conll", ".bio", *CONLL_SPLITS), rows_of_conll),
}
_MAY_BE_CONLL = (".txt", ".tsv")
ENDINGS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".conll (each also with .gz)", ".parquet")
