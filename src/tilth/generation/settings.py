"""What a generate run is asked for, checked once; and how its work is cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from tilth.errors import InputError
from tilth.generation.jobs import Sampling
from tilth.generation.task import Label, Task
from tilth.limits import PARTS, SEED, check_fields, whole

PER_INPUT = whole(1, 1000)
MAX_TRIES = whole(1, 32_767)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a generate run; defaults are the paper's (DINO, section 4)."""

    per_input: Annotated[int, PER_INPUT, "Texts for each (input, label)."] = 2
    max_tries: Annotated[int, MAX_TRIES, "Attempts made to get them."] = 5
    sampling: Sampling = field(default_factory=Sampling)
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    part_size: Annotated[int, PARTS, "Inputs written as one part."] = 256

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_tries < self.per_input:
            raise InputError(
                f"max_tries is {self.max_tries}: it cannot be below per_input, {self.per_input}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as they stand in run.json."""
        flat = asdict(self)
        flat = {**flat.pop("sampling"), **flat}
        if not flat["multiline"]:  # runs begun before there was this setting go on
            del flat["multiline"]
        return flat


@dataclass(frozen=True, slots=True)
class Item:
    """What texts are written for: an input of a pair task, or a number of a single-text task.

    Attributes:
        number: place in the run.
        source_id: id of the input text; for a text from nothing, its number.
        text: the input, or None.
        labels: the labels to write for.
    """

    number: int
    source_id: str
    text: str | None
    labels: tuple[Label, ...]


def items_from_inputs(task: Task, inputs: Sequence[str], ids: Sequence[str]) -> list[Item]:
    """Return one item an input; equal inputs count once, the first stays."""
    first = dict(zip(reversed(ids), reversed(inputs), strict=True))
    unique = {number: first[number] for number in dict.fromkeys(ids)}
    return [
        Item(number, source_id, text, task.labels)
        for number, (source_id, text) in enumerate(unique.items())
    ]


def items_from_nothing(task: Task, count: int, *, each_label: bool) -> list[Item]:
    """Return the items of a single-text task.

    Args:
        task: the task.
        count: texts wanted.
        each_label: whether `count` is meant for every label, or for all together in turn.
    """
    if each_label:
        return [Item(n, f"{task.name}-{n}", None, task.labels) for n in range(count)]
    return [
        Item(n, f"{task.name}-{n}", None, (task.labels[n % len(task.labels)],))
        for n in range(count)
    ]
