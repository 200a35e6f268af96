"""Encode a labelled set as an Arrow table with integer codes and hashes of texts and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.examples import trimmed_texts
from tilth.data.hashing import text_hashes
from tilth.data.labels import NUMBER, check_labels, first_true, is_text
from tilth.data.readers import row_location
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
        if (row := first_true(pc.is_valid(table[DROP_REASON]))) is not None:
            raise InputError(
                f"row {row} was dropped ({DROP_REASON} {table[DROP_REASON][row].as_py()!r}): give "
                "the kept rows of the set"
            )
        del features[DROP_REASON]
        table = table.drop_columns([DROP_REASON])

    def where(row: int) -> str:
        return row_location(dataset, row, "")

    texts, codes = _encode_texts(
        [trimmed_texts(table[name], name, where, may_be_blank=True) for name in columns]
    )
    label = check_labels(table[LABEL], features[LABEL], LABEL, where)
    if columns == PAIR and is_text(label.type):  # such as "0.5", as keys of a task spec are
        are_numbers = pc.match_substring_regex(pc.unique(label), f"^{NUMBER}$")
        label = label.cast(pa.float64()) if pc.all(are_numbers).as_py() else label
        check_labels(label, None, LABEL, where)
    numbers = None
    if is_text(label.type) or pa.types.is_boolean(label.type):
        encoded = pc.dictionary_encode(label.cast(pa.large_string())).combine_chunks()
        labels = encoded.indices.to_numpy().astype(np.int64)
        label_hashes = text_hashes(encoded.dictionary)[labels]
    else:
        numbers = label.cast(pa.float64(), safe=False).to_numpy() + 0.0  # -0.0 is 0.0
        if columns == PAIR:
            label = pa.chunked_array([numbers])
        labels = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
        label_hashes = numbers.view(np.uint64)
    features[LABEL] = Value("float64" if pa.types.is_float64(label.type) else str(label.type))
    table = table.set_column(table.column_names.index(LABEL), LABEL, label)
    return LabelledTable(
        table, features, columns, texts, codes, labels, numbers, text_hashes(texts), label_hashes
    )


def _encode_texts(
    columns: list[pa.ChunkedArray],
) -> tuple[pa.Array, tuple[NDArray[np.int64], ...]]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pc.dictionary_encode(pa.chunked_array(chunks, pa.large_string())).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    codes = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, tuple(np.split(codes, len(columns)))
