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
    TRAINING_PRECISION,
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

    Attributes:
        query: see `tilth.bank.task_queries`: all-average, label-average, per-sentence, clusters.
        clusters: per label, of query `clusters`.
        multiple: rows wanted for each of the training set's; None: see `multiple_of`, as far as
            the bank is large enough.
        count: rows wanted.
        per_class: rows wanted of each class; of these three one at most is given.
        candidates: sentences to be retrieved and labelled; None: two for each wanted row.
        select: which labelled sentences are kept; see `tilth.selftrain.select.select`. A draw
            unless asked otherwise: the paper's most confident of each class are the best of a
            bank of milliards, but of one of millions they are the plain cases, and all alike.
        floor: least confidence of the teacher, 0 to 1.
        min_similarity: least cosine with the query.
        sources: only sentences of these sources of the bank; None: all.
        near: whether near duplicates of test and validation rows are left out too.
        index: whether to ask the bank's index.
        precision: of training and labelling.
        seed: of everything drawn.

    Reference:
        Du et al. 2020, arXiv:2010.02194, section 2.
    """

    query: Annotated[str, QUERY] = "label-average"
    clusters: Annotated[int, CLUSTERS] = 8
    multiple: Annotated[float | None, MULTIPLE] = None
    count: Annotated[int | None, ROWS] = None
    per_class: Annotated[int | None, ROWS] = None
    candidates: Annotated[int | None, ROWS] = None
    select: Annotated[str, SELECT] = "random"
    floor: Annotated[float, SHARE] = 0.0
    min_similarity: Annotated[float | None, SIMILARITY] = None
    sources: tuple[str, ...] | None = None
    near: bool = True
    index: bool = False
    precision: Annotated[str, TRAINING_PRECISION] = "auto"
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
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
