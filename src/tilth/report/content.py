"""What the page of a run shows; `render` needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilth.report.figures import Example, Health


@dataclass(frozen=True, slots=True)
class Curated:
    """What curation made of the kept rows.

    Attributes:
        folder: where it lies.
        splits: split -> rows.
        labels: label, as written in the data -> rows, all splits together.
        dropped: reason -> rows.
    """

    folder: str
    splits: dict[str, int]
    labels: dict[str, int]
    dropped: dict[str, int]

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(self.splits.values())


@dataclass(frozen=True, slots=True)
class Likeness:
    """The similarity of input and output, label by label, on a seeded draw of kept rows."""

    method: str
    values: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the page shows; `render` needs nothing else.

    Attributes:
        folder: the run folder as the user named it.
        task: the task's name.
        model: the model's name.
        health: the figures per label, and the warnings.
        lengths: label -> kept outputs with 0, 1, ... words.
        same_input: kept rows of a few inputs, all labels of an input together; empty for a task
            without inputs, with one label or with many.
        kept_examples: kept rows to read, where there is no `same_input`.
        dropped_examples: dropped rows to read.
        inputs: number of different inputs; None for a task without.
        seconds: time the run took; None when not known.
        time_note: what the time includes.
        likeness: None for a task without inputs, or when nothing was kept.
        curated: None when there is none.
        command: the command line.
        settings: name and value, in the order of run.json.
        versions: package -> version.
        instructions: label -> instruction, where the settings hold the task.
        created: when the run began, as text.
        notices: what is unfinished or could not be read.
        next_steps: what to do next, and the command for it.
    """

    folder: str
    task: str
    model: str
    health: Health
    lengths: dict[str, list[int]] = field(default_factory=dict)
    same_input: list[list[Example]] = field(default_factory=list)
    kept_examples: list[Example] = field(default_factory=list)
    dropped_examples: list[Example] = field(default_factory=list)
    inputs: int | None = None
    seconds: float | None = None
    time_note: str = ""
    likeness: Likeness | None = None
    curated: Curated | None = None
    command: str = ""
    settings: list[tuple[str, str]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    instructions: dict[str, str] = field(default_factory=dict)
    created: str = ""
    notices: list[str] = field(default_factory=list)
    next_steps: list[tuple[str, str]] = field(default_factory=list)
