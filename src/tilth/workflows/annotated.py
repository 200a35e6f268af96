"""Apply people's annotations to a labelled set: their labels, and rows that they reject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tilth.data.formats import as_number
from tilth.data.labels import is_number, plain_label
from tilth.data.writer import DROP_REASON
from tilth.errors import InputError
from tilth.files import check_input, suggestion
from tilth.view.annotations import (
    CLASS,
    CLASSES,
    FILE,
    GRADE,
    GRADES,
    NO,
    SAME,
    SPANS,
    YES,
    Annotations,
)
from tilth.view.exchange import read_records
from tilth.view.results import verdict
from tilth.view.rows import canonical_table, label_column, row_key

if TYPE_CHECKING:
    from datasets import Dataset

FLAGGED, NOT_EQUIVALENT = "flagged", "not-equivalent"
CORRECTED = "corrected"
_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Judged:
    """What people say of a row; `value` is None where they disagree or only flag it.

    Attributes:
        generated: the row's own label, as it was drawn; None: it has none, or a file lacks it.
    """

    task: str
    value: Any
    flagged: bool
    generated: str | None = None

    @property
    def rejects(self) -> str | None:
        """Return why the row is to be left out; None: it is not."""
        if self.flagged:
            return FLAGGED
        return NOT_EQUIVALENT if self.task == SAME and self.value == NO else None


@dataclass(frozen=True, slots=True)
class AnnotatedRows:
    """A set with people's labels, the rejected rows with their reasons, and the counts."""

    dataset: Dataset
    rejected: pa.Table
    counts: dict[str, int]


def read_judged(path: Path) -> dict[str, Judged]:
    """Return key -> what people say, of a folder of annotations or an exported file.

    Keys are those of a row's content (`row_key`); of records without one, those of its texts.

    Raises:
        InputError: the file is in no known format, or holds no answer.
    """
    if not check_input(path):
        raise InputError(f"{path}: no such file or folder: check the path{suggestion(path)}")
    if path.is_dir() or path.name == FILE:
        found = _merged(_of_samples(Annotations(path if path.is_dir() else path.parent)))
    else:
        found = _merged(_of_file(path))
    if not found:
        inside = sorted(item.parent.name for item in path.glob(f"*/{FILE}"))
        remedy = (
            f"those of its folder {inside[0]} are of the set of that name: name both"
            if inside
            else "annotate a sample with tilth view first"
        )
        raise InputError(f"{path}: holds no answer: {remedy}")
    return found


def _merged(judged: Iterable[tuple[str, Judged]]) -> dict[str, Judged]:
    """Return the last value of each row, and whether anything flags it; a row may be in several."""
    found: dict[str, Judged] = {}
    for key, one in judged:
        before = found.get(key)
        if before is not None:
            kept = before if one.value is None else one
            one = replace(kept, flagged=before.flagged or one.flagged)
        found[key] = one
    return found


def _of_samples(notes: Annotations) -> Iterator[tuple[str, Judged]]:
    for sample in notes.samples():
        items, answers = notes.items(sample.id), notes.answers(sample.id)
        for place, group in groupby(answers, key=lambda one: one.place):
            own, item = list(group), items[place]
            values = [one.value for one in own if one.value is not None]
            value = verdict(sample.about.task, values) if values else None
            flagged = any(one.flagged for one in own)
            yield item.key, Judged(sample.about.task, value, flagged, item.label)


def _of_file(path: Path) -> Iterator[tuple[str, Judged]]:
    try:
        records = read_records(path.read_bytes())
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    for record in records:
        values = [value for _, value, _, _ in record.answers if value is not None]
        flagged = any(flag for _, _, _, flag in record.answers)
        if not values and not flagged:
            continue
        task = record.task or _task_of(values)
        try:
            values = [_as_answered(task, value) for value in values]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{path}: {record.where}: {values} are no answers to {task!r}"
            ) from error
        value = verdict(task, values) if values else None
        judged = Judged(task, value, flagged, record.label)
        yield record.key or row_key(*record.texts, None), judged


def _as_answered(task: str, value: Any) -> Any:
    """Return a value as the task has it: other tools write grades as text, and one class alone."""
    if task == GRADE:
        number = float(value)
        return int(number) if number.is_integer() else number
    if task not in (CLASSES, SPANS) and isinstance(value, list | dict):
        raise ValueError(f"{value} is no answer of one value")
    return [value] if task == CLASSES and not isinstance(value, list) else value


def _task_of(values: list[Any]) -> str:
    """Return the task that values answer, of a file that does not say it."""
    first = values[0] if values else None
    if isinstance(first, list):
        is_span = bool(first) and isinstance(first[0], list)
        return SPANS if is_span else CLASSES
    if first in (YES, NO):
        return SAME
    return GRADE if isinstance(first, int | float) else CLASS


def apply_annotations(
    dataset: Dataset,
    judged: Mapping[str, Judged],
    read: Sequence[str] = (),
    label: str | None = None,
) -> AnnotatedRows:
    """Give rows the labels that people gave them; take out those that they reject.

    Rows where people disagree without a majority stay as they are. Grades from 0 to 5 become
    labels from 0 to 1 where the set's labels lie there.

    Args:
        read: as `columns_read` returns them.
        label: the column of labels; None: a usual one.

    Raises:
        InputError: no annotated row is in the set, it has no labels, people gave several classes
            or spans, or a label does not fit its column.
    """
    from datasets import Dataset, DatasetInfo, Features, Value

    from tilth.data.labels import class_names

    features = dataset.features
    table = dataset.with_format("arrow")[:]
    if label is not None and label not in features:
        raise InputError(f"no column {label!r}: there are {', '.join(features)}")
    column = label or label_column(table.schema)
    tasks = {one.task for one in judged.values() if one.value is not None}
    if several := tasks & {CLASSES, SPANS}:
        raise InputError(
            f"people gave {' and '.join(sorted(several))}, and a set is curated with one label a "
            "row: let the page of the sample's results in tilth view write the data set"
        )
    if column is None and tasks & {CLASS, GRADE}:
        raise InputError(
            "the set has no labels that people's could replace: let the page of the sample's "
            "results in tilth view write the labelled set"
        )
    names, shown = (
        [str(one) for one in class_names(features[name]) or ()] if name else []
        for name in (column, label_column(table.schema))
    )
    labels = table[column].to_pylist() if column else []
    counts: Counter[str] = Counter()
    reasons: list[str | None] = []
    scale = _scale(labels)
    kind = table.schema.field(column).type if column else None
    for start in range(0, len(table), _ROWS):
        rows = canonical_table(table.slice(start, _ROWS), shown, read).to_pylist()
        for place, row in enumerate(rows, start):
            found = judged.get(row_key(row["first"], row["text"], row["label"]))
            if found is None:
                found = judged.get(row_key(row["first"], row["text"], None))
            reasons.append(found.rejects if found else None)
            counts["annotated"] += found is not None
            if found is None or found.value is None or found.rejects or column is None:
                continue
            old = labels[place].strip() if isinstance(labels[place], str) else labels[place]
            new = _label(found, old, names, scale)
            if found.value in (str(True), str(False)) and pa.types.is_boolean(kind):
                new = found.value == str(True)
            elif isinstance(new, str) and is_number(kind):
                new = _number(new, kind)
            is_other = plain_label(new) != plain_label(old)  # of 0.2 and "0.20" neither is wrong
            counts[CORRECTED] += is_other
            labels[place] = new if is_other else labels[place]
    if not counts["annotated"]:
        raise InputError("no annotated row is in the set: give the run that was annotated")
    if column:
        field = table.schema.field(column)
        if (
            pa.types.is_integer(kind)
            and any(isinstance(one, float) for one in labels)
            and not names
        ):
            field, kind = field.with_type(pa.float64()), pa.float64()  # grades between the labels
            features = Features({**features, column: Value("float64")})
        try:
            array = pa.array(labels, kind)
        except (pa.ArrowException, OverflowError) as error:
            raise InputError(f"a label that people gave does not fit the column {column} "
                             f"({kind}): {str(error)[:80]}") from error  # fmt: skip
        table = table.set_column(table.column_names.index(column), field, array)
    why = pa.array(reasons, pa.string())
    kept, rejected = table.filter(why.is_null()), table.filter(why.is_valid())
    if names and pa.types.is_integer(rejected[column].type):  # by name, as curated rows
        place = rejected.column_names.index(column)
        rejected = rejected.set_column(place, column, pa.array(names).take(rejected[column]))
    others = [name for name in rejected.column_names if name != DROP_REASON]
    rejected = rejected.select(others).append_column(DROP_REASON, why.drop_null())
    for reason in (FLAGGED, NOT_EQUIVALENT):
        counts[reason] = reasons.count(reason)
    left = Dataset(kept, info=DatasetInfo(features=features))
    return AnnotatedRows(left, rejected, dict(counts))


def _scale(labels: list[Any]) -> float:
    """Return what a grade is divided by."""
    found = (as_number(one) if isinstance(one, str) else one for one in labels)
    numbers = [one for one in found if isinstance(one, int | float)]
    return GRADES if numbers and max(numbers) <= 1 else 1.0


def _label(found: Judged, old: Any, names: list[str], scale: float) -> Any:
    """Return people's label in the form of the set's."""
    value = found.value
    if found.task == SAME:
        return old
    if found.task == GRADE:
        if names:
            raise InputError(f"people gave grades, and the labels are classes: {names[:20]}")
        value = value / scale
        value = int(value) if float(value).is_integer() else value
        return f"{value:g}" if isinstance(old, str) else value
    return _named(value, names)


def _number(label: str, kind: pa.DataType) -> int | float:
    try:
        return int(label) if pa.types.is_integer(kind) else float(label)
    except ValueError:
        raise InputError(f"the label {label!r} that people gave is no number") from None


def _named(name: str, names: list[str]) -> Any:
    """Return a class as the set has it: its number where the set names numbers."""
    if not names:
        return name
    if name not in names:
        raise InputError(f"the label {name!r} that people gave is none of the set's: {names[:20]}")
    return names.index(name)
