"""A teacher's probabilities in a data set: one list a row, for tokens one list a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.errors import InputError
from tilth.selftrain.rows import Rows, Where

if TYPE_CHECKING:
    from tilth.data.examples import Examples
    from tilth.models.classifier import Kind

PROBABILITIES = "probabilities"
_NEAR = 1e-2  # probabilities may have been rounded


def named_lists(column: pa.ChunkedArray) -> tuple[list[str] | None, pa.ChunkedArray]:
    """Return the labels that probabilities are stored by, None without names, and them as lists.

    Args:
        column: of each row a list, or a struct with a field for each label as `tilth predict`
            writes; of tags a list of these. # (rows,)
    """
    array: Any = column.combine_chunks()
    structs = array.flatten() if pa.types.is_list(array.type) else array
    if not pa.types.is_struct(structs.type):
        return None, column
    names = [field.name for field in structs.type]
    flat = np.stack([field.to_numpy(zero_copy_only=False) for field in structs.flatten()], 1)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel(), pa.float32()), len(names))
    if structs is not array:
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        ends = np.append(0, np.cumsum(sizes)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), lists)
    return names, pa.chunked_array([lists])


def soft_rows(
    examples: Examples, column: pa.ChunkedArray, labels: Sequence[str], kind: Kind, where: Where
) -> Rows:
    """Return examples as rows with a teacher's probabilities for targets.

    Args:
        examples: what `read_examples` reads.
        column: of each row the labels' probabilities, for tags those of each token. # (rows,)
        labels: the classes or tags, in the order of the probabilities.
        kind: of the labels.
        where: names the place of a row, for messages.

    Raises:
        InputError: there are more or fewer than labels or tokens, or they are no probabilities.
    """
    tokens = examples.tokens if kind == "tags" else None
    rows = np.arange(len(examples))
    lists: Any = column.combine_chunks()
    if tokens is not None:
        sizes = np.array([len(row) for row in tokens])
        wrong = np.flatnonzero(_lengths(lists, where) != sizes)
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"{where(row)}: {sizes[row]} tokens, but {PROBABILITIES} of "
                f"{_lengths(lists, where)[row]}: give each token a list"
            )
        rows = np.repeat(rows, sizes)  # (tokens,)
        lists = pc.list_flatten(lists)
    flat = _matrix(lists, labels, kind, rows, where)  # (rows or tokens, labels)
    if tokens is None:
        return Rows(kind, list(labels), examples.texts, None, flat)
    targets = np.split(flat, np.cumsum(sizes)[:-1])  # each (tokens, tags)
    return Rows(kind, list(labels), examples.texts, tokens, targets)


def _lengths(lists: pa.Array, where: Where) -> NDArray[np.int64]:
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)
            or pa.types.is_fixed_size_list(kind)):  # fmt: skip
        raise InputError(
            f"{where(0)}: column {PROBABILITIES!r} holds {kind}: give a list with the probability "
            "of each label, for tags a list of these for each token"
        )
    lengths: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    return lengths.astype(np.int64)


def _matrix(
    lists: pa.Array, labels: Sequence[str], kind: Kind, rows: NDArray[np.int64], where: Where
) -> NDArray[np.float32]:
    """Return lists of as many probabilities as labels as an array, (lists, labels)."""
    lengths = _lengths(lists, where)
    wrong = np.flatnonzero(lengths != len(labels))
    if len(wrong):
        raise InputError(
            f"{where(int(rows[wrong[0]]))}: {lengths[wrong[0]]} {PROBABILITIES} for "
            f"{len(labels)} labels ({', '.join(labels)}): give each label's, in this order"
        )
    values = pc.fill_null(pc.list_flatten(lists).cast(pa.float32()), np.nan)
    found: NDArray[np.float32] = values.to_numpy(zero_copy_only=False).reshape(-1, len(labels))
    right = ((found >= 0) & (found <= 1 + _NEAR)).all(axis=1)  # none of it for no number
    total = found.sum(axis=1)
    if kind != "multi":
        right &= np.abs(total - 1) <= _NEAR
    if not right.all():
        place = int(np.argmin(right))
        adding = "" if kind == "multi" else " that add up to 1"
        raise InputError(
            f"{where(int(rows[place]))}: {PROBABILITIES} {found[place].tolist()!r:.60} are none: "
            f"give numbers from 0 to 1{adding}"
        )
    return found if kind == "multi" else found / total[:, None]
