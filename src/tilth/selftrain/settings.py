"""How a training set is augmented, checked once, and how many rows are wanted for it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from tilth.classifiers.examples import Rows
from tilth.errors import InputError
from tilth.limits import (
    CLUSTERS,
    MULTIPLE,
    QUERY,
    ROWS,
    SEED,
    SELECT,
    SHARE,
    SIMILARITY,
    TrainingPrecision,
    check_fields,
)
from tilth.selftrain.retrieve import Filters
from tilth.selftrain.select import class_ratio, multiple_of

log = logging.getLogger(__name__)

# Of what is retrieved so much is left to choose from, for each row that is kept.
_CHOICE = 2
_FEWEST = 2_000
# More than this part of a bank is hardly near the task: the paper takes some millions of a hundred
# millions to some milliards.
_PART_OF_BANK = 10


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How a training set is augmented.

    Reference:
        Du et al. 2020, arXiv:2010.02194, section 2.
    """

    query: Annotated[
        str, QUERY, "Queries: label-average (one per label), all-average, per-sentence or clusters."
    ] = "label-average"
    clusters: Annotated[int, CLUSTERS, "Clusters per label, of --query clusters."] = 8
    multiple: Annotated[
        float | None,
        MULTIPLE,
        "Rows wanted for each row of TRAIN; default: 100 for small sets, down to 10 for large"
        " ones, as far as the bank is large enough.",
    ] = None
    count: Annotated[int | None, ROWS, "Rows wanted."] = None
    per_class: Annotated[int | None, ROWS, "Rows wanted of each class."] = None
    candidates: Annotated[
        int | None, ROWS, "Sentences to retrieve and label; default: 2 for each wanted row."
    ] = None
    # The paper's most confident sentences of each class are the best of a bank of billions; of one
    # of millions they are the plain cases, all alike (docs/augment.md): a draw is the default.
    select: Annotated[
        str,
        SELECT,
        "Which rows of each class are kept: random (a draw), confidence (the paper's way), "
        "margin or similarity; or all.",
    ] = "random"
    floor: Annotated[float, SHARE, "Least confidence of the teacher, 0 to 1."] = 0.0
    min_similarity: Annotated[float | None, SIMILARITY, "Least cosine with the query, -1 to 1."] = (
        None
    )
    sources: Annotated[
        tuple[str, ...] | None,
        "Only sentences of this source of the bank: its name, one with *, or a folder.",
    ] = None
    near: Annotated[bool, "Also leave out near duplicates of test and validation rows."] = True
    index: Annotated[bool, "Ask the bank's index, for many queries."] = False
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        given = [
            name for name in ("multiple", "count", "per_class") if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} say both how many rows are wanted: give one")

    @property
    def filters(self) -> Filters:
        """Which sentences may be hits."""
        return Filters(self.min_similarity, self.sources, self.near, self.index)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many rows are wanted, of which classes, and how many are to choose from.

    Attributes:
        rows: in all.
        ratio: the share of each class. # (classes,)
        candidates: sentences to be retrieved.
    """

    rows: int
    ratio: NDArray[np.float64]
    candidates: int


def wanted_of(asked: Augmentation, rows: Rows, bank: int) -> Wanted:
    """Return how many rows are wanted of a bank of so many sentences."""
    ratio = class_ratio(rows.targets, kind=rows.kind, labels=rows.labels)
    most = min(bank, max(_FEWEST, bank // _PART_OF_BANK))
    if asked.per_class is not None:
        there = ratio > 0  # what the training set lacks is not asked for either
        count = asked.per_class * int(there.sum())
        ratio = there / there.sum()
    elif asked.count is not None:
        count = asked.count
    elif asked.multiple is not None:
        count = max(1, round(asked.multiple * len(rows)))
    else:
        usual = multiple_of(len(rows)) * len(rows)
        count = min(usual, max(1, (asked.candidates or most) // _CHOICE))
        if count < usual:
            log.warning(
                "%s rows are wanted, not %s (%d for each row of the training set): the bank's %s "
                "sentences are few for that; --multiple, --count or --per-class asks for others",
                f"{count:,}", f"{usual:,}", multiple_of(len(rows)), f"{bank:,}",
            )  # fmt: skip
    needed = asked.candidates or _CHOICE * count
    if needed > bank:
        log.warning(
            "the bank holds %s sentences, %s were to be retrieved: all are", f"{bank:,}",
            f"{needed:,}",
        )  # fmt: skip
    candidates = min(asked.candidates or max(_FEWEST, needed), bank)
    return Wanted(count, ratio, candidates)
