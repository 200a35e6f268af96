"""Read texts and rows from files, folders, finished runs and hub data sets."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.data.formats import MAX_CHARS, SINGLE, FileRow, head_hint, rows_of_file, usual_name
from tilth.data.sources import locate_split
from tilth.data.temp_arrow import TempArrowWriter
from tilth.errors import InputError
from tilth.urls import with_urls

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)


def read_texts(source: str | Path, *, column: str | None = None, split: str = "train") -> Dataset:
    r"""Read texts, one a row, with where each came from.

    White space around texts is removed; empty ones are skipped and their number is logged. Memory
    does not grow with the source.

    Args:
        source: a file (.txt .jsonl .json .csv .tsv, also .gz; .parquet with row groups of at most
            4 GB), a folder of them, a run or data set folder, or a hub data set (`owner/name` or
            `owner/name:config`).
        column: the column with the texts; by default `text`, `sentence`, or the only column of
            strings.
        split: of a data set folder or hub data set, or of a folder of files that are named after
            splits (`train.jsonl`, `dev.jsonl`, `test.jsonl`).

    Returns:
        Columns text and origin (`file:line`; `name:row` for data sets).

    Raises:
        InputError: the source or a line in it is wrong.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "sentences.txt"
        >>> _ = path.write_text("A man plays.\n\nA dog barks.\n")
        >>> read_texts(path)["text"][:]
        ['A man plays.', 'A dog barks.']
    """
    empty = 0
    with TempArrowWriter(str(source), ["text", "origin"]) as writer:
        for origin, text in _texts(source, column, split):
            text = text.strip()
            if len(text) > MAX_CHARS:
                raise InputError(
                    f"{origin}: the text has {len(text):,} characters, at most {MAX_CHARS:,} "
                    "are read: split it into sentences"
                )
            if "\0" in text:
                raise InputError(f"{origin}: NUL character in the text: take it out")
            if text:
                writer.add({"text": text, "origin": origin}, origin)
            else:
                empty += 1
        if not writer.rows:
            raise InputError(f"{source}: holds no text: give at least one")
        if empty:
            log.info("%s: %d empty lines skipped", source, empty)
        return writer.dataset()


def read_rows(source: str | Path, *, split: str = "train", tell: bool = False) -> Dataset:
    """Read rows with their columns.

    Values of csv and tsv are strings. Memory does not grow with the source.

    Args:
        source: as in `read_texts`.
        split: of a data set folder or hub data set, or of a folder of files that are named after
            splits (`train.jsonl`, `dev.jsonl`, `test.jsonl`).
        tell: warn that the files of other splits are not read.

    Raises:
        InputError: the source or a line in it is wrong.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "reviews.jsonl"
        >>> _ = path.write_text('{"text": "Good.", "label": 1}')
        >>> read_rows(path)[0]
        {'text': 'Good.', 'label': 1}
    """
    found = locate_split(source, split, tell=tell)
    if not isinstance(found, list):
        dataset = found.load(split)
        if not len(dataset):
            raise InputError(f"{source}: split {split!r} holds no rows: choose another split")
        return dataset
    with TempArrowWriter(str(source)) as writer:
        for path in found:
            for number, row in _rows_of(path, None):
                writer.add(row, f"{path}:{number}")
        if not writer.rows:
            raise InputError(f"{source}: holds no rows: give at least one")
        return writer.dataset()


def row_location(source: Any, row: int, split: str) -> str:
    """Return where a row lies, for messages: `file:line`, or its number where there are no lines.

    Files are read again up to the row, which counts from 0: rows carry no line.
    """
    if not isinstance(source, str | Path):
        return f"row {row} (rows count from 0)"
    found = locate_split(source, split)
    if not isinstance(found, list):
        return f"{source}: {split} row {row} (rows count from 0)"
    left = row
    for path in found:
        for line, _ in rows_of_file(path):
            if not left:
                return f"{path}:{line}"
            left -= 1
    return f"{source}: row {row} (rows count from 0)"  # the file has changed meanwhile


def texts_of_dataset(name: str, dataset: Dataset, column: str | None) -> Iterator[tuple[int, str]]:
    """Yield (row from 1, text) of a data set; `name` is for errors, column as in `read_texts`."""
    if not len(dataset):
        return
    column = column or _text_column(name, dataset[0])
    _check_column(name, column, dataset.column_names)
    number = 0
    for batch in dataset.select_columns([column]).with_format(None).iter(batch_size=10_000):
        for value in batch[column]:
            number += 1
            yield number, _check_text(f"{name}:{number}", column, value)


def texts_of_file(path: Path, column: str | None) -> Iterator[tuple[int, str]]:
    """Yield (line or row from 1, text) of a file; column as in `read_texts`."""
    for number, row in _rows_of(path, None if column is None else [column]):
        column = column or _text_column(f"{path}:{number}", row)
        if column not in row:
            _check_column(f"{path}:{number}", column, row)
        yield number, _check_text(f"{path}:{number}", column, row[column])


def _texts(source: str | Path, column: str | None, split: str) -> Iterator[tuple[str, str]]:
    """Yield (origin, text)."""
    found = locate_split(source, split, tell=True)
    if not isinstance(found, list):
        for number, text in texts_of_dataset(str(source), found.load(split), column):
            yield f"{source}:{number}", text
        return
    for path in found:
        name = with_urls(str(path))
        for number, text in texts_of_file(path, column):
            yield f"{name}:{number}", text


def _rows_of(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[int, FileRow]]:
    try:
        yield from rows_of_file(path, columns)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}: give a readable file") from error


def _text_column(location: str, row: FileRow) -> str:
    """Choose the column with the texts from the first row."""
    usual = usual_name(SINGLE, list(row))
    if usual is not None:
        return usual
    strings = [name for name, value in row.items() if value is None or isinstance(value, str)]
    if len(strings) == 1:
        return strings[0]
    if not strings:
        raise InputError(f"{location}: no column of texts: there are {', '.join(row) or 'none'}")
    raise InputError(
        f"{location}: which column holds the texts: name one of {', '.join(row)} with --column"
        f"{head_hint(row)}"
    )


def _check_column(location: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise InputError(f"{location}: no column {name!r}: there are {', '.join(names) or 'none'}")


def _check_text(location: str, name: str, value: Any) -> str:
    if not isinstance(value, str | None):
        raise InputError(
            f"{location}: column {name!r} holds {value!r:.60}, no text: name a column of texts"
        )
    return value or ""
