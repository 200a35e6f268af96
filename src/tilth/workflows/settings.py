"""Settings of the commands that join several folders: fields, defaults, allowed values, help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from tilth.classifiers.settings import Finetuning
from tilth.encoders.settings import ENCODER_BASES, Training
from tilth.errors import InputError
from tilth.limits import (
    CELLS,
    CLUSTERS,
    EXPORT_PRECISION,
    KEEP,
    LOSS,
    OVERSAMPLE,
    PART_SHARE,
    POOLING,
    PROTOCOL,
    QUERY,
    ROWS,
    SEED,
    SHARE,
    SHOWN,
    SIMILARITY,
    TRAININGS,
    LabelColumn,
    ModelPrecision,
    PairColumns,
    Resamples,
    SourceSplit,
    TextColumn,
    TextColumns,
    check_fields,
)

_InputColumn = Annotated[
    str | Sequence[str] | None,
    "--text --column",
    "The column of texts, the two of pairs with a comma, or that of tokens.",
]


@dataclass(frozen=True, slots=True)
class AugmentOptions:
    """Options of `tilth augment` beside those of the augmentation itself."""

    test: Annotated[
        str | None,
        "A labelled set; the teacher is measured on it, none of it retrieved.",
    ] = None
    validation: Annotated[
        str | None, "A labelled set to choose with; default: TRAIN's own, else a tenth of TRAIN."
    ] = None
    teacher: Annotated[
        str,
        "A base to fine-tune (starter-encoder, starter-mlm, a folder, a hub id), or a finished "
        "classifier or its run.",
    ] = "starter-encoder"
    seeds: Annotated[int, TRAININGS, "Teachers to train; the best is taken."] = 1
    encoder: Annotated[
        str | None, "The bank's encoder, where the name it was built with leads elsewhere now."
    ] = None
    text: Annotated[str | None, "The column of texts or of tokens; default: a usual name."] = None
    label: LabelColumn = None
    bootstrap: Resamples = 2000

    def __post_init__(self) -> None:
        check_fields(self)


WAYS = "give texts, or --queries FILE, or --task TRAIN"


@dataclass(frozen=True, slots=True)
class QuerySource:
    """Queries: exactly one of texts, a file of texts, or a task."""

    texts: Annotated[tuple[str, ...], "TEXT", "Queries, a sentence each."] = ()
    queries: Annotated[str | None, "A file, folder or data set of queries."] = None
    column: TextColumn = None
    task: Annotated[str | None, "A labelled set that stands for a task: texts, pairs, tokens."] = (
        None
    )
    kind: Annotated[
        str | None,
        QUERY,
        "Queries of the task: all-average (one), label-average (one per label or entity type; the "
        "default), per-sentence, clusters.",
    ] = None
    text: TextColumns = None
    label: LabelColumn = None
    clusters: Annotated[int | None, CLUSTERS, "Clusters per label; default 8."] = None
    seed: Annotated[int, SEED, "Of the clusters."] = 0

    def __post_init__(self) -> None:
        of_task = (self.kind, self.text, self.label, self.clusters)
        if self.task is None and of_task != (None,) * 4:
            raise InputError("--kind, --text, --label and --clusters go with --task: name one")
        if self.column is not None and self.queries is None:
            raise InputError("--column goes with --queries: name a file, or leave it out")
        given = [bool(self.texts), self.queries is not None, self.task is not None]
        if sum(given) > 1:
            raise InputError(f"queries are given in several ways: {WAYS}")
        check_fields(self)

    @property
    def task_settings(self) -> dict[str, Any]:
        """Kind and clusters of a task's queries, and their seed."""
        clusters = 8 if self.clusters is None else self.clusters
        return {"kind": self.kind or "label-average", "clusters": clusters, "seed": self.seed}

    def recorded(self) -> dict[str, Any]:
        """Return the settings that change hits; the texts themselves have a fingerprint."""
        if self.task is None:
            return {"queries": self.queries, "column": self.column}
        return {"task": self.task, "text": self.text, "label": self.label, **self.task_settings}


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Which hits of a query are wanted."""

    k: Annotated[int | None, ROWS, "-k", "Sentences wanted of each query; default 10."] = None
    min_similarity: Annotated[
        float | None, SIMILARITY, "Leave out less similar ones (cosine, -1 to 1)."
    ] = None
    sources: Annotated[
        tuple[str, ...] | None,
        "--source",
        "Only sentences of this source: its name, one with *, or a folder.",
    ] = None
    without: Annotated[
        tuple[str, ...], "A set, such as the task's test set, whose texts are left out."
    ] = ()
    near: Annotated[bool, "--no-near", "Whether near duplicates of --without are left out too."] = (
        True
    )
    own: Annotated[bool, "--no-own", "Whether the queries' own texts are found."] = True
    oversample: Annotated[
        float | None,
        OVERSAMPLE,
        "Sentences scored again for each one wanted; default 1.2, of compact banks 4.",
    ] = None
    index: Annotated[bool, "Ask the bank's index (tilth bank index), for many queries."] = False
    nprobe: Annotated[
        int | None, CELLS, "Cells of the index that a query looks at; default: as it was made."
    ] = None

    def __post_init__(self) -> None:
        if self.nprobe is not None and not self.index:
            raise InputError("--nprobe goes with --index: add it, or leave --nprobe out")
        check_fields(self)


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """Settings of `tilth evaluate classify` and `tag`."""

    against: Annotated[str | None, "Another model, measured on the same rows."] = None
    text: TextColumns = None
    label: LabelColumn = None
    split: SourceSplit = "test"
    bootstrap: Resamples = 2000
    seed: Annotated[int, SEED, "Of the resamples."] = 0
    precision: ModelPrecision = "auto"
    wrong: Annotated[int, SHOWN, "Number of the most confidently wrong rows to print."] = 0


@dataclass(frozen=True, slots=True)
class LabelledColumns:
    """The columns of a labelled set."""

    text: TextColumns = None
    label: LabelColumn = None


@dataclass(frozen=True, slots=True)
class StsSettings:
    """Settings of `tilth evaluate sts`."""

    protocol: Annotated[
        str, PROTOCOL, "all: subsets joined, as in most papers; mean: averaged over subsets."
    ] = "all"
    sets: Annotated[
        Sequence[str] | None, "Names with commas, such as stsb,sick; default: the usual seven."
    ] = None
    training: Annotated[
        str | None,
        "--train",
        "The pairs it was trained with (a run knows them), to tell what they share.",
    ] = None
    drop_overlap: Annotated[bool, "Leave out scored pairs with a sentence of --train."] = False
    pooling: Annotated[
        str | None,
        POOLING,
        "How tokens become one vector: mean, cls or max; default: as saved, else mean.",
    ] = None
    text: PairColumns = None
    label: LabelColumn = None
    bootstrap: Resamples = 1000
    seed: Annotated[int, SEED, "Of the resamples."] = 0

    @property
    def columns(self) -> tuple[tuple[str, str] | None, str | None]:
        """The columns of the texts and of the scores; None: usual names."""
        if self.text is None:
            return None, self.label
        named = (self.text,) if isinstance(self.text, str) else tuple(self.text)
        if len(named) != 2 or named[0] == named[1]:
            raise InputError(f"--text names {', '.join(named)}: name the two columns of pairs")
        return named, self.label


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """Options of `tilth train encoder`."""

    base: Annotated[str, "--base -b", ENCODER_BASES] = "starter-encoder"
    sts: Annotated[
        str | None, "STS sets to measure base and result on (see tilth evaluate sts)."
    ] = None
    drop_overlap: Annotated[bool, "Leave out pairs that hold a sentence of these sets."] = False
    training: Annotated[Training, "Training"] = field(default_factory=Training)


@dataclass(frozen=True, slots=True)
class ScorerOptions:
    """Options of `tilth train scorer`."""

    base: Annotated[str, "--base -b", "starter-encoder, an encoder's folder, or a hub id."] = (
        "starter-encoder"
    )
    validation: Annotated[
        str | None,
        "Graded pairs that choose step and seed; default: the validation split of PAIRS, or a "
        "tenth of them.",
    ] = None
    test: Annotated[str | None, "Graded pairs to measure on, beside the shipped scorer."] = None
    first: Annotated[
        str | None,
        "A labelled set of pairs, such as NLI, that the base is trained on before, for 3 "
        "epochs (up to 20 of few rows).",
    ] = None
    text: PairColumns = None
    label: LabelColumn = None
    symbols: Annotated[
        bool,
        "Keep all characters. Else all but letters, digits, spaces, commas and full stops are "
        "removed (not of --first), as where tilth paraphrase measures meaning.",
    ] = False
    seeds: Annotated[
        int, TRAININGS, "Trainings, each with its seed, of which the best is kept; the paper's: 10."
    ] = 3
    training: Annotated[Finetuning, "Training"] = field(default_factory=Finetuning)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class ClassifierOptions:
    """Options of `tilth train classifier` and `tilth train tagger`."""

    base: Annotated[
        str,
        "--base -b",
        "starter-encoder, starter-mlm, starter-small (two layers: a fast student that costs points "
        "of accuracy), an encoder's folder, or a hub id.",
    ] = "starter-encoder"
    test: Annotated[
        str | None, "Labelled rows to measure on; default: those of an augment run."
    ] = None
    validation: Annotated[
        str | None,
        "Labelled rows to choose the best weights with; default: those of an augment run, else "
        "the split of that name, else a tenth of each label.",
    ] = None
    labelled: Annotated[str | None, "More labelled rows to train on, beside a teacher's."] = None
    # The paper trains on the labelled rows too where they are few; for many it found no difference.
    with_labelled: Annotated[
        bool, "--retrieved-only", "Whether to train on the labelled rows of an augment run too."
    ] = True
    labelled_share: Annotated[
        float | None,
        PART_SHARE,
        "Share of labelled rows among all: each is repeated to make it up, 16 times at most. "
        "Default: a quarter for an augment run, else each row once.",
    ] = None
    baseline: Annotated[
        bool,
        "--no-baseline",
        "Whether to measure simple baselines beside, and to train on the labelled rows of an "
        "augment run alone, unless its teacher has the same base.",
    ] = True
    text: TextColumns = None
    label: LabelColumn = None
    loss: Annotated[
        str, LOSS, "Of probabilities: kl takes them as they are, hard the likeliest label."
    ] = "kl"
    seeds: Annotated[
        int, TRAININGS, "Trainings, each with its seed, of which the best is kept."
    ] = 1
    keep: Annotated[
        str, KEEP, "Which of several trainings is kept: best or median of the validation score."
    ] = "best"
    first: Annotated[
        str | None,
        "A labelled set of another task to train on before, such as NLI, for 3 epochs (up to 20 of "
        "few rows); its labels may be others (STILTs).",
    ] = None
    bootstrap: Resamples = 2000
    training: Annotated[Finetuning, "Training"] = field(default_factory=Finetuning)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Settings of `tilth predict`."""

    text: _InputColumn = None
    split: SourceSplit = "train"
    probabilities: Annotated[
        bool, "Write the probability of every label, too, of a task file the similarity."
    ] = False
    encoder: Annotated[
        str | None, "Of a task file: gives the similarities; default: starter-encoder."
    ] = None
    precision: ModelPrecision = "auto"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """Settings of `tilth export`."""

    precision: Annotated[
        str,
        EXPORT_PRECISION,
        "int8 (a quarter of the size, answers nearly the same) or float32, of the weights.",
    ] = "int8"
    tolerance: Annotated[float, SHARE, "Largest share of answers that may differ."] = 0.05
    text: _InputColumn = None

    def __post_init__(self) -> None:
        check_fields(self)
