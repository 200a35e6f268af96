"""How a classifier or tagger is trained, and how a base is adapted, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from tilth.limits import (
    BATCH,
    EPOCHS,
    KEEP,
    LEARNING_RATE,
    LOSS,
    PART_SHARE,
    SEED,
    STEPS,
    TOKENS,
    TRAININGS,
    Number,
    TrainingPrecision,
    Warmup,
    WeightDecay,
    check_fields,
)

MASKED = Number(0, 1, above=True, below=True)
_PAPER_RATE = 1e-5
# Small models hardly move at the paper's rate.
_STARTER_RATES = {
    "starter-mlm": 3e-4, "starter-encoder": 1e-4, "starter": 1e-4, "starter-small": 5e-4,
}  # fmt: skip
# The rate of Gururangan et al. 2020 for the texts of a task; the paper names none.
_ADAPTING_RATE = 1e-4
_EVALUATIONS = 10
# Fewer validation rows choose the weights by chance, and early weights are worse than the last:
# benchmarks/augment_defaults.py. Seeds are chosen by few rows too: none is worse beforehand.
ENOUGH = 100
LABELLED_SHARE = 0.25  # of the labelled rows; retrieved ones are less similar to the task
# The paper's passes over a whole set. A few hundred rows would hardly move a base in as many.
_EPOCHS, _STEPS, _MOST_EPOCHS = 3.0, 200, 20.0


@dataclass(frozen=True, slots=True)
class Finetuning:
    """Configure the training of a classifier or tagger; the defaults are the SentAugment paper's.

    Reference:
        Du et al. 2020, section 3, "Fine-tuning the student model"; the warm-up is RoBERTa's.
    """

    epochs: Annotated[
        float | None,
        EPOCHS,
        "Passes over the rows; default: 3, of few rows up to 20 for 200 steps.",
    ] = None
    batch: Annotated[int, BATCH, "Batch size, in rows."] = 16
    learning_rate: Annotated[
        float | None,
        LEARNING_RATE,
        "Highest learning rate; default: 1e-5, for starter-mlm 3e-4, starter-encoder 1e-4, "
        "starter-small 5e-4.",
    ] = None
    warmup: Warmup = 0.06
    weight_decay: WeightDecay = 0.0
    dropout: Annotated[float | None, PART_SHARE, "Dropout in every part of the model."] = 0.1
    evaluate_every: Annotated[
        int | None,
        STEPS,
        "Steps between measurements and checkpoints; default: ten in all, one an epoch at least.",
    ] = None
    label_smoothing: Annotated[
        float, PART_SHARE, "Share of each label that is spread over all of them."
    ] = 0.0
    max_length: Annotated[
        int | None, TOKENS, "Tokens read of a text; default: as many as the base reads."
    ] = None
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same rows, settings and seed, same weights."] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def for_base(self, base: str) -> Finetuning:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        from tilth.models.names import began_as  # not at the start of every command: Arrow

        return replace(self, learning_rate=_STARTER_RATES.get(began_as(base), _PAPER_RATE))

    def passes(self, rows: int) -> float:
        """Return the passes over so many rows."""
        if self.epochs is not None:
            return self.epochs
        return max(_EPOCHS, min(_STEPS / -(-rows // self.batch), _MOST_EPOCHS))

    def steps(self, rows: int) -> tuple[int, int]:
        """Return the steps of the whole training and those between two measurements."""
        epoch = -(-rows // self.batch)
        steps = max(1, round(epoch * self.passes(rows)))
        every = self.evaluate_every or min(epoch, max(1, steps // _EVALUATIONS))
        return steps, every


@dataclass(frozen=True, slots=True)
class ClassifierTraining:
    """The settings of `tilth.train_classifier` and `tilth.train_tagger`; see there."""

    base: str = "starter-encoder"
    finetuning: Finetuning = field(default_factory=Finetuning)
    loss: Annotated[str, LOSS] = "kl"
    labelled_share: Annotated[float | None, PART_SHARE] = None
    seeds: Annotated[int, TRAININGS] = 1
    keep: Annotated[str, KEEP] = "best"
    device: str = "auto"
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Adaptation:
    """Configure continued masked-language-model training on texts.

    Reference:
        Du et al. 2020, section 4.1, who name no settings; masks as of Devlin et al. 2019, the
        rest as of Gururangan et al. 2020, appendix B.
    """

    epochs: Annotated[float, EPOCHS, "Passes over the texts."] = 1.0
    batch: Annotated[int, BATCH, "Batch size, in texts."] = 32
    learning_rate: Annotated[
        float | None, LEARNING_RATE, "Highest learning rate; default: 1e-4, for the starters 5e-4."
    ] = None
    warmup: Warmup = 0.06
    weight_decay: WeightDecay = 0.01
    masked: Annotated[
        float,
        MASKED,
        "Masking probability: of these tokens 80% are masked, 10% replaced, 10% kept.",
    ] = 0.15
    max_length: Annotated[int, TOKENS, "Tokens read of a text."] = 128
    save_every: Annotated[int, STEPS, "Steps between checkpoints."] = 500
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same texts, settings and seed, same weights."] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def for_base(self, base: str) -> Adaptation:
        """Return the settings with the learning rate that a base wants, where none is given."""
        if self.learning_rate is not None:
            return self
        from tilth.models.names import began_as

        starter = began_as(base) in ("starter-mlm", "starter-small")
        return replace(self, learning_rate=5e-4 if starter else _ADAPTING_RATE)

    def steps(self, rows: int) -> int:
        """Return the steps of the whole training."""
        return max(1, round(-(-rows // self.batch) * self.epochs))
