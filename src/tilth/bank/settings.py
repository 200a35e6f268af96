"""Settings of building a bank and its index: fields, defaults, allowed values and help."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

from tilth.bank.ingest.cleaning import Rules
from tilth.limits import (
    CELLS,
    CORES,
    DIMENSIONS,
    FORMAT,
    PER_CENTROID,
    SEED,
    SHARD_MEGABYTES,
    SourceSplit,
    TextColumn,
    check_fields,
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
        int | None, CORES, "Processes, no more than there is work for; default: one a core."
    ] = None
    quiet: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def part_bytes(self) -> int:
        """Raw text of a part, in bytes."""
        return self.shard_megabytes << 20

    @property
    def processes(self) -> int:
        """Number of workers, by default one per core."""
        return self.workers or os.cpu_count() or 1


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
