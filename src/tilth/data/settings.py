"""Settings of `tilth curate`: fields, defaults, allowed values and help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilth.limits import (
    MOST_SAMPLED_PAIRS,
    NEAR_DUPLICATES,
    PART_SHARE,
    PER_LABEL,
    SEED,
    SHARE,
    SIMILARITY,
    check_fields,
)

MIN_LABEL_FIT = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CurateOptions:
    """Set what `curate` drops, adds and splits off."""

    # e in y * (1 - e) + e * mean of the distinct labels.
    smoothing: Annotated[
        float | None,
        SHARE,
        "Label smoothing of numeric labels; default: the paper's 0.2 for pairs, so 0 / 1 -> "
        "0.1 / 0.9; none where three or more whole numbers may be classes.",
    ] = None
    sampled_pairs: Annotated[
        int | None,
        MOST_SAMPLED_PAIRS,
        "Pairs of a first text and the second text of another input, with label 0, for each first "
        "text; default: the paper's 2, where labels are numbers from 0 and may be no classes.",
    ] = None
    per_label: Annotated[
        int, PER_LABEL, "Second texts kept for each (first text, label), the first ones."
    ] = 2
    validation_share: Annotated[
        float, PART_SHARE, "Share of the validation split; labels too rare stay in train."
    ] = 0.1
    near_duplicates: Annotated[
        float | None,
        NEAR_DUPLICATES,
        "Also drop rows this similar to an earlier one of their label (0 to 1, Jaccard similarity "
        "of words and word pairs).",
    ] = None
    min_label_fit: Annotated[
        float, SIMILARITY, "Drop generated texts that fit their label less (-1: keep all)."
    ] = MIN_LABEL_FIT
    seed: Annotated[int, SEED, "Same rows and seed, same result."] = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_fields(self)
