"""Settings of training an encoder."""

from __future__ import annotations

from collections.abc import Sequence
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
    Choice,
    LabelColumn,
    Number,
    PairColumns,
    TrainingPrecision,
    Warmup,
    WeightDecay,
    check_fields,
    whole,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from tilth.data.examples import Names

TRIPLET_BATCH = whole(2, 65_536)
DIMENSION = whole(1, 65_536)
MIN_SCORE = Number(0, 1_000)
MARGIN = Number(0, 2, above=True, below=True)
TEMPERATURE = Number(0, 100, above=True)
# Pairs of originals, A and B, and rewrites, A' and B', as in Table 4 of Ogasa et al.
VARIANTS = ("A'B'", "A'B", "AB'", "AB+A'B'", "AB")
VARIANT = Choice(VARIANTS)
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
    text: PairColumns = None
    label: LabelColumn = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def names(self) -> Names:
        """The columns of texts and of labels; None: usual names."""
        return self.text, self.label

    def for_base(self, base: str) -> Self:
        """Return the settings with the base's learning rate where none is given."""
        if self.learning_rate is not None:
            return self
        from tilth.models.names import began_as  # not at the start of every command: Arrow

        began = began_as(base, by="train adapt")
        return replace(self, learning_rate=_STARTER_RATES.get(began, _PAPER_RATE))


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


SINGLE_TEXTS_DROPOUT = 0.1  # of BERT, and SimCSE's best (Gao et al. 2021, Table 2)
# Of SimCSE: epochs, batch size, learning rate.
_OF_TEXTS, _OF_TRIPLES = (1.0, 64, 3e-5), (3.0, 512, 5e-5)
# Chosen on STSb's dev part with 6,000 texts: [CLS] of starter-mlm 34.3 at 3e-5, 40.0 at 5e-4; the
# mean of its tokens 59.6 at 1e-4. starter-static has no tokens to pool.
_SIMCSE_RATES = {"starter-mlm": 1e-4, "starter-static": _STARTER_RATES["starter-static"]}
_SIMCSE_POOLING = {"starter-mlm": "mean", "starter-static": None}


@dataclass(frozen=True, slots=True)
class SimcseTraining:
    """Settings of contrastive training; the defaults are those of SimCSE.

    Reference:
        Gao, Yao and Chen 2021, arXiv 2104.08821, appendix A, as Ogasa, Kajiwara and Arase,
        section 5.1, use them.
    """

    epochs: Annotated[float | None, EPOCHS, "Passes over the rows; default: 1, of triples 3."] = (
        None
    )
    batch: Annotated[
        int | None, TRIPLET_BATCH, "Batch size, in rows; default: 64, of triples 512."
    ] = None
    learning_rate: Annotated[
        float | None,
        LEARNING_RATE,
        "Highest learning rate; default: 3e-5, of triples 5e-5; of starter-mlm 1e-4.",
    ] = None
    temperature: Annotated[float, TEMPERATURE, "Divides the cosines."] = 0.05
    rows: Annotated[
        int | None,
        BATCH,
        "Rows in a forward pass: less memory, more time (gradient caching); default: a batch.",
    ] = None
    group_lengths: Annotated[
        bool, "Batches of similar lengths: negatives are then told apart less by their length."
    ] = False
    variant: Annotated[
        str | None,
        VARIANT,
        "Of a run of tilth paraphrase over pairs: the originals A and B or their rewrites A' and "
        "B' to train on, without hard negatives; default: the rows as they are.",
    ] = None
    text: Annotated[
        str | Sequence[str] | None,
        "The column of single texts, or the two of pairs with a comma; default: usual names.",
    ] = None
    warmup: Warmup = 0.0
    weight_decay: WeightDecay = 0.0
    evaluate_every: Annotated[
        int, STEPS, "Steps between checkpoints; with --validation the best one is kept."
    ] = 125
    pooling: Annotated[
        str | None,
        POOLING,
        "How tokens become one vector: mean, cls or max; default: cls, of starter-mlm mean.",
    ] = None
    max_length: Annotated[int, TOKENS, "Tokens read of a text."] = 32
    dropout: Annotated[
        float | None,
        PART_SHARE,
        "Dropout in every part of the encoder; default: 0.1 for single texts, else as saved.",
    ] = None
    precision: TrainingPrecision = "auto"
    seed: Annotated[int, SEED, "Same data, settings and seed, same weights."] = 0

    def __post_init__(self) -> None:
        check_fields(self)

    def training(self, base: str, *, triples: bool) -> Training:
        """Return the settings of the trainer, with the defaults of the base and of the set."""
        from tilth.models.names import began_as

        epochs, batch, rate = _OF_TRIPLES if triples else _OF_TEXTS
        began = began_as(base, by="train adapt")
        rate = _SIMCSE_RATES.get(began, rate)
        return Training(
            epochs if self.epochs is None else self.epochs,
            self.batch or batch,
            self.learning_rate or rate,
            self.warmup,
            self.weight_decay,
            self.evaluate_every,
            self.pooling or _SIMCSE_POOLING.get(began, "cls"),
            self.max_length,
            self.precision,
            self.seed,
            self.text,
        )
