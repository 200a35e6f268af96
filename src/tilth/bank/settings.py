"""Settings of a bank, its sentences and its index: fields, defaults, allowed values and help."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Literal

from tilth.errors import InputError
from tilth.limits import (
    CELLS,
    CHARS,
    CORES,
    DIMENSIONS,
    FORMAT,
    PER_CENTROID,
    SEED,
    SHARD_MEGABYTES,
    SHARE,
    WORDS,
    SourceSplit,
    TextColumn,
    check_fields,
)
from tilth.runs.cluster import Cluster

Format = Literal["int8", "compact"]
# Bytes of codes that a scan step reads; row widths are multiples of it.
LANES = 32
# Sentences whose signs are compared together, and bits of a query's level.
GROUP, LEVEL_BITS = 8, 4
# Values compared with their floors together, before single ones.
STRETCH = 64

# The languages of `ingest/stop_words.txt`, in its order. Its words are normalized: lower case,
# split at apostrophes. Those of other languages leave out single letters (initials, variables) and
# what English texts hold as words or names of their own ("man", "van", "las").
LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "pl", "cs", "tr", "id", "ro", "hu",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that a sentence must meet to be kept."""

    min_chars: Annotated[int, CHARS, "Characters of a sentence at least."] = 10
    max_chars: Annotated[
        int, CHARS, "Characters of a sentence at most; longer ones are lists or unsegmented text."
    ] = 500
    min_words: Annotated[int, WORDS, "Words of a sentence at least."] = 3
    min_letters: Annotated[float, SHARE, "Share of letters at least, without spaces."] = 0.5
    max_symbols: Annotated[
        float, SHARE, "Share at most of what is no letter, digit or usual punctuation."
    ] = 0.2
    markup: Annotated[bool, "--keep-markup", "Drop sentences with HTML, wiki markup or code."] = (
        True
    )
    language: Annotated[
        str | None, "Language of the sentences that are kept (en, de, fr ...), or none: all."
    ] = "en"

    def __post_init__(self) -> None:
        if self.language == "none":  # as on the command line
            object.__setattr__(self, "language", None)
        if self.language is not None:
            check_known(self.language)
        check_fields(self)
        if self.min_chars > self.max_chars:
            raise InputError(
                f"min_chars is {self.min_chars}: it cannot be above max_chars, {self.max_chars}"
            )


def check_known(language: str) -> None:
    """Raise InputError unless the language is known."""
    if language not in LANGUAGES:
        raise InputError(
            f"language {language!r} is not known: use one of {', '.join(LANGUAGES)}, or none"
        )


@dataclass(frozen=True, slots=True)
class BankSettings:
    """The settings of a build, which `tilth.bank.Bank.build` describes."""

    format: Annotated[str, FORMAT, "Of the vectors: int8, or compact: about a fifth of that."] = (
        "int8"
    )
    rules: Annotated[Rules, "Which sentences are kept"] = field(default_factory=Rules)
    near: Annotated[bool, "--no-near", "Whether near duplicates are left out."] = True
    column: TextColumn = None
    split: SourceSplit = "train"
    seed: Annotated[int, SEED, "Of the random rotation of the vectors."] = 0
    shard_megabytes: Annotated[
        int, SHARD_MEGABYTES, "Raw text of a shard; for billions of sentences take 128 or more."
    ] = 16
    workers: Annotated[
        int | None,
        CORES,
        "Processes, no more than there is work for; default: one a core, one for less than 1 MB.",
    ] = None
    quiet: bool = False
    cluster: Annotated[Cluster, "Beyond this machine"] = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def part_bytes(self) -> int:
        """Raw text of a part, in bytes."""
        return self.shard_megabytes << 20

    @property
    def processes(self) -> int:
        """Number of workers, by default one per core."""
        return self.workers or core_count()


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings of `tilth.bank.Bank.make_index`."""

    centroids: Annotated[
        int | None, CELLS, "Cells; default: 4 times the root of the sentences."
    ] = None
    codes: Annotated[str, "Of a sentence: SQ4, SQ8, fp16, or PQ with bytes, such as PQ32."] = "SQ8"
    pca: Annotated[int | None, DIMENSIONS, "Dimensions kept; default: all."] = None
    nprobe: Annotated[
        int | None, CELLS, "Cells that a query looks at; default: as find 0.95 of the 100 nearest."
    ] = None
    per_centroid: Annotated[int, PER_CENTROID, "Training sentences of a cell."] = 64
    seed: Annotated[int, SEED, "Of the training."] = 0

    def __post_init__(self) -> None:
        check_fields(self)


def core_count() -> int:
    """Return the number of cores that this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
