"""Reads text files of word vectors, such as GloVe's and fastText's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilth.data.formats import read_lines
from tilth.errors import InputError

log = logging.getLogger(__name__)

_MAX_BYTES = 1_000_000  # of a line: a vector of a thousand numbers takes some 12,000
_LINES_AT_ONCE = 4096
_GROWTH = 1.25


def read_vectors(path: str | Path) -> tuple[list[str], NDArray[np.float32]]:
    """Read a text file of word vectors, plain or .gz: words and vectors, (words, width).

    A word may hold spaces, as some of glove.840B do. The first vector of a repeated word is used.
    Peak memory is 1.25 times the result.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file: give a text file of word vectors, plain or .gz")
    lines: Iterator[tuple[int, str]] = (
        item for item in read_lines(path, _MAX_BYTES) if item[1].strip(" \t")
    )
    first = next(lines, None)
    if first is None:
        raise InputError(f"{path}: the file is empty: download word vectors again")
    fields, claimed = first[1].split(), None
    if len(fields) == 2 and all(field.isascii() and field.isdigit() for field in fields):
        claimed, width = map(int, fields)
    else:
        width, lines = _width(path, *first), chain([first], lines)
    row: dict[str, int] = {}
    vectors = np.empty((0, width), np.float32)
    seen = 0
    while block := list(islice(lines, _LINES_AT_ONCE)):
        seen, begin, kept = seen + len(block), len(row), []
        for number, line in block:
            word, values = _split(path, number, line, width)
            if word not in row:
                row[word] = len(row)
                kept.append((number, values))
        parsed = _parse(path, kept, width)  # (kept, width)
        if len(row) > len(vectors):
            # In place: a copy would need the memory twice.
            vectors.resize((max(len(row), int(_GROWTH * len(vectors))), width), refcheck=False)
        vectors[begin : len(row)] = parsed
    if not row or claimed not in (None, seen):
        raise InputError(
            f"{path}:1: the first line promises {claimed} words, {seen} are there: download the "
            "file again, or mend the line"
        )
    if seen > len(row):
        log.warning("%s: %d words stand there again: the first counts", path, seen - len(row))
    vectors.resize((len(row), width), refcheck=False)
    return list(row), vectors


def _width(path: Path, number: int, line: str) -> int:
    fields = line.split()
    width = 0
    while width + 1 < len(fields) and _is_number(fields[-width - 1]):
        width += 1
    if not width:
        raise InputError(
            f"{path}:{number}: {line[:80]!r} is no word with its numbers: give a text file of word "
            "vectors, `word v1 ... vn` in each line"
        )
    return width


def _split(path: Path, number: int, line: str, width: int) -> tuple[str, str]:
    """Return the word of a line, and its numbers separated by single spaces."""
    line = line.rstrip(" \t")
    word, _, values = line.partition(" ")
    if word and values.count(" ") == width - 1:
        return word, values
    # Non-ASCII spaces may be part of a word.
    fields = line.replace("\t", " ").split(" ")
    fields = [fields[0], *filter(None, fields[1:])]
    pieces = fields[: max(len(fields) - width, 0)]
    if pieces == [""]:
        raise InputError(f"{path}:{number}: no word stands before the values: take the line out")
    if len(fields) <= width or (len(pieces) > 1 and _is_number(pieces[-1])):
        raise InputError(
            f"{path}:{number}: {len(fields) - 1} values, not {width} as before: download the file "
            "again, or take the line out"
        )
    return " ".join(pieces), " ".join(fields[len(pieces) :])


def _parse(path: Path, lines: list[tuple[int, str]], width: int) -> NDArray[np.float32]:
    """Return the numbers of some lines, parsed together."""
    values = _floats(" ".join(values for _, values in lines))
    if len(values) == len(lines) * width and np.isfinite(values).all():
        return values.reshape(len(lines), width)  # (lines, width)
    for number, line in lines:
        for field in line.split(" "):
            value = _floats(field)
            if len(value) != 1 or not np.isfinite(value[0]):
                raise InputError(
                    f"{path}:{number}: {field[:40]!r} is no finite number: download the file "
                    "again, or take the line out"
                )
    raise AssertionError("every line is right, all together are not")


def _floats(text: str) -> NDArray[np.float32]:
    """Return the numbers of a text, none if it holds anything else."""
    try:
        return np.fromstring(text, np.float32, sep=" ")
    except ValueError:
        return np.empty(0, np.float32)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
