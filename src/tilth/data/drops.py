"""Which rows of a labelled set are dropped, and why."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.keys import group_ids, places_in_group
from tilth.data.labelled import Labelled
from tilth.data.near import near_duplicates as find_near

EMPTY = "empty"
UNFIT = "label-fit"
IDENTICAL = "identical-pair"
DUPLICATE = "duplicate"
NEAR = "near-duplicate"
OVER = "over-per-label"
# In the order they are looked for; a row's code is its place here, 0 for kept rows.
REASONS = ("", EMPTY, UNFIT, IDENTICAL, DUPLICATE, NEAR, OVER)
FIT = "label_fit"  # a column of generated sets


def drop_reasons(
    rows: Labelled, per_label: int, near_duplicates: float | None, min_label_fit: float
) -> NDArray[np.int8]:
    """Return the code of each row's drop reason, 0 for kept rows."""
    reasons = np.zeros(len(rows), np.int8)
    if _has_fit(rows):
        below = pc.fill_null(pc.less(rows.table[FIT], min_label_fit), False)
        reasons[below.to_numpy()] = REASONS.index(UNFIT)
    blank = pc.index(rows.texts, "").as_py()
    for codes in rows.codes:
        reasons[codes == blank] = REASONS.index(EMPTY)
    if rows.is_pair:
        first, second = rows.codes
        reasons[(first == second) & (reasons == 0)] = REASONS.index(IDENTICAL)
    alive = np.flatnonzero(reasons == 0)
    places = places_in_group(group_ids(*(codes[alive] for codes in (*rows.codes, rows.labels))))
    reasons[alive[places > 0]] = REASONS.index(DUPLICATE)
    if near_duplicates is not None:
        alive = np.flatnonzero(reasons == 0)
        columns = tuple(codes[alive] for codes in rows.codes)
        alike = find_near(rows.texts, columns, rows.labels[alive], near_duplicates)
        reasons[alive[alike]] = REASONS.index(NEAR)
    if rows.is_pair:
        alive = np.flatnonzero(reasons == 0)
        places = places_in_group(group_ids(rows.codes[0][alive], rows.labels[alive]))
        reasons[alive[places >= per_label]] = REASONS.index(OVER)
    return reasons  # (rows,)


def _has_fit(rows: Labelled) -> bool:
    names = rows.table.column_names
    return FIT in names and pa.types.is_floating(rows.table.schema.field(FIT).type)


def count_drops(rows: Labelled, reasons: NDArray[np.int8], near: float | None) -> dict[str, int]:
    """Count the rows of each reason that can apply."""
    numbers = np.bincount(reasons, minlength=len(REASONS)).tolist()
    counts = dict(zip(REASONS[1:], numbers[1:], strict=True))
    if not rows.is_pair:
        del counts[IDENTICAL], counts[OVER]
    if not _has_fit(rows):
        del counts[UNFIT]
    if near is None:
        del counts[NEAR]
    return counts
