"""How a rewriter is trained, checked once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from tilth.errors import InputError
from tilth.limits import (
    BATCH,
    LEARNING_RATE,
    SEED,
    STEPS,
    Choice,
    TrainingPrecision,
    check_fields,
    whole,
)

SCHEDULE = Choice(("constant", "linear"))
MAX_EPOCHS = whole(1, 10_000)
REWRITER_TOKENS = whole(8, 1_000_000)
_PAPER_RATE = 1e-5  # the best of 5e-6, 1e-5 and 2e-5 there
_STARTER_RATE = 3e-4  # the starter is a tenth of BART-base and hardly moves at 1e-5


@dataclass(frozen=True, slots=True)
class RewriterTraining:
    """How a rewriter is trained; the defaults are the paper's.

    Reference:
        Ogasa, Kajiwara and Arase, section 4.2.
    """

    max_epochs: Annotated[int, MAX_EPOCHS, "Passes over the pairs, at most."] = 50
    patience: Annotated[
        int, MAX_EPOCHS, "Epochs without a lower validation loss before training stops."
    ] = 5
    batch: Annotated[int, BATCH, "Batch size, in pairs."] = 128
    rows: Annotated[
        int | None,
        BATCH,
        "Pairs in a forward pass, gradients are summed; default: as many as fit into memory.",
    ] = None
    learning_rate: Annotated[
        float | None, LEARNING_RATE, "Learning rate of AdamW; default: 1e-5, for the starter 3e-4."
    ] = None
    # The paper names no schedule; where a training stops by itself, a constant rate does not depend
    # on when it would have ended.
    schedule: Annotated[str, SCHEDULE, "constant, or linear: falling to 0 over max-epochs."] = (
        "constant"
    )
    max_length: Annotated[
        int | None, REWRITER_TOKENS, "Tokens of a text; longer pairs are left out."
    ] = None
    save_every: Annotated[int, STEPS, "Steps between checkpoints, beside that of each epoch."] = (
        1000
    )
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same corpus, settings and seed, same weights."] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rows is not None and self.batch % self.rows:
            raise InputError(
                f"rows is {self.rows}: a batch of {self.batch} does not divide into passes of as "
                "many"
            )

    def for_base(self, base: str) -> RewriterTraining:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATE if base == "starter" else _PAPER_RATE)
