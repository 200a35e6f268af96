"""Choose validation rows by content: a share of each label, groups of rows as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import group_ids, random_keys, rank_in_group, text_hashes
from tilth.data.labels import decode_dictionary

# With more distinct numbers than this, or more than there are strata and fewer rows of most than
# that, labels are grades: they are split into strata of equal size, of ten rows at least.
_GRADES, _FEW = 50, 5
_STRATA, _STRATUM_ROWS = 10, 10
# Columns that name what a row was made from: generated and rewritten sets have them.
_SOURCE_ID, _SOURCE_ROW, _SOURCE, _MODEL = "source_id", "source_row", "source", "model"


def validation_rows(
    labels: NDArray[np.int64],
    keys: NDArray[np.uint64],
    share: float,
    *,
    numeric: bool,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """Choose the validation rows: of each label, those with the smallest keys.

    A row more or less moves at most one other of its label. A label too rare for one row in
    validation stays in train, and no label goes to validation with all its rows. Groups are not
    divided, so shares of labels are approximate.

    Args:
        labels: codes of the labels; where numeric, in the order of the numbers. # (rows,)
        keys: pseudo-random numbers that follow from the content of the rows. # (rows,)
        share: of the validation rows, 0 to below 1.
        numeric: whether neighbouring codes are similar labels.
        groups: of `group_rows`; None: each row is a group. # (rows,)

    Returns:
        Whether each row goes to validation. # (rows,)
    """
    strata = group_ids(labels)
    if numeric and _are_grades(strata):
        ranks = np.empty(len(labels), np.int64)
        ranks[np.lexsort((keys, labels))] = np.arange(len(labels))
        strata = ranks * min(_STRATA, max(1, len(labels) // _STRATUM_ROWS)) // len(labels)
    rows = np.bincount(strata)  # (strata,)
    wanted = np.minimum(np.floor(rows * share + 0.5).astype(np.int64), np.maximum(rows - 1, 0))
    if groups is not None and len(groups) and groups.max() + 1 < len(groups):
        return _whole_groups(strata, keys, groups, rows, wanted)
    order = np.argsort(keys, kind="stable")
    chosen = np.zeros(len(labels), np.bool_)
    chosen[order] = rank_in_group(strata[order]) < wanted[strata[order]]
    return chosen


def _are_grades(labels: NDArray[np.int64]) -> bool:
    rows = np.bincount(labels)
    return len(rows) > _GRADES or (len(rows) > _STRATA and float(np.median(rows)) < _FEW)


def _whole_groups(
    strata: NDArray[np.int64],
    keys: NDArray[np.uint64],
    groups: NDArray[np.int64],
    rows: NDArray[np.int64],
    wanted: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Choose whole groups in the order of their keys, those with most rows wanted."""
    least = np.full(groups.max() + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, groups, keys)
    by_group = np.argsort(groups, kind="stable")
    members = np.split(strata[by_group], np.flatnonzero(np.diff(groups[by_group])) + 1)
    left, remaining = wanted.copy(), rows.copy()
    chosen = np.zeros(len(members), np.bool_)
    # Hashed again: a large group has a smaller least key.
    for group in np.argsort(random_keys(0, "group", least), kind="stable").tolist():
        if not left.any():
            break
        places, counts = np.unique(members[group], return_counts=True)
        needed = np.minimum(counts, left[places])
        if needed.any() and 2 * needed.sum() >= counts.sum() and (remaining[places] > counts).all():
            chosen[group] = True
            left[places] -= needed
            remaining[places] -= counts
    return chosen[groups]  # (rows,)


def group_texts(
    sides: Sequence[NDArray[np.uint64]], *origins: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Number the groups of rows that belong in one part.

    They have equal first texts, the same two texts in any order, or equal origins.

    Args:
        sides: `exact_keys` of the texts, of pairs of the first and of the second. # each (rows,)
        origins: hashes of what rows were made from, 0: not known. # each (rows,)
    """
    columns = [sides[0], *origins]
    if len(sides) == 2:
        columns.append(random_keys(0, "pair", *np.sort(sides, axis=0)))
    return group_rows(*columns)


def group_rows(*columns: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Number the connected components of rows: equal hashes in a column connect, 0 does not."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(columns[0])
    rows, nodes, width = [], [], count
    for column in columns:
        (known,) = np.nonzero(column)
        _, codes = np.unique(column[known], return_inverse=True)
        rows.append(known)
        nodes.append(codes + width)
        width += int(codes.max(initial=-1)) + 1
    ends = (np.concatenate(rows), np.concatenate(nodes))
    edges = coo_array((np.ones(len(ends[0]), np.bool_), ends), shape=(width, width))
    _, found = connected_components(edges, directed=False)
    return np.unique(found[:count], return_inverse=True)[1].astype(np.int64)


def source_hashes(table: pa.Table) -> NDArray[np.uint64]:
    """Return a hash of each row's `source_id`, else `source_row` and `source`, else 0, (rows,)."""
    names = table.column_names
    if _SOURCE_ID in names:
        return _hashes(table[_SOURCE_ID])
    if _SOURCE_ROW not in names:
        return np.zeros(len(table), np.uint64)
    found = _hashes(table[_SOURCE_ROW])
    if _SOURCE in names:
        found = np.where(found == 0, found, random_keys(0, _SOURCE, found, _hashes(table[_SOURCE])))
    return found


def written_by_model(table: pa.Table) -> NDArray[np.bool_]:
    """Return which rows a model wrote: those of `generate` and the rewrites of `paraphrase`."""
    if not {_SOURCE_ID, _MODEL} <= set(table.column_names):
        return np.zeros(len(table), np.bool_)
    found: NDArray[np.bool_] = pc.is_valid(table[_MODEL]).to_numpy()
    return found  # (rows,)


def _hashes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """Return a hash of each text or number, 0 of other values."""
    column = decode_dictionary(column)
    if pa.types.is_nested(column.type):
        return np.zeros(len(column), np.uint64)
    texts = column.cast(pa.large_string()).combine_chunks()
    known = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    found = text_hashes(pc.fill_null(texts, ""))
    return np.where(known, found, np.uint64(0))
