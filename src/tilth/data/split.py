"""Which rows go to the validation set: a share of each label, chosen by what the rows hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilth.data.keys import group_ids, places_in_group

# With more distinct numbers than this, labels are grades: neighbouring ones form ten strata.
GRADES = 50
_GRADE_STRATA = 10


def validation_rows(
    labels: NDArray[np.int64], keys: NDArray[np.uint64], share: float, *, numeric: bool
) -> NDArray[np.bool_]:
    """Choose the validation rows.

    Of each label, the rows with the smallest keys go to validation; a row more or less moves at
    most one other of its label. A label too rare for one row in validation stays in train, and
    no label goes to validation with all its rows.

    Args:
        labels: codes of the labels; where numeric, in the order of the numbers. # (rows,)
        keys: pseudo-random numbers that follow from the content of the rows. # (rows,)
        share: of the validation rows, 0 to below 1.
        numeric: whether neighbouring codes are alike.

    Returns:
        Whether each row goes to validation. # (rows,)
    """
    strata = group_ids(labels)
    if numeric and len(np.unique(labels)) > GRADES:
        ranks = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
        strata = ranks * _GRADE_STRATA // len(labels)
    rows = np.bincount(strata)  # (strata,)
    wanted = np.minimum(np.floor(rows * share + 0.5).astype(np.int64), np.maximum(rows - 1, 0))
    order = np.argsort(keys, kind="stable")
    chosen = np.zeros(len(labels), np.bool_)
    chosen[order] = places_in_group(strata[order]) < wanted[strata[order]]
    return chosen
