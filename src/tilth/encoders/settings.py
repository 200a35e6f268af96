"""How an encoder is trained, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilth.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

_PRECISIONS = ("auto", "float32", "bfloat16")
_PAPER_RATE = 2e-5
# Chosen on STSb's dev part: 2e-4 67.3, 5e-4 70.0, 1e-3 69.4 with 1,000 first texts.
_STARTER_RATE = 5e-4


@dataclass(frozen=True, slots=True)
class Training:
    """How an encoder is trained; the defaults are the DINO paper's.

    Attributes:
        epochs: passes over the pairs; the paper takes at most one.
        batch: pairs in a step.
        learning_rate: the highest; AdamW, falling linearly to 0. None: the paper's 2e-5, but 5e-4
            for the starter encoder, which is so small that it hardly moves at less.
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

    epochs: float = 1.0
    batch: int = 32
    learning_rate: float | None = None
    warmup: float = 0.1
    weight_decay: float = 0.01
    evaluate_every: int = 100
    pooling: str | None = None
    max_length: int | None = None
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every value at the door."""
        for name, low, high, open_below in (
            ("epochs", 0, None, True), ("batch", 1, None, False),
            ("learning_rate", 0, None, True), ("warmup", 0, 1, False),
            ("weight_decay", 0, None, False), ("evaluate_every", 1, None, False),
            ("seed", 0, 2**32, False),
        ):  # fmt: skip
            self._check(name, low, high, open_below=open_below)
        if self.precision not in _PRECISIONS:
            raise InputError(
                f"precision {self.precision!r} is unknown to training: use {', '.join(_PRECISIONS)}"
            )

    def _check(self, name: str, low: float, high: float | None, *, open_below: bool) -> None:
        value = getattr(self, name)
        if value is None and name == "learning_rate":
            return
        right = math.isfinite(value) and (value > low if open_below else value >= low)
        if not right or (high is not None and value >= high):
            least = f"above {low}" if open_below else f"at least {low}"
            most = f" and below {high}" if high is not None else ""
            raise InputError(f"{name} is {value}: it must be {least}{most}")

    def for_base(self, base: str) -> Self:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATE if base == "starter" else _PAPER_RATE)


@dataclass(frozen=True, slots=True)
class TripletTraining(Training):
    """How an encoder is trained with triplets; beside what `Training` says of the rest.

    Attributes:
        batch: pairs in a step; the hardest negative is the hardest of these, so many are wanted.
        dimension: of a sentence's vector; the paper's 256. A linear map makes it of the base's.
        margin: by how much a partner should be nearer than the hardest negative, in cosines.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.1 and 3.3; the paper names neither margin nor
        batch: the margin is that of Wieting et al. 2019.
    """

    batch: int = 128
    dimension: int = 256
    margin: float = 0.4

    def __post_init__(self) -> None:
        """Check every value at the door."""
        Training.__post_init__(self)
        self._check("batch", 2, None, open_below=False)
        self._check("dimension", 1, None, open_below=False)
        self._check("margin", 0, 2, open_below=True)
