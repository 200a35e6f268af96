"""The settings of a generate run and their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilth.errors import InputError
from tilth.generation.task import Task, first_text_task
from tilth.limits import PARTS, SEED, SHARE, TEXTS, Number, check_fields, whole

DECAY = Number(0, 1e9)
TEMPERATURE = Number(1e-3, 1e3)
TOP_K = whole(0, 1_000_000_000)
TOP_P = Number(1e-9, 1)
NEW_TOKENS = whole(1, 32_767)
PER_INPUT = whole(1, 1000)
MAX_TRIES = whole(1, 32_767)
CANDIDATES = whole(1, 64)
TEXTS_PER_INPUT = 2


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings (defaults: DINO, section 4; the floor is the original code's alone)."""

    decay: Annotated[float, DECAY, "Lambda of self-debiasing; 0 turns it off."] = 100.0
    floor: Annotated[float, SHARE, "Smallest factor of self-debiasing."] = 0.01
    temperature: Annotated[float, TEMPERATURE, "Divides the log-probabilities after debiasing."] = (
        1.0
    )
    top_k: Annotated[int, TOP_K, "Keep the k likeliest tokens; 0: all."] = 5
    top_p: Annotated[float, TOP_P, "Then the likeliest with this probability."] = 0.9
    max_new_tokens: Annotated[int, NEW_TOKENS, "A text not closed by then is dropped."] = 40
    multiline: Annotated[bool, "At an endpoint: keep texts of several lines."] = False
    chat: Annotated[bool, "--no-chat", "Prompt a local model by its chat template, if any."] = True
    system: Annotated[str, "System prompt of a chat model."] = ""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class GenerateSettings(Sampling):
    """The settings of a generate run; defaults are the paper's (DINO, section 4)."""

    per_input: Annotated[int, PER_INPUT, "Texts for each (input, label)."] = TEXTS_PER_INPUT
    max_tries: Annotated[int, MAX_TRIES, "Attempts made to get them, or a single text."] = 5
    candidates: Annotated[
        int, CANDIDATES, "Texts drawn for each; the one that fits its label best is kept."
    ] = 1
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0
    part_size: Annotated[
        int | None, PARTS, "Inputs written as one part; default: 256, of an endpoint 32."
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.per_input != TEXTS_PER_INPUT:
            self.check_tries()

    def check_tries(self) -> None:
        """Refuse fewer attempts than texts for each input of a pair task."""
        if self.max_tries < self.per_input:
            raise InputError(
                f"max_tries is {self.max_tries}: it cannot be below per_input, {self.per_input}"
            )


def check_amounts(
    task: Task,
    settings: GenerateSettings,
    *,
    has_inputs: bool,
    count: int | None,
    from_x1: int | None,
) -> None:
    """Refuse amounts of texts that a task does not take, or that contradict each other."""
    if task.is_pair:
        settings.check_tries()
        if count is not None:
            raise InputError(
                f"task {task.name!r} writes pairs: leave --count out, --per-input is the number of "
                "second texts of an input and a label"
            )
        if has_inputs == (from_x1 is not None):
            raise InputError(f"task {task.name!r} writes pairs: give either --inputs or --from-x1")
        if from_x1 is not None:
            first_text_task(task)
            TEXTS.check("from_x1", from_x1)
        return
    if has_inputs or from_x1 is not None:
        raise InputError(
            f"task {task.name!r} writes single texts without an input: give --count instead"
        )
    if count is None:
        raise InputError(f"task {task.name!r} writes single texts: say how many with --count")
    TEXTS.check("count", count)
    if settings.per_input not in (1, TEXTS_PER_INPUT):
        raise InputError(
            f"task {task.name!r} writes single texts without an input: leave --per-input out, "
            "--count is the number of texts for each label"
        )
