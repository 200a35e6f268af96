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
    TRAINING_PRECISION,
    Choice,
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

    Attributes:
        max_epochs: passes over the pairs, at most; usually training stops earlier.
        patience: epochs without a lower loss on the validation pairs, after which it stops.
        batch: pairs in a step.
        rows: pairs that pass through the model at once, the gradients of a step summed up; None:
            as many as fit into memory.
        learning_rate: of AdamW. None: the paper's 1e-5, but 3e-4 for the starter.
        schedule: `constant`, or `linear`, falling to 0 over `max_epochs`. The paper says nothing
            of it; where a training stops by itself, a constant rate does not depend on when it
            would have ended.
        max_length: tokens of a text; pairs with a longer one are left out. None: as many as the
            model reads.
        save_every: steps between two checkpoints, beside that of each epoch; a stopped run loses
            no more.
        precision: `auto`, `float32` or `bfloat16` (autocast: weights stay in float32).
        seed: of the order of the pairs, of dropout and of new tags.

    Reference:
        Ogasa, Kajiwara and Arase, section 4.2.
    """

    max_epochs: Annotated[int, MAX_EPOCHS] = 50
    patience: Annotated[int, MAX_EPOCHS] = 5
    batch: Annotated[int, BATCH] = 128
    rows: Annotated[int | None, BATCH] = None
    learning_rate: Annotated[float | None, LEARNING_RATE] = None
    schedule: Annotated[str, SCHEDULE] = "constant"
    max_length: Annotated[int | None, REWRITER_TOKENS] = None
    save_every: Annotated[int, STEPS] = 1000
    precision: Annotated[str, TRAINING_PRECISION] = "auto"
    seed: Annotated[int, SEED] = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
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
