"""Reads one part of an STS set, however it is written, into pairs that know their line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilth.data.formats import ending_of, rows_of_file
from tilth.data.lines import read_lines
from tilth.data.sources import load_hub
from tilth.errors import InputError, TilthError
from tilth.evaluate.layouts import Part

# The usual names of each column, the first that is there counts; case does not.
_TEXT_A = ("text_a", "sentence1", "sentence_a", "text1", "sent1")
_TEXT_B = ("text_b", "sentence2", "sentence_b", "text2", "sent2")
_SCORE = ("score", "similarity_score", "relatedness_score", "similarity", "label")
_SUBSET = ("subset", "dataset")
_MAX_LINE_BYTES = 16_000_000
# In sts-test.csv: genre, filename, year, old_index, score, sentence1, sentence2, notes.
_BENCHMARK_FIELDS = 7


@dataclass(frozen=True, slots=True)
class RawPair:
    """A pair as it was read, unchecked.

    Attributes:
        origin: `file:line`.
        text_a: one text.
        text_b: the other text.
        score: what stands for the score.
        subset: None where the source has no subsets.
    """

    origin: str
    text_a: Any
    text_b: Any
    score: Any
    subset: str | None


def read_pairs(part: Part) -> Iterator[RawPair]:
    """Yield the scored pairs of a part.

    Raises:
        InputError: a file is missing or its form is wrong; file and line are named.
    """
    try:
        yield from _READERS[part.kind](part)
    except OSError as error:
        raise InputError(f"{part}: {error.strerror or error}: give a readable file") from error


def _rows(part: Part) -> Iterator[RawPair]:
    assert part.path is not None
    rows = rows_of_file(part.path) if ending_of(part.path) else _rows_of_json(part.path)
    for number, row in rows:
        yield _pair(f"{part.path}:{number}", row)


def _rows_of_json(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line or number from 1, row): of a list of objects, or of an object a line."""
    lines = list(read_lines(path, _MAX_LINE_BYTES))
    if next((line for _, line in lines if line.strip()), "").lstrip().startswith("["):
        whole = _parsed(path, 1, "\n".join(line for _, line in lines))
        numbered: Iterable[tuple[int, Any]] = enumerate(whole, start=1)
    else:
        numbered = ((at, _parsed(path, at, line)) for at, line in lines if line.strip())
    for number, value in numbered:
        yield number, _object(path, number, value)


def _parsed(path: Path, start: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = start + getattr(error, "lineno", 1) - 1
        raise InputError(
            f"{path}:{line}: no JSON ({getattr(error, 'msg', 'nested too deep')}): write a list "
            "of objects, or one object a line"
        ) from error


def _object(path: Path, number: int, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(
            f'{path}:{number}: {value!r:.60} is no object: write {{"text_a": ..., "text_b": ..., '
            '"score": ...}'
        )
    return value


def _pair(origin: str, row: Mapping[str, Any]) -> RawPair:
    names = {name.lower(): name for name in row}
    subset = next((row[names[name]] for name in _SUBSET if name in names), None)
    return RawPair(
        origin,
        row[_column(origin, names, _TEXT_A)],
        row[_column(origin, names, _TEXT_B)],
        row[_column(origin, names, _SCORE)],
        None if subset in (None, "") else str(subset),
    )


def _column(origin: str, names: Mapping[str, str], wanted: Sequence[str]) -> str:
    for name in wanted:
        if name in names:
            return names[name]
    raise InputError(
        f"{origin}: no column {wanted[0]!r} (nor {', '.join(wanted[1:])}): there are "
        f"{', '.join(names.values()) or 'none'}: name the columns text_a, text_b, score"
    )


def _benchmark(part: Part) -> Iterator[RawPair]:
    """Read sts-test.csv of STSBenchmark: tabs, no header, quotation marks are literal."""
    assert part.path is not None
    for number, line in read_lines(part.path, _MAX_LINE_BYTES):
        fields = line.split("\t")
        if len(fields) < _BENCHMARK_FIELDS:
            raise InputError(
                f"{part.path}:{number}: {len(fields)} fields between tabs, {_BENCHMARK_FIELDS} are "
                "needed (genre, filename, year, old_index, score, sentence1, sentence2): give "
                "STSBenchmark's own file"
            )
        yield RawPair(f"{part.path}:{number}", fields[5], fields[6], fields[4], fields[1])


def _sick(part: Part) -> Iterator[RawPair]:
    """Read SICK_test_annotated.txt: tabs, a header, quotation marks are literal."""
    assert part.path is not None
    header: list[str] = []
    for number, line in read_lines(part.path, _MAX_LINE_BYTES):
        fields = line.split("\t")
        if number == 1:
            header = fields
        elif len(fields) != len(header):
            raise InputError(
                f"{part.path}:{number}: {len(fields)} fields between tabs, the header has "
                f"{len(header)}: give SICK's own file"
            )
        else:
            yield _pair(f"{part.path}:{number}", dict(zip(header, fields, strict=True)))


def _semeval(part: Part) -> Iterator[RawPair]:
    """Read STS.input.*.txt and STS.gs.*.txt; a pair with a blank score was not scored."""
    path, gold = part.path, part.gold
    assert path is not None
    if gold is None:
        name = path.name.replace(".input.", ".gs.")
        raise InputError(f"{path}: no scores for these texts: put {name} beside it")
    texts = list(read_lines(path, _MAX_LINE_BYTES))
    scores = [score for _, score in read_lines(gold, _MAX_LINE_BYTES)]
    if len(texts) != len(scores):
        raise InputError(
            f"{path} has {len(texts)} lines, {gold} has {len(scores)}: give files of one version"
        )
    for (number, line), score in zip(texts, scores, strict=True):
        fields = line.split("\t")
        if len(fields) == 1:
            raise InputError(f"{path}:{number}: no tab: write the two texts with a tab between")
        if score.strip():
            origin = f"{path}:{number} ({gold.name}:{number})"
            yield RawPair(origin, fields[0], fields[1], score, part.subset)


def _hub(part: Part) -> Iterator[RawPair]:
    assert part.hub is not None
    try:
        rows = load_hub(part.hub, part.split)
    except TilthError as error:
        raise InputError(f"{error}; or give a folder with the set's files as data") from error
    for number, row in enumerate(rows, start=1):
        yield _pair(f"{part}:{number}", row)


_READERS: dict[str, Callable[[Part], Iterator[RawPair]]] = {
    "rows": _rows,
    "benchmark": _benchmark,
    "sick": _sick,
    "semeval": _semeval,
    "hub": _hub,
}
