"""How an encoder is trained, checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from tilth.limits import (
    BATCH,
    EPOCHS,
    LEARNING_RATE,
    PART_SHARE,
    POOLING,
    SEED,
    STEPS,
    TOKENS,
    TRAINING_PRECISION,
    WEIGHT_DECAY,
    Number,
    check_fields,
    whole,
)

if TYPE_CHECKING:
    from typing_extensions import Self

TRIPLET_BATCH = whole(2, 65_536)
DIMENSION = whole(1, 65_536)
MIN_SCORE = Number(0, 1_000)
MARGIN = Number(0, 2, above=True, below=True)
_PAPER_RATE = 2e-5
# Chosen on dev parts. starter-mlm, STSb: 2e-4 67.3, 5e-4 70.0, 1e-3 69.4 with 1,000 first texts.
# starter-static, mean of STSb and SICK: untrained 76.3, 1e-3 76.5, 1e-2 70.1 with 300.
_STARTER_RATES = {"starter-mlm": 5e-4, "starter-static": 1e-3}


@dataclass(frozen=True, slots=True)
class Training:
    """How an encoder is trained; the defaults are the DINO paper's.

    Attributes:
        epochs: passes over the pairs; the paper takes at most one.
        batch: pairs in a step.
        learning_rate: the highest; AdamW, falling linearly to 0. None: the paper's 2e-5, but 5e-4
            for starter-mlm and 1e-3 for starter-static, which hardly move at less.
        warmup: share of the steps in which the rate rises, 0 to below 1.
        weight_decay: of AdamW.
        evaluate_every: steps between two checkpoints, of which the best is kept.
        pooling: `mean`, `cls` or `max`; None: as the base was saved, else mean.
        max_length: tokens read of a text; None: as the base was saved.
        precision: `auto`, `float32` or `bfloat16` (autocast: weights stay in float32).
        seed: of the order of the pairs and of dropout.

    Reference:
        Schick and Schütze 2021, section 4, with the defaults of Reimers and Gurevych 2019.
    """

    epochs: Annotated[float, EPOCHS] = 1.0
    batch: Annotated[int, BATCH] = 32
    learning_rate: Annotated[float | None, LEARNING_RATE] = None
    warmup: Annotated[float, PART_SHARE] = 0.1
    weight_decay: Annotated[float, WEIGHT_DECAY] = 0.01
    evaluate_every: Annotated[int, STEPS] = 100
    pooling: Annotated[str | None, POOLING] = None
    max_length: Annotated[int | None, TOKENS] = None
    precision: Annotated[str, TRAINING_PRECISION] = "auto"
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
        check_fields(self)

    def for_base(self, base: str) -> Self:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATES.get(base, _PAPER_RATE))


@dataclass(frozen=True, slots=True)
class TripletTraining(Training):
    """How an encoder is trained with triplets; beside what `Training` says of the rest.

    Attributes:
        batch: pairs in a step; the hardest negative is the hardest of these, so many are wanted.
        dimension: of a sentence's vector; the paper's 256. A linear map makes it of the base's.
        margin: by how much a partner should be nearer than the hardest negative, in cosines.
        min_score: of graded pairs, from which score on they mean the same; None: none are graded.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.1 and 3.3; the paper names neither margin nor
        batch: the margin is that of Wieting et al. 2019.
    """

    batch: Annotated[int, TRIPLET_BATCH] = 128
    dimension: Annotated[int, DIMENSION] = 256
    margin: Annotated[float, MARGIN] = 0.4
    min_score: Annotated[float | None, MIN_SCORE] = None
