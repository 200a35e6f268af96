"""Read tagged sentences in columns, as in CoNLL-2003."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tilth.data.labels import TAG
from tilth.data.lines import read_lines
from tilth.errors import InputError
from tilth.metrics.entity_spans import iob2

TOKENS, TAGS = "tokens", "tags"
# Endings of CoNLL-2003's files and sets like it. Other files with these names hold anything.
CONLL_SPLITS = {
    ".train": "train", ".dev": "dev", ".valid": "dev", ".testa": "dev", ".test": "test",
    ".testb": "test",
}  # fmt: skip
_NEW_DOCUMENT = "-DOCSTART-"
_MAX_LINE_BYTES = 100_000
_MOST_TOKENS = 10_000  # of a sentence; more are a file without empty lines
_LOOKED_AT, _FEWEST, _SHARE = 200, 3, 0.9


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
                yield begun, _row(sentence)
            sentence = []
            continue
        if not sentence and _is_comment(line, fields, width):
            continue
        width = width or len(fields)
        _check(path, number, fields, width)
        if not sentence:
            begun = number
        sentence.append(fields)
        if len(sentence) > _MOST_TOKENS:
            raise InputError(
                f"{path}:{begun}: a sentence of more than {_MOST_TOKENS:,} tokens: put an empty "
                "line after each sentence"
            )
    if sentence:
        yield begun, _row(sentence)


def is_conll(path: Path) -> bool:
    """Return whether a text file holds tagged sentences in columns, by its first lines.

    Nine tenths of them must have one number of columns, the last an IOB tag: errors in a file of
    columns are then reported by line, and no file of texts is taken for one.
    """
    try:
        lines = list(islice(read_lines(path, _MAX_LINE_BYTES), _LOOKED_AT))
    except InputError:
        return False  # reading it reports what is wrong
    rows = [fields for _, line in lines if (fields := _fields(line)) and line[0] != "#"]
    rows = [fields for fields in rows if fields[0] != _NEW_DOCUMENT]
    widths = [len(fields) for fields in rows if len(fields) > 1 and TAG.fullmatch(fields[-1])]
    most = max(map(widths.count, set(widths)), default=0)
    return len(rows) >= _FEWEST and most >= _SHARE * len(rows)


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


def _check(path: Path, number: int, fields: Sequence[str], width: int) -> None:
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


def _row(sentence: Sequence[Sequence[str]]) -> dict[str, Any]:
    tokens, *others = map(list, zip(*sentence, strict=True))
    names = [*(f"column{place}" for place in range(2, len(others) + 1)), TAGS]
    tags = {
        name: iob2(column) if all(map(TAG.fullmatch, column)) else column
        for name, column in zip(names, others, strict=True)
    }
    return {TOKENS: tokens, **tags}
