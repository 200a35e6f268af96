"""Items, jobs and outcomes of a generate run, the seed of each attempt, and all drop reasons."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilth.generation.task import Label, Task

# Why attempts are dropped -> what helps.
DROP_REASONS = {
    "newline": "let the instruction ask for one sentence, name an instruction-tuned model, or, at "
    "an endpoint, allow several lines with --multiline",
    "not-closed": "raise --max-new-tokens, or let the instruction ask for one short sentence",
    "empty": "the model closes at once or answers nothing: word the instruction otherwise, name "
    "another model, or raise --max-new-tokens for one that thinks before it answers",
    "prompt-too-long": "give shorter inputs, or a model with more positions",
    "not-a-number": "the model's weights are broken in this precision: --precision float32",
    "filtered": "the server filters its answers: word the instruction otherwise",
}
# Retrying cannot help.
FINAL_REASONS = frozenset({"prompt-too-long", "not-a-number"})


@dataclass(frozen=True, slots=True)
class Item:
    """An input of a pair task, or a number of a single-text task.

    `number` is the index in the run; a single-text task has `text` None and `source_id` from it.
    """

    number: int
    source_id: str
    text: str | None
    labels: tuple[Label, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at one text.

    Attributes:
        item: index of the input within the part.
        attempt: number of the attempt, from 0.
        prompts: the label's own prompt, then one for each counter label.
        key: 16 bytes that seed the attempt's random numbers.
    """

    item: int
    source_id: str
    label: str
    attempt: int
    prompts: tuple[str, ...]
    key: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt.

    Attributes:
        text: the output up to its closing quotation mark, or the whole output.
        reason: None when kept, else one of `DROP_REASONS`.
        floor_share: share of the decoded tokens whose factor was at the floor, 0 to 1; None at
            an endpoint, which shows no distributions.
    """

    job: Job
    text: str
    reason: str | None
    tokens: int
    floor_share: float | None


NextJob = Callable[[Outcome], Job | None]


class Sampler(Protocol):
    """Runs jobs: the local engine or the endpoint sampler."""

    def run(self, jobs: Iterable[Job], next_job: NextJob) -> None:
        """Run all jobs; `next_job` takes each outcome and may return a retry with equal prompts."""


def items_from_inputs(task: Task, inputs: Sequence[str], ids: Sequence[str]) -> list[Item]:
    """Return one item for each distinct input, at its first occurrence."""
    first = dict(zip(reversed(ids), reversed(inputs), strict=True))
    return [
        Item(number, source_id, first[source_id], task.labels)
        for number, source_id in enumerate(dict.fromkeys(ids))
    ]


def items_from_nothing(task: Task, count: int, *, each_label: bool) -> list[Item]:
    """Return a single-text task's items: `count` for each label, or in turn for all together."""
    labels = task.labels
    return [
        Item(n, f"{task.name}-{n}", None, labels if each_label else (labels[n % len(labels)],))
        for n in range(count)
    ]


def job_key(seed: int, source_id: str, label: str, attempt: int) -> bytes:
    """Return the 16-byte seed of an attempt; it depends neither on batch nor on order."""
    parts = f"{seed}\x1f{source_id}\x1f{label}\x1f{attempt}".encode()
    return hashlib.blake2b(parts, digest_size=16).digest()


def split_output(decoded: str, *, multiline: bool = False) -> tuple[str, str | None]:
    """Return the text before the first quotation mark, and the reason if it is dropped.

    The paper discards an output without a quotation mark, or with a newline before it. White space
    around the text is kept, as in the original code.
    """
    text, mark, _ = decoded.partition('"')
    if "\n" in text and not multiline:
        return text, "newline"
    if not mark:
        return text, "not-closed"
    if not text.strip():
        return text, "empty"
    return text, None
