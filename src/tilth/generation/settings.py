"""What a generate run is asked for, checked once; and how its work is cut into parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilth.errors import InputError
from tilth.generation.jobs import Sampling
from tilth.generation.task import Label, Task


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a generate run; defaults are the paper's (DINO, section 4).

    Attributes:
        per_input: texts wanted for each (input, label); of a single-text task, each number of a
            label has one text.
        max_tries: tries to get them, at least `per_input`.
        sampling: how tokens are drawn.
        seed: root of all random numbers.
        part_size: inputs decoded and written as one closed unit.
    """

    per_input: int = 2
    max_tries: int = 5
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    part_size: int = 256

    def __post_init__(self) -> None:
        """Check every value at the door."""
        sampling = self.sampling
        for name, value, low, high in (
            ("per-input", self.per_input, 1, 1000),
            ("max-tries", self.max_tries, self.per_input, 32767),
            ("part-size", self.part_size, 1, 1_000_000),
            ("seed", self.seed, -(2**63), 2**63 - 1),
            ("top-k", sampling.top_k, 0, 10**9),
            ("max-new-tokens", sampling.max_new_tokens, 1, 32767),
        ):
            if type(value) is not int:
                raise InputError(f"{name} is {value!r}: it is a whole number")
            hint = " (it cannot be below per-input)" if name == "max-tries" else ""
            _check_range(name, value, low, high, hint)
        for name, share, least, most in (
            ("decay", sampling.decay, 0, 1e9),
            ("floor", sampling.floor, 0, 1),
            ("top-p", sampling.top_p, 1e-9, 1),
            ("temperature", sampling.temperature, 1e-3, 1e3),
        ):
            if isinstance(share, bool) or not isinstance(share, (int, float)):
                raise InputError(f"{name} is {share!r}: it is a number")
            _check_range(name, share, least, most)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as they stand in run.json."""
        flat = asdict(self)
        return {**flat.pop("sampling"), **flat}


def _check_range(name: str, value: float, low: float, high: float, hint: str = "") -> None:
    if math.isnan(value) or not low <= value <= high:
        raise InputError(f"{name} is {value}: it lies between {low} and {high}{hint}")


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
