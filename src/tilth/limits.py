"""The values that a setting may take: declared once, checked for functions and options alike.

A settings dataclass annotates its fields, `batch: Annotated[int, BATCH, "Batch size."] = 16`, and
calls `check_fields(self)` in `__post_init__`; the text is the help of the command line's option.
A function checks a parameter with `SEED.check("seed", seed)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from tilth.errors import InputError

SettingsT = TypeVar("SettingsT")

_SHOWN_BITS = 128  # longer numbers are not written out in a message


@dataclass(frozen=True, slots=True)
class Number:
    """The finite numbers from `low` to `high`; `above` excludes low, `below` excludes high."""

    low: float
    high: float
    whole: bool = False
    above: bool = False
    below: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise InputError if a value lies outside."""
        right = (
            isinstance(value, int if self.whole else (int, float))
            and not isinstance(value, bool)
            and self.low <= value <= self.high
            and not (self.above and value == self.low)
            and not (self.below and value == self.high)
        )
        if not right:
            kind = "a whole number" if self.whole else "a number"
            raise InputError(f"{name} is {_shown(value)}: give {kind} {self}")

    def __str__(self) -> str:
        """Return the range in words."""
        least = f"above {_plain(self.low)}, " if self.above else f"from {_plain(self.low)} "
        if self.below:
            return f"{least}{'' if self.above else 'to '}below {_plain(self.high)}"
        return f"{least}{'at most' if self.above else 'to'} {_plain(self.high)}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Allow one of some names."""

    names: tuple[str, ...]

    def check(self, name: str, value: object) -> None:
        """Raise InputError if a value is none of them."""
        if value not in self.names:
            raise InputError(f"{name} {_shown(value)} is unknown: use {self}")

    def __str__(self) -> str:
        """Return the names as a list in words."""
        *others, last = self.names
        return f"{', '.join(others)} or {last}" if others else last


Limit: TypeAlias = Number | Choice


def whole(low: int, high: int) -> Number:
    """Return the whole numbers from `low` to `high`."""
    return Number(low, high, whole=True)


def check_fields(settings: object) -> None:
    """Check every annotated field of a settings dataclass."""
    for name, (limit, optional) in _limits_of(type(settings)).items():
        value = getattr(settings, name)
        if value is not None or not optional:
            limit.check(name, value)


def _limits_of(kind: type) -> dict[str, tuple[Limit, bool]]:
    """Return the limit of each annotated field, and whether the field may be None."""
    return {
        name: (note, NoneType in get_args(unannotated(hint)[0]))
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for note in unannotated(hint)[1:]
        if isinstance(note, Number | Choice)
    }


def unannotated(hint: Any) -> tuple[Any, ...]:
    """Return the type of a hint, then its annotation metadata."""
    return get_args(hint) if get_origin(hint) is Annotated else (hint,)


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"a number of {value.bit_length():,} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


SEED = whole(0, 2**32 - 1)
PRECISION = Choice(("auto", "float32", "bfloat16", "float16"))
SHARE = Number(0, 1)
PART_SHARE = Number(0, 1, below=True)  # a part that leaves some
SIMILARITY = Number(-1, 1)  # a cosine
BOOTSTRAP = whole(0, 100_000)
ROWS = whole(1, 100_000_000)  # to choose, or to draw
TEXTS = whole(1, 10_000_000)  # to write with a model
PARTS = whole(1, 1_000_000)  # rows of a part
PROTOCOL = Choice(("all", "mean"))  # of sets with subsets
SCALE = Choice(("starter", "paper"))  # of a recipe
SHOWN = whole(0, 1_000_000)  # rows to print
CORES = whole(1, 1024)  # processes or threads
PORT = whole(0, 65_535)
WORKERS = whole(1, 100_000)  # of a cluster
CPUS = Number(0, 1024, above=True)  # of a worker
GPUS = Number(0, 64)


def later_seed(seed: int, steps: int) -> int:
    """Return the seed that is some steps after another one; 0 follows the last."""
    return (seed + steps) % (int(SEED.high) + 1)


# Training
POOLING = Choice(("mean", "cls", "max"))
EXPORT_PRECISION = Choice(("int8", "float32"))
TRAININGS = whole(1, 100)
EPOCHS = Number(0, 10_000, above=True)
BATCH = whole(1, 65_536)
LEARNING_RATE = Number(0, 1, above=True)
KEEP = Choice(("best", "median"))  # of several trainings
WEIGHT_DECAY = Number(0, 10)
TRAINING_PRECISION = Choice(("auto", "float32", "bfloat16"))
STEPS = whole(1, 1_000_000_000)  # between measurements or checkpoints
TOKENS = whole(4, 1_000_000)  # read of a text

TrainingPrecision = Annotated[
    str,
    TRAINING_PRECISION,
    "auto, float32 or bfloat16 (autocast); auto is bfloat16 where the hardware is fast at it.",
]
Warmup = Annotated[float, PART_SHARE, "Share of the steps in which the learning rate rises."]
WeightDecay = Annotated[float, WEIGHT_DECAY, "Weight decay of AdamW."]

# Of several commands
ModelPrecision = Annotated[
    str,
    PRECISION,
    "auto, float32, bfloat16 or float16; auto is bfloat16 where the hardware is fast at it.",
]
Resamples = Annotated[int, BOOTSTRAP, "Resamples of the 95% intervals and tests; 0: neither."]
SourceSplit = Annotated[str, "The split of a data set that has several."]
TextColumn = Annotated[str | None, "The column that holds the texts."]
TextColumns = Annotated[
    str | Sequence[str] | None,
    "The column of texts, the two of pairs with a comma, or that of tokens.",
]
PairColumns = Annotated[str | Sequence[str] | None, "The two columns of texts, with a comma."]
LabelColumn = Annotated[str | None, "The column of labels, tags or scores; default: a usual name."]

# Curated sets
MOST_SAMPLED_PAIRS = whole(0, 10_000)
PER_LABEL = whole(1, 1_000_000)
NEAR_DUPLICATES = Number(0, 1, above=True)

# Paraphrases
MEANING = Number(70, 100)
WORDING = Number(0, 45)
LEAST_MEANING = Number(0, 100)
METRIC = Choice(("bleu", "chrf"))
BEAMS = whole(1, 256)
TRIES = whole(1, 100)
HELD_OUT_ROWS = whole(0, 100_000_000)

# Banks
FORMAT = Choice(("int8", "compact"))
QUERY = Choice(("all-average", "label-average", "per-sentence", "clusters"))
CLUSTERS = whole(1, 100_000)
CHARS = whole(1, 4000)
WORDS = whole(1, 1000)
SHARD_MEGABYTES = whole(1, 1024)  # Arrow's texts of one array: below 2 GiB
OVERSAMPLE = Number(1, 1_000_000)
CELLS = whole(1, 2**24)
PER_CENTROID = whole(39, 256)  # FAISS's guideline
DIMENSIONS = whole(1, 65_536)

# Augmented sets
MULTIPLE = Number(0, 1_000_000, above=True)
SELECT = Choice(("random", "confidence", "margin", "similarity", "all"))
LOSS = Choice(("kl", "hard"))


def settings_of(kind: type[SettingsT], given: dict[str, Any]) -> SettingsT:
    """Return a settings dataclass from keyword arguments; refuse unknown names and bad values."""
    known: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    wrong = next((name for name in given if name not in known), None)
    if wrong is not None:
        raise InputError(f"no setting {wrong!r}: there are {', '.join(known)}")
    return kind(**given)
