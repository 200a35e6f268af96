"""Settings of `curate`: whether they are in range, and which apply to a set."""

from __future__ import annotations

import logging

from tilth.data.labelled import Labelled
from tilth.errors import InputError
from tilth.limits import (
    MOST_SAMPLED_PAIRS,
    NEAR_DUPLICATES,
    PART_SHARE,
    PER_LABEL,
    SEED,
    SHARE,
    SIMILARITY,
)  # fmt: skip

log = logging.getLogger(__name__)

# DINO, Schick and Schütze 2021, section 4 and the released code.
SMOOTHING = 0.2
SAMPLED_PAIRS = 2


def check_settings(
    smoothing: float | None,
    sampled_pairs: int | None,
    per_label: int,
    validation: float,
    near_duplicates: float | None,
    min_label_fit: float,
    seed: int,
) -> None:
    """Check what can be checked of the settings without the rows."""
    for name, value, limit in (
        ("smoothing", smoothing, SHARE),
        ("sampled_pairs", sampled_pairs, MOST_SAMPLED_PAIRS),
        ("near_duplicates", near_duplicates, NEAR_DUPLICATES),
    ):
        if value is not None:
            limit.check(name, value)
    PER_LABEL.check("per_label", per_label)
    SIMILARITY.check("min_label_fit", min_label_fit)
    PART_SHARE.check("validation", validation)
    SEED.check("seed", seed)


def applied_smoothing(rows: Labelled, asked: float | None) -> float:
    """Return the smoothing that applies."""
    if rows.numbers is None:
        if asked:
            raise InputError(
                f"smoothing is {asked}, but labels are no numbers, such as "
                f"{rows.first_label!r}: leave it out"
            )
        if asked is None and rows.is_pair:
            log.info("labels are no numbers: no smoothing, no sampled pairs")
        return 0.0
    if asked is not None:
        return asked
    return SMOOTHING if rows.is_pair else 0.0


def applied_sampled_pairs(rows: Labelled, asked: int | None) -> int:
    """Return the number of sampled pairs for each first text that applies."""
    if not rows.is_pair:
        wrong = "rows are single texts"
    elif rows.numbers is None:
        wrong = f"their label is 0, and labels are no numbers, such as {rows.first_label!r}"
    elif rows.numbers.min() < 0:
        wrong = f"their label is 0, and the lowest label is {rows.numbers.min():g}"
        if asked is None:
            log.warning("no sampled pairs: %s", wrong)
    else:
        return SAMPLED_PAIRS if asked is None else asked
    if asked:
        raise InputError(f"sampled-pairs is {asked}, but {wrong}: leave it out")
    return 0
