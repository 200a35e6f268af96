"""Encode a labelled set as an Arrow table with integer codes and hashes of texts and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import text_hashes
from tilth.data.labels import NUMBER, decode_dictionary, is_text
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, Features

PAIR = ("text_a", "text_b")
SINGLE = ("text",)
LABEL = "label"
DROP_REASON = "drop_reason"


@dataclass(frozen=True, slots=True)
class LabelledTable:
    """Hold checked rows of columns text_a, text_b, label, or text, label.

    Attributes:
        table: all original columns but drop_reason, labels of classes by name.
        columns: the text columns, ("text_a", "text_b") or ("text",).
        texts: the distinct texts, without surrounding white space. # (texts,)
        codes: for each text column, the index in `texts` of each row's text. # each (rows,)
        labels: codes of the labels, in numeric order where they are numbers. # (rows,)
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
        """Return whether rows are pairs of texts."""
        return self.columns == PAIR

    @property
    def first_label(self) -> object:
        """Return the first row's label, for messages."""
        return self.table[LABEL][0].as_py()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)


def read_labelled_table(dataset: Dataset) -> LabelledTable:
    """Check and encode a labelled set; blank texts are left for `curate` to count and drop."""
    from datasets import Value

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
    if DROP_REASON in names:
        _refuse_dropped(table[DROP_REASON])
        del features[DROP_REASON]
        table = table.drop_columns([DROP_REASON])
    texts, codes = _encode_texts([_texts(table, name) for name in columns])
    label = _labels(table[LABEL], getattr(features[LABEL], "names", None))
    if columns == PAIR and _are_written_numbers(label):
        label = label.cast(pa.float64())
    numbers = None
    if is_text(label.type) or pa.types.is_boolean(label.type):
        encoded = pc.dictionary_encode(label.cast(pa.large_string())).combine_chunks()
        labels = encoded.indices.to_numpy().astype(np.int64)
        label_hashes = text_hashes(encoded.dictionary)[labels]
    else:
        numbers = label.cast(pa.float64(), safe=False).to_numpy() + 0.0  # -0.0 is 0.0
        _refuse_infinite(numbers)
        if columns == PAIR:
            label = pa.chunked_array([numbers])
        labels = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        label_hashes = numbers.view(np.uint64)
    features[LABEL] = Value("float64" if pa.types.is_float64(label.type) else str(label.type))
    table = table.set_column(table.column_names.index(LABEL), LABEL, label)
    return LabelledTable(
        table, features, columns, texts, codes, labels, numbers, text_hashes(texts), label_hashes
    )


def _refuse_dropped(reasons: pa.ChunkedArray) -> None:
    row = pc.index(pc.is_valid(reasons), value=True).as_py()
    if row >= 0:
        raise InputError(
            f"row {row} was dropped ({DROP_REASON} {reasons[row].as_py()!r}): give the kept rows "
            "of the set"
        )


def _texts(table: pa.Table, name: str) -> pa.ChunkedArray:
    column = decode_dictionary(table[name])
    if not is_text(column.type):
        raise InputError(f"column {name!r} holds {column.type}: it must hold texts")
    _refuse_nulls(column, name)
    # Large: all texts of a set may be more than the 2 GB that an array of strings can hold.
    return pc.utf8_trim_whitespace(column.cast(pa.large_string()))


def _refuse_nulls(column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        row = pc.index(pc.is_null(column), value=True).as_py()
        raise InputError(f"row {row} has no {name} (rows count from 0): fill it in or remove it")


def _encode_texts(
    columns: list[pa.ChunkedArray],
) -> tuple[pa.Array, tuple[NDArray[np.int64], ...]]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pc.dictionary_encode(pa.chunked_array(chunks, pa.large_string())).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, tuple(np.split(codes, len(columns)))


def _labels(column: pa.ChunkedArray, names: list[str] | None) -> pa.ChunkedArray:
    """Return the labels as numbers, texts or booleans; class numbers become their names."""
    _refuse_nulls(column, LABEL)
    column = decode_dictionary(column)
    if names is not None:
        row = pc.index(pc.less(column, 0), value=True).as_py()
        if row >= 0:
            raise InputError(f"row {row} has label -1, no class: remove rows without a label")
        classes = pa.array(names, pa.string())
        column = pa.chunked_array([classes.take(chunk) for chunk in column.chunks], pa.string())
    kind, types = column.type, pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (is_number or is_text(kind) or types.is_boolean(kind)):
        raise InputError(f"column {LABEL!r} holds {kind}: it must hold numbers or texts")
    if is_text(kind):
        row = pc.index(pc.equal(pc.utf8_trim_whitespace(column), ""), value=True).as_py()
        if row >= 0:
            raise InputError(f"row {row} has a blank label: fill it in or remove the row")
    return column


def _are_written_numbers(column: pa.ChunkedArray) -> bool:
    """Tell whether all labels are texts such as "0.5", as keys of a task spec are."""
    if not is_text(column.type):
        return False
    return bool(pc.all(pc.match_substring_regex(pc.unique(column), f"^{NUMBER}$")).as_py())


def _refuse_infinite(numbers: NDArray[np.float64]) -> None:
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise InputError(
            f"row {wrong[0]} has label {numbers[wrong[0]]} (rows count from 0): labels are finite "
            "numbers or texts"
        )
