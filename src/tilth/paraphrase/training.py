"""How a rewriter is trained, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilth.errors import InputError

_PRECISIONS = ("auto", "float32", "bfloat16")
_SCHEDULES = ("constant", "linear")
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

    max_epochs: int = 50
    patience: int = 5
    batch: int = 128
    rows: int | None = None
    learning_rate: float | None = None
    schedule: str = "constant"
    max_length: int | None = None
    save_every: int = 1000
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
        for name, least in (
            ("max_epochs", 1), ("patience", 1), ("batch", 1), ("rows", 1), ("max_length", 8),
            ("save_every", 1), ("seed", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is None and name in ("rows", "max_length"):
                continue
            if type(value) is not int or value < least:
                raise InputError(f"{name} is {value!r}: it is a whole number, at least {least}")
        if self.seed >= 2**32:
            raise InputError(f"seed is {self.seed}: it must be below {2**32}")
        if self.rows is not None and self.batch % self.rows:
            raise InputError(
                f"rows is {self.rows}: a batch of {self.batch} does not divide into passes of as "
                "many"
            )
        rate = self.learning_rate
        if rate is not None and not (math.isfinite(rate) and rate > 0):
            raise InputError(f"learning_rate is {rate}: it must be above 0")
        for name, known in (("schedule", _SCHEDULES), ("precision", _PRECISIONS)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} {getattr(self, name)!r} is unknown to training: use {', '.join(known)}"
                )

    def for_base(self, base: str) -> RewriterTraining:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATE if base == "starter" else _PAPER_RATE)
