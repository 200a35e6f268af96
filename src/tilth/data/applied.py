"""Settings of `curate`: whether they are in range, and which apply to a set."""

from __future__ import annotations

import logging
from numbers import Integral, Real

from tilth.data.labelled import Labelled
from tilth.errors import InputError

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
    seed: int,
) -> None:
    """Check what can be checked of the settings without the rows."""
    if smoothing is not None and not (_is_real(smoothing) and 0 <= smoothing <= 1):
        raise InputError(f"smoothing is {smoothing!r}: it is a number from 0 to 1")
    if sampled_pairs is not None and not (_is_whole(sampled_pairs) and sampled_pairs >= 0):
        raise InputError(f"sampled-pairs is {sampled_pairs!r}: it is a whole number from 0")
    if not (_is_whole(per_label) and per_label >= 1):
        raise InputError(f"per-label is {per_label!r}: it is a whole number from 1")
    if not (_is_real(validation) and 0 <= validation < 1):
        raise InputError(f"validation is {validation!r}: it is a share from 0 to below 1")
    if near_duplicates is not None and not (_is_real(near_duplicates) and 0 < near_duplicates <= 1):
        raise InputError(f"near-duplicates is {near_duplicates!r}: it is above 0 and at most 1")
    if not (_is_whole(seed) and -(2**63) <= seed < 2**63):
        raise InputError(f"seed is {seed!r}: it is a whole number of at most 64 bits")


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


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
