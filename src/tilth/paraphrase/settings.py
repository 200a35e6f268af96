"""Settings of the `tilth paraphrase` commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated

from tilth import limits
from tilth.errors import InputError
from tilth.limits import PARTS, SEED, Choice, TrainingPrecision, check_fields, whole

FEWER = "fewer rewrites than asked for"  # a drop reason
BEAMS = 5  # of the published sample code; the paper's own figures are of 20
TRIES = 3  # searches at most where rewrites are checked
_LEAST_MEANING = 80.0
# (top-k, temperature) of sampling, as published (section 4.1), each forward and each backward.
SAMPLING = ((20, 3.0), (30, 2.0))
HELD_OUT = 2_700  # 50 pairs a unit, as published
SCHEDULE = Choice(("constant", "linear"))
MAX_EPOCHS = whole(1, 10_000)
REWRITER_TOKENS = whole(8, 1_000_000)
_PAPER_RATE = 1e-5  # the best of 5e-6, 1e-5 and 2e-5 there
_STARTER_RATE = 3e-4  # the starter is a tenth of BART-base and hardly moves at 1e-5


@dataclass(frozen=True, slots=True)
class RewriteSettings:
    """Settings of rewriting.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.3 and 4.2.
    """

    meaning: Annotated[
        float,
        limits.MEANING,
        "Similarity of meaning, 70 to 100; the step of 5 that it lies in counts.",
    ] = 95.0
    wording: Annotated[
        float,
        limits.WORDING,
        "Similarity of wording, 0 to 45; the step of 5 that it lies in counts, 0 to 10 is one.",
    ] = 20.0
    min_meaning: Annotated[
        float | None,
        limits.LEAST_MEANING,
        "Leave out rewrites of a sentence whose measured meaning is below; 0: none; default: 80, "
        "or the step of --meaning where that is lower.",
    ] = None
    n: Annotated[
        int,
        limits.BEAMS,
        "-n --number",
        "Different rewrites of each row; fewer where the search finds fewer.",
    ] = 1
    steer: Annotated[
        bool,
        "--no-steer",
        "Search at several copy penalties and take the nearest to what is asked; without it "
        "the best of the paper's plain beam search.",
    ] = True
    tries: Annotated[
        int,
        limits.TRIES,
        "Searches of a sentence at most: where no rewrite lies in the asked cell, search again, "
        "with sampling, until a search comes no nearer.",
    ] = 1
    beams: Annotated[int, limits.BEAMS, "Beam width; the paper's is 20."] = BEAMS
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    originals: Annotated[bool, "Keep the rows as they were, too."] = False
    round_trip: Annotated[
        bool,
        "Translate greedily into another language and back instead, the paper's baseline: nothing "
        "is asked for, chosen or left out.",
    ] = False
    forward: Annotated[str, "With --round-trip: translator, starter, a folder or a hub id."] = (
        "starter"
    )
    backward: Annotated[str, "With --round-trip: translator back."] = "starter"
    part_size: Annotated[
        int | None, PARTS, "Rows written as one part; default: a sixteenth of the set, 32 to 256."
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.round_trip and self.n != 1:
            raise InputError("--round-trip writes one text for each: leave --number out")
        asks = {
            "meaning": "--meaning", "wording": "--wording", "min_meaning": "--min-meaning",
            "steer": "--no-steer", "tries": "--check", "beams": "--beams",
        }  # fmt: skip
        changed = [
            asks[one.name] for one in fields(self)
            if one.name in asks and getattr(self, one.name) != one.default
        ]  # fmt: skip
        if self.round_trip and changed:
            raise InputError(
                f"with --round-trip nothing is asked for or left out: leave {', '.join(changed)} "
                "out"
            )
        if not self.round_trip and {self.forward, self.backward} != {"starter"}:
            raise InputError(
                f"--forward {self.forward}, --backward {self.backward}: they translate with "
                "--round-trip: give it, too"
            )

    @property
    def least_meaning(self) -> float:
        """The measured meaning below which rewrites are left out."""
        from tilth.paraphrase.tags import STEP  # not above: numpy

        if self.min_meaning is not None:
            return self.min_meaning
        return min(_LEAST_MEANING, self.meaning // STEP * STEP)


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """Settings of making candidates by round trips.

    Attributes:
        sampling: (top-k, temperature) of the searches there and back.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.1, 3.2 and 4.1.
    """

    forward: Annotated[
        str, "Translator into another language: starter (English to German), a folder or a hub id."
    ] = "starter"
    backward: Annotated[str, "Translator back."] = "starter"
    forward_prefix: Annotated[
        str | None,
        "Written before every text, for a model of several languages, such as '>>de<< '.",
    ] = None
    backward_prefix: Annotated[str | None, "The same, on the way back."] = None
    scorer: Annotated[str, "Measures meaning: starter, a folder or a hub id."] = "starter"
    greedy: Annotated[
        bool, "One candidate a sentence, by greedy search, instead of four by sampling."
    ] = False
    sampling: Sequence[tuple[int, float]] = SAMPLING
    beams: Annotated[int, limits.BEAMS, "Beam width."] = 5
    precision: Annotated[str, limits.PRECISION, "Of translators and scorer."] = "auto"
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    part_size: Annotated[int, PARTS, "Sentences written as one part."] = 256

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class CorpusSettings:
    """Settings of a rewriter's training corpus."""

    size: Annotated[
        int | None,
        limits.ROWS,
        "Pairs to train on (paper: 5000000); default: as many as leave at most a quarter of the "
        "48 cells short.",
    ] = None
    validation: Annotated[
        int,
        limits.HELD_OUT_ROWS,
        "Pairs for early stopping; at most a tenth of those kept, and of a cell's.",
    ] = HELD_OUT
    test: Annotated[int, limits.HELD_OUT_ROWS, "Pairs to measure with; likewise."] = HELD_OUT
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    scorer: Annotated[
        str, "Measures meaning where it is not known: starter, a folder or a hub id."
    ] = "starter"
    metric: Annotated[
        str, limits.METRIC, "Measures wording where it is not known: bleu or chrf."
    ] = "bleu"
    part_size: Annotated[int, PARTS, "Pairs measured and written as one part."] = 4096

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class RewriterTraining:
    """Settings of training a rewriter; the defaults are the paper's.

    Reference:
        Ogasa, Kajiwara and Arase, section 4.2.
    """

    max_epochs: Annotated[int, MAX_EPOCHS, "Passes over the pairs, at most."] = 50
    patience: Annotated[
        int, MAX_EPOCHS, "Epochs without a lower validation loss before training stops."
    ] = 5
    batch: Annotated[int, limits.BATCH, "Batch size, in pairs."] = 128
    rows: Annotated[
        int | None,
        limits.BATCH,
        "Pairs in a forward pass, gradients are summed; default: as many as fit into memory.",
    ] = None
    learning_rate: Annotated[
        float | None,
        limits.LEARNING_RATE,
        "Learning rate of AdamW; default: 1e-5, for the starter 3e-4.",
    ] = None
    # The paper names no schedule; where a training stops by itself, a constant rate does not depend
    # on when it would have ended.
    schedule: Annotated[str, SCHEDULE, "constant, or linear: falling to 0 over max-epochs."] = (
        "constant"
    )
    max_length: Annotated[
        int | None, REWRITER_TOKENS, "Tokens of a text; longer pairs are left out."
    ] = None
    save_every: Annotated[
        int, limits.STEPS, "Steps between checkpoints, beside that of each epoch."
    ] = 1000
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
        """Return the settings with the base's learning rate where none is given."""
        if self.learning_rate is not None:
            return self
        return replace(self, learning_rate=_STARTER_RATE if base == "starter" else _PAPER_RATE)
