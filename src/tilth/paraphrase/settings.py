"""What rewrites of a set are asked for, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilth import limits
from tilth.limits import MEANING, PARTS, SEED, WORDING, check_fields

BEAMS = 5  # of the published sample code; the paper's own figures are of 20
TRIES = 5


@dataclass(frozen=True, slots=True)
class Asked:
    """What rewrites of a set are asked for, checked once.

    Attributes:
        meaning: 70 to 100.
        wording: 0 to 45.
        n: rewrites of each row.
        steer: whether copying is made to cost, so that the wording comes near.
        check: whether what comes out is measured, and searched for again outside the asked cell.
        tries: decodings of a sentence at most, with `check`.
        beams: width of the search.
        seed: of what is sampled.
        originals: whether the rows as they were stand in the set too.
        part_size: rows rewritten and written as one closed unit.
    """

    meaning: Annotated[float, MEANING] = 95.0
    wording: Annotated[float, WORDING] = 5.0
    n: Annotated[int, limits.BEAMS] = 1
    steer: bool = True
    check: bool = False
    tries: Annotated[int, limits.TRIES] = TRIES
    beams: Annotated[int, limits.BEAMS] = BEAMS
    seed: Annotated[int, SEED] = 0
    originals: bool = False
    part_size: Annotated[int, PARTS] = 256

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)
