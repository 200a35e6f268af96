"""Settings of training an encoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from tilth.limits import (
    BATCH,
    EPOCHS,
    LEARNING_RATE,
    POOLING,
    SEED,
    STEPS,
    TOKENS,
    Number,
    TrainingPrecision,
    Warmup,
    WeightDecay,
    check_fields,
    whole,
)

if TYPE_CHECKING:
    from typing_extensions import Self

TRIPLET_BATCH = whole(2, 65_536)
DIMENSION = whole(1, 65_536)
MIN_SCORE = Number(0, 1_000)
MARGIN = Number(0, 2, above=True, below=True)
ENCODER_BASES = (
    "starter-encoder, starter-static (very fast, no transformer), starter-mlm (not trained for "
    "similarity), an encoder's folder, or a hub id."
)
_PAPER_RATE = 2e-5
# Chosen on dev parts. starter-mlm, STSb: 2e-4 67.3, 5e-4 70.0, 1e-3 69.4 with 1,000 first texts.
# starter-static, mean of STSb and SICK: untrained 76.3, 1e-3 76.5, 1e-2 70.1 with 300.
_STARTER_RATES = {"starter-mlm": 5e-4, "starter-static": 1e-3}


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of training an encoder on graded pairs; the defaults are the DINO paper's.

    Reference:
        Schick and Schütze 2021, section 4, with the defaults of Reimers and Gurevych 2019.
    """

    epochs: Annotated[float, EPOCHS, "Passes over the pairs."] = 1.0
    batch: Annotated[int, BATCH, "Batch size, in pairs."] = 32
    learning_rate: Annotated[
        float | None,
        LEARNING_RATE,
        "Highest learning rate; default: 2e-5, for starter-mlm 5e-4, starter-static 1e-3.",
    ] = None
    warmup: Warmup = 0.1
    weight_decay: WeightDecay = 0.01
    evaluate_every: Annotated[
        int, STEPS, "Steps between checkpoints; the best on the validation part is kept."
    ] = 100
    pooling: Annotated[
        str | None,
        POOLING,
        "How tokens become one vector: mean, cls or max; default: as saved, else mean.",
    ] = None
    max_length: Annotated[
        int | None, TOKENS, "Tokens read of a text; default: as the base was saved."
    ] = None
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same data, settings and seed, same weights."] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def for_base(self, base: str) -> Self:
        """Return the settings with the base's learning rate where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATES.get(base, _PAPER_RATE))


@dataclass(frozen=True, slots=True)
class TripletTraining(Training):
    """Settings of training an encoder with the triplet loss.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.1 and 3.3; the paper names neither margin nor
        batch: the margin is that of Wieting et al. 2019.
    """

    batch: Annotated[
        int, TRIPLET_BATCH, "Batch size, in pairs; the hardest negative is looked for in the batch."
    ] = 128
    dimension: Annotated[
        int, DIMENSION, "Dimensions of a sentence embedding, by a linear layer."
    ] = 256
    margin: Annotated[
        float, MARGIN, "Cosine margin between the positive and the hardest negative."
    ] = 0.4
    min_score: Annotated[
        float | None,
        MIN_SCORE,
        "Graded pairs (a column label or score) with this score or a higher one are "
        "positives; the others are left out.",
    ] = None
