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
    """What rewrites of a set are asked for, checked once.

    Attributes:
        meaning: 70 to 100.
        wording: 0 to 45.
        min_meaning: least measured meaning of a rewrite, 0 to 100.
        n: rewrites of each row.
        steer: whether copying is made to cost, so that the wording comes near.
        tries: searches of a sentence at most, until its rewrites lie in the asked cell.
        beams: width of the search.
        seed: of what is sampled.
        originals: whether the rows as they were stand in the set too.
        part_size: rows rewritten and written as one closed unit; None: a sixteenth of the set, 32
            to 256.
    """

    meaning: Annotated[float, MEANING] = 95.0
    wording: Annotated[float, WORDING] = 20.0
    min_meaning: Annotated[float, LEAST_MEANING] = MIN_MEANING
    n: Annotated[int, limits.BEAMS] = 1
    steer: bool = True
    tries: Annotated[int, limits.TRIES] = 1
    beams: Annotated[int, limits.BEAMS] = BEAMS
    seed: Annotated[int, SEED] = 0
    originals: bool = False
    part_size: Annotated[int | None, PARTS] = None

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)
