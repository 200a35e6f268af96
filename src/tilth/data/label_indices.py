"""A labelled set, checked, with its texts and labels as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import text_hashes
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, Features

PAIR = ("text_a", "text_b")
SINGLE = ("text",)
LABEL = "label"
DROP_REASON = "drop_reason"

_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)$"


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows as a table and as numbers.

    Attributes:
        table: all columns as they came, labels of classes by name, no column drop_reason.
        features: of these columns.
        columns: the text columns, ("text_a", "text_b") or ("text",).
        texts: the distinct texts, without surrounding white space. # (texts,)
        codes: for each text column, where in `texts` each row's stands. # each (rows,)
        labels: codes of the labels, in the order of numbers where they are. # (rows,)
        numbers: the labels, None where they are no numbers. # (rows,)
        hashes: of each of `texts`, the same on every machine. # (texts,)
        label_hashes: of each row's label. # (rows,)
    """

    table: pa.Table
    features: Features
    columns: tuple[str, ...]
    texts: pa.Array
    codes: tuple[NDArray[np.int64], ...]
    labels: NDArray[np.int64]
    numbers: NDArray[np.float64] | None
    hashes: NDArray[np.uint64]
    label_hashes: NDArray[np.uint64]

    @property
    def is_pair(self) -> bool:
        """Whether rows are pairs of texts."""
        return self.columns == PAIR

    @property
    def first_label(self) -> object:
        """The first row's label, for messages."""
        return self.table[LABEL][0].as_py()

    def with_labels(self, numbers: NDArray[np.float64]) -> pa.Table:
        """Return the table with other labels."""
        place = self.table.column_names.index(LABEL)
        return self.table.set_column(place, LABEL, pa.chunked_array([numbers]))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)


def read_labelled(dataset: Dataset) -> Labelled:
    """Check a labelled set and number its texts and labels.

    Raises:
        InputError: no rows, a missing column, a column of another type, a missing value, a label
            that is no finite number.
    """
    names = dataset.column_names
    half_a_pair = bool(set(PAIR) & set(names)) and SINGLE[0] not in names
    columns = PAIR if half_a_pair or set(PAIR) <= set(names) else SINGLE
    missing = [name for name in (*columns, LABEL) if name not in names]
    if missing:
        raise InputError(
            f"no column {missing[0]!r} among {', '.join(names) or 'none'}: a labelled set has "
            "text_a, text_b, label, or text, label"
        )
    if not len(dataset):
        raise InputError("the set has no rows: give one with labelled texts")
    table = dataset.with_format("arrow")[:].replace_schema_metadata(None)
    features = dataset.features.copy()
    table = _without_reasons(table, features)
    texts, codes = _number_texts([_texts(table, name) for name in columns])
    table, label_hashes, labels, numbers = _read_labels(table, features, columns)
    return Labelled(
        table, features, columns, texts, codes, labels, numbers, text_hashes(texts), label_hashes
    )


def _without_reasons(table: pa.Table, features: Features) -> pa.Table:
    if DROP_REASON not in table.column_names:
        return table
    row = pc.index(pc.is_valid(table[DROP_REASON]), value=True).as_py()
    if row >= 0:
        reason = table[DROP_REASON][row].as_py()
        raise InputError(
            f"row {row} was dropped ({DROP_REASON} {reason!r}): give the kept rows of the set"
        )
    del features[DROP_REASON]
    return table.drop_columns([DROP_REASON])


def _texts(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InputError(f"column {name!r} holds {column.type}: it must hold texts")
    _refuse_nulls(column, name)
    # Large: all texts of a set may be more than the 2 GB that an array of strings can hold.
    return pc.utf8_trim_whitespace(column.cast(pa.large_string()))


def _refuse_nulls(column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        row = pc.index(pc.is_null(column), value=True).as_py()
        raise InputError(f"row {row} has no {name} (rows count from 0): fill it in or remove it")


def _number_texts(
    columns: list[pa.ChunkedArray],
) -> tuple[pa.Array, tuple[NDArray[np.int64], ...]]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pc.dictionary_encode(pa.chunked_array(chunks, pa.large_string())).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, tuple(np.split(codes, len(columns)))


def _read_labels(
    table: pa.Table, features: Features, columns: tuple[str, ...]
) -> tuple[pa.Table, NDArray[np.uint64], NDArray[np.int64], NDArray[np.float64] | None]:
    """Return the table with its labels in their final type, their hashes, codes and numbers."""
    place = table.column_names.index(LABEL)
    column = _plain_labels(table[LABEL], features)
    numbers = None
    if columns == PAIR and _are_written_numbers(column):
        column = column.cast(pa.float64())
    if _is_number(column.type):
        numbers = column.cast(pa.float64(), safe=False).to_numpy() + 0.0  # -0.0 is 0.0
        _refuse_infinite(numbers)
        if columns == PAIR:
            column = pa.chunked_array([numbers])
        labels = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        hashes = numbers.view(np.uint64)
    else:
        encoded = pc.dictionary_encode(column.cast(pa.large_string())).combine_chunks()
        labels = encoded.indices.to_numpy().astype(np.int64)
        hashes = text_hashes(encoded.dictionary)[labels]
    features[LABEL] = _value(column.type)
    return table.set_column(place, LABEL, column), hashes, labels, numbers


def _plain_labels(column: pa.ChunkedArray, features: Features) -> pa.ChunkedArray:
    """Return the labels as numbers or texts; class numbers become their names."""
    from datasets import ClassLabel

    _refuse_nulls(column, LABEL)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    feature = features[LABEL]
    if isinstance(feature, ClassLabel):
        names = pa.array(feature.names, pa.string())
        row = pc.index(pc.less(column, 0), value=True).as_py()
        if row >= 0:
            raise InputError(f"row {row} has label -1, no class: remove rows without a label")
        column = pa.chunked_array([names.take(chunk) for chunk in column.chunks], pa.string())
    kind = column.type
    if not (_is_number(kind) or _is_text(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"column {LABEL!r} holds {kind}: it must hold numbers or texts")
    if _is_text(kind):
        row = pc.index(pc.equal(pc.utf8_trim_whitespace(column), ""), value=True).as_py()
        if row >= 0:
            raise InputError(f"row {row} has a blank label: fill it in or remove the row")
    return column


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _are_written_numbers(column: pa.ChunkedArray) -> bool:
    """Tell whether all labels are texts such as "0.5", as keys of a task spec are."""
    if not _is_text(column.type):
        return False
    return bool(pc.all(pc.match_substring_regex(pc.unique(column), _NUMBER)).as_py())


def _refuse_infinite(numbers: NDArray[np.float64]) -> None:
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise InputError(
            f"row {wrong[0]} has label {numbers[wrong[0]]} (rows count from 0): labels are finite "
            "numbers or texts"
        )


def _value(kind: pa.DataType) -> Any:
    from datasets import Value

    return Value("float64" if pa.types.is_float64(kind) else str(kind))
