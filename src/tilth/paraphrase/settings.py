"""What rewrites of a set are asked for, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilth import limits
from tilth.limits import LEAST_MEANING, MEANING, PARTS, SEED, WORDING, check_fields

BEAMS = 5  # of the published sample code; the paper's own figures are of 20
TRIES = 3  # searches at most where rewrites are checked
MIN_MEANING = 80.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What rewrites of a set are asked for, checked once."""

    meaning: Annotated[float, MEANING, "Similarity of meaning, 70 to 100."] = 95.0
    wording: Annotated[float, WORDING, "Similarity of wording, 0 to 45."] = 20.0
    min_meaning: Annotated[
        float, LEAST_MEANING, "Leave out rewrites whose measured meaning is below; 0: none."
    ] = MIN_MEANING
    n: Annotated[int, limits.BEAMS, "Rewrites of each row."] = 1
    steer: Annotated[
        bool,
        "Search at several copy penalties and take the nearest to what is asked; without it "
        "the best of the paper's plain beam search.",
    ] = True
    tries: Annotated[int, limits.TRIES] = 1
    beams: Annotated[int, limits.BEAMS, "Beam width; the paper's is 20."] = BEAMS
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    originals: Annotated[bool, "Keep the rows as they were, too."] = False
    part_size: Annotated[
        int | None, PARTS, "Rows written as one part; default: a sixteenth of the set, 32 to 256."
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
