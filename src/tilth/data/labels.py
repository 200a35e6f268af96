"""Read label columns: one class a row, several classes a row, numbers, IOB tags."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tilth.data.formats import TAG, as_number
from tilth.errors import InputError
from tilth.metrics.scores import iob2

log = logging.getLogger(__name__)

Where: TypeAlias = Callable[[int], str]
Class: TypeAlias = "str | int"

_LIST = r"^\[\s*(?:['\"].*['\"]|-?\d[\d.,\s-]*)?\s*\]$"  # as Python or JSON writes one
_WITH_COMMA = r"^[+-]?\d+(,\d+)?$"  # numbers of some countries' spreadsheets
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_UNNAMED = re.compile(r"LABEL_(\d+)")  # what transformers calls labels without names
# Kinds of labels, as data holds them.
HOLDS = {
    "class": "one label a row", "multi": "a list of labels a row", "number": "fractions",
    "tags": "a tag for each token",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Labels:
    """Hold the labels of rows.

    Attributes:
        kind: `class`: one a row; `multi`: any number of classes a row; `number`: a grade, with
            no classes; `tags`: a tag a token, whose classes are the entity types.
        values: a class, a list of classes, a number, or a list of tags. # (rows,)
        classes: those that occur, in the set's own order, by value where all are whole numbers,
            otherwise alphabetically. # (classes,)
        class_ids: the indices in `classes` of each row's classes, ascending. # (rows,)
    """

    kind: Literal["class", "multi", "number", "tags"]
    values: list[Any]
    classes: list[Class]
    class_ids: list[tuple[int, ...]]

    def select(self, rows: Sequence[int]) -> Labels:
        """Return the labels of some rows."""
        kept = sorted({old for row in rows for old in self.class_ids[row]})
        new_ids = {old: new for new, old in enumerate(kept)}
        return Labels(
            self.kind,
            [self.values[row] for row in rows],
            [self.classes[old] for old in kept],
            [tuple(new_ids[old] for old in self.class_ids[row]) for row in rows],
        )


def match_label_names(labels: Sequence[str], classes: Iterable[Class]) -> list[str]:
    """Return a model's labels as a set with some classes names them.

    A model without label names has `LABEL_0` and so on: these become "0" and so on, unless the
    set uses the same names.

    Example:
        >>> match_label_names(["LABEL_0", "LABEL_1"], [0, 1])
        ['0', '1']
    """
    numbers = [_UNNAMED.fullmatch(name) for name in labels]
    if set(map(str, classes)) & set(labels) or not all(numbers):
        return list(labels)
    return [found[1] for found in numbers if found]


def refuse_missing(missing: Any, where: Where, problem: str) -> None:
    """Refuse a column with rows that lack a value, and say how many."""
    if (row := first_true(missing)) is None:
        return
    more = pc.sum(missing).as_py() - 1
    remedy = "fill it in or remove the row"
    if more:
        remedy = f"{more:,} more rows likewise: fill them in or remove the rows"
    raise InputError(f"{where(row)}: {problem}: {remedy}")


def read_labels(column: pa.ChunkedArray, feature: Any, name: str, where: Where) -> Labels:
    """Read a column with a label, or a list of labels, a row.

    Fractions make it a column of numbers; whole numbers and texts are classes. `feature`, of
    `datasets`, may name the classes; `name` and `where` are for messages.
    """
    names = class_names(feature)
    if not is_list(column.type):
        values = _values(column, feature, name, where)
        numbers = _numbers(values)
        if names is None and numbers and not all(number.is_integer() for number in numbers):
            return Labels("number", numbers, [], [()] * len(values))
        values = [int(value) if isinstance(value, float) else value for value in values]
        return _with_classes("class", values, [(value,) for value in values], names)
    rows = column.to_pylist()
    refuse_missing(pc.is_null(column), where, f"no {name}")
    sets = _values_of_lists(rows, feature, name, where)
    for row, found in enumerate(sets):
        if len(set(found)) < len(found):
            raise InputError(
                f"{where(row)}: {name} holds {rows[row]!r:.60}, a label twice: list each label of "
                "the row once, by name"
            )
    if not any(sets) and names is None:
        raise InputError(f"{where(0)} and below: all lists of {name} are empty: add labels")
    return _with_classes("multi", sets, sets, names)


def read_tags(
    column: pa.ChunkedArray, feature: Any, name: str, tokens: list[list[str]], where: Where
) -> Labels:
    """Read a column with a tag for every token.

    Tags of other schemes, such as IOB1 and IOBES, become IOB2. Arguments as in `read_labels`.
    """
    if not is_list(column.type):
        raise InputError(
            f"{where(0)}: column {name!r} holds {column.type}: give a list with a tag a token"
        )
    rows = [tags or [] for tags in column.to_pylist()]
    for row, (tags, words) in enumerate(zip(rows, tokens, strict=True)):
        if len(tags) != len(words):
            raise InputError(
                f"{where(row)}: {len(words)} tokens, {len(tags)} {name}: give each token one tag"
            )
    values = _values_of_lists(rows, feature, name, where)
    for row, tags in enumerate(values):
        for place, tag in enumerate(tags):
            if not isinstance(tag, str) or not TAG.fullmatch(tag):
                raise InputError(
                    f"{where(row)}: {name} holds {tag!r:.40} at token {place + 1} "
                    f"({tokens[row][place]!r:.40}), no IOB tag: write O, B-TYPE or I-TYPE"
                )
    values = [iob2(tags) for tags in values]
    types = [list(dict.fromkeys(tag[2:] for tag in tags if tag != "O")) for tags in values]
    names = class_names(feature)
    return _with_classes("tags", values, types, names and [tag[2:] for tag in names])


def check_labels(column: pa.ChunkedArray, feature: Any, name: str, where: Where) -> pa.ChunkedArray:
    """Check a column with a label a row; return its texts, numbers or booleans.

    Numbers of classes become their names. Arguments as in `read_labels`.
    """
    column = decode_dictionary(column)
    names, kind = class_names(feature), column.type
    missing = pc.is_null(column)
    if is_text(kind):
        column = pc.utf8_trim_whitespace(column)
        missing = pc.equal(pc.fill_null(column, ""), "")
    refuse_missing(missing, where, f"no {name}")
    if is_text(kind) and pc.all(pc.match_substring_regex(column, _WITH_COMMA)).as_py():
        row = first_true(pc.match_substring(column, ","))
        if row is not None:
            log.warning(
                "%s: %s %r is read as a class: write numbers with a point", where(row), name,
                column[row].as_py(),
            )  # fmt: skip
    if is_text(kind) and pc.all(pc.match_substring_regex(column, _LIST)).as_py():
        raise InputError(
            f"{where(0)}: {name} is {column[0].as_py()!r:.40}, a list written as a text: give a "
            "jsonl or Parquet file, which hold lists"
        )
    if names is not None and pa.types.is_integer(kind):
        row = first_true(pc.or_(pc.less(column, 0), pc.greater_equal(column, len(names))))
        if row is not None:
            raise InputError(
                f"{where(row)}: {name} is {column[row]}, no class: remove rows without a label"
            )
        classes = pa.array(names, pa.string())
        return pa.chunked_array([classes.take(chunk) for chunk in column.chunks], pa.string())
    if pa.types.is_floating(kind):
        row = first_true(pc.invert(pc.is_finite(column)))
        if row is not None:
            raise InputError(
                f"{where(row)}: {name} is {column[row]}: give a finite number or a text"
            )
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean)
    if len(column) and not (is_text(kind) or any(test(kind) for test in tests)):
        raise InputError(f"{where(0)}: column {name!r} holds {kind}: give numbers or texts")
    return column


def first_true(found: pa.ChunkedArray) -> int | None:
    """Return the number of the first row that is true, or None."""
    row: int = pc.index(found, value=True).as_py()
    return row if row >= 0 else None


def _values(column: pa.ChunkedArray, feature: Any, name: str, where: Where) -> list[Any]:
    """Return checked labels as texts, whole numbers or fractions."""
    column = check_labels(column, feature, name, where)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values = column.to_pylist()
    return [str(value) for value in values] if pa.types.is_boolean(column.type) else values


def _values_of_lists(
    rows: list[list[Any]], feature: Any, name: str, where: Where
) -> list[list[Any]]:
    flat = pa.chunked_array([pa.array([value for row in rows for value in row])])
    owners = [number for number, row in enumerate(rows) for _ in row]
    values = iter(_values(flat, feature, name, lambda place: where(owners[place])))
    return [[next(values) for _ in row] for row in rows]


def is_text(kind: pa.DataType) -> bool:
    """Say whether an Arrow type is that of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    """Say whether an Arrow type is that of numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_numbers(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return numbers, or texts that are written as numbers, as of csv files; blank: missing.

    Raises:
        pyarrow.ArrowException: the column holds something else.
    """
    if is_text(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column)
    return column.cast(kind)


def is_list(kind: pa.DataType) -> bool:
    """Say whether an Arrow type is that of lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def decode_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without dictionary encoding."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def class_names(feature: Any) -> list[str] | None:
    """Return the names of a feature's classes; None where it has none."""
    inner = getattr(feature, "feature", feature[0] if isinstance(feature, list) else feature)
    names = getattr(inner, "names", None)
    return None if names is None else [str(name).strip() for name in names]


def plain_label(label: object) -> str | None:
    """Return a label as text, numbers with six digits at most.

    Example:
        >>> plain_label(1.0), plain_label("0.50"), plain_label("01"), plain_label(1234567)
        ('1', '0.5', '01', '1234567')
    """
    if label is None or isinstance(label, bool):
        return None if label is None else str(label)
    text = str(label)
    number = as_number(text)
    if number is None or _LEADING_ZERO.match(text):  # "01" is not "1"
        return text
    return str(int(number)) if number.is_integer() else f"{number:g}"


def label_text(label: Any, names: Sequence[str]) -> str:
    """Return a label as text: the name of a class's number; no label: an empty text."""
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    return label if isinstance(label, str) else plain_label(label) or ""


def _numbers(values: list[Any]) -> list[float] | None:
    """Return labels as numbers if all are numbers, or texts that are written as numbers."""
    if all(isinstance(value, int | float) for value in values):
        return [float(value) for value in values]
    found = [as_number(value) if isinstance(value, str) else None for value in values]
    numbers = [number for number in found if number is not None]
    return numbers if len(numbers) == len(found) else None


def _with_classes(
    kind: Literal["class", "multi", "tags"],
    values: list[Any],
    sets: Sequence[Sequence[Class]],
    names: list[str] | None,
) -> Labels:
    present = {value for row in sets for value in row}
    classes: list[Class]
    if names is not None:
        classes = [name for name in dict.fromkeys(names) if name in present]
    elif _numbers(list(present)) is not None:
        classes = sorted(present, key=lambda value: (float(value), str(value)))
    else:
        classes = sorted(present, key=str)
    ids = {value: index for index, value in enumerate(classes)}
    return Labels(
        kind, values, classes, [tuple(sorted(ids[value] for value in row)) for row in sets]
    )
