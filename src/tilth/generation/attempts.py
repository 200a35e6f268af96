"""Items, jobs and outcomes of a generate run, all drop reasons, and the attempts of one part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tilth.generation.settings import GenerateSettings
from tilth.generation.task import Label, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilth.runs import Progress

# Why attempts are dropped -> what helps.
DROP_REASONS = {
    "newline": "let the instruction ask for one sentence, name an instruction-tuned model, or, at "
    "an endpoint, allow several lines with --multiline",
    "not-closed": "raise --max-new-tokens, or let the instruction ask for one short sentence",
    "empty": "the model closes at once or answers nothing: word the instruction otherwise, name "
    "another model, or raise --max-new-tokens for one that thinks before it answers",
    "prompt-too-long": "give shorter inputs, lower --max-new-tokens, or name a model with more "
    "positions",
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
        margin: how much likelier the text is under its label than under a counter label, in
            nats; None where candidates are not compared.
        drawn: the tokens that a local model drew and the factor (alpha) of each, both (tokens,).
    """

    job: Job
    text: str
    reason: str | None
    tokens: int
    floor_share: float | None
    margin: float | None = None
    drawn: tuple[NDArray[np.int64], NDArray[np.float32]] | None = field(
        default=None, compare=False, repr=False
    )


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


def _origin(item: Item, label: str) -> str:
    """Return the `source_id` of a row: texts of different labels without an input share none."""
    is_shared = item.text is None and len(item.labels) > 1
    return f"{item.source_id}-{label}" if is_shared else item.source_id


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


@dataclass(slots=True)
class _Cell:
    """The attempts for one (item, label)."""

    index: int  # of the item within the part
    item: Item
    label: Label
    started: int = 0
    running: int = 0
    outcomes: list[Outcome] = field(default_factory=list)


class Attempts:
    """Starts attempts, and further ones until a cell has enough kept texts.

    Which attempts are made depends on outcomes alone: the shortest sequence that holds the wanted
    number of kept texts, or as many attempts as are allowed.
    """

    def __init__(
        self, task: Task, settings: GenerateSettings, items: Sequence[Item], progress: Progress
    ) -> None:
        self._task, self._settings, self._progress = task, settings, progress
        self._cells = {
            (index, label.name): _Cell(index, item, label)
            for index, item in enumerate(items)
            for label in item.labels
        }
        self._open = [len(item.labels) for item in items]

    def first_jobs(self) -> Iterator[Job]:
        """Yield the first attempts of every cell, those of an item together."""
        wanted = self._settings.per_input if self._task.is_pair else 1
        for cell in self._cells.values():
            for _ in range(wanted):
                yield self._start(cell)

    def next_job(self, outcome: Outcome) -> Job | None:
        """Record an outcome; return the next attempt of its cell if one is needed."""
        cell = self._cells[outcome.job.item, outcome.job.label]
        cell.outcomes.append(outcome)
        cell.running -= 1
        kept = outcome.reason is None
        self._progress.advance(kept=int(kept), dropped=int(not kept))
        can_retry = not kept and outcome.reason not in FINAL_REASONS
        if can_retry and cell.started < self._settings.max_tries:
            return self._start(cell)
        if not cell.running:
            self._open[cell.index] -= 1
            if not self._open[cell.index]:
                self._progress.advance(done=1)
        return None

    def outcomes(self) -> Iterator[tuple[Item, Outcome]]:
        """Yield all outcomes with their items, by item, label and attempt."""
        for cell in self._cells.values():
            for outcome in sorted(cell.outcomes, key=lambda outcome: outcome.job.attempt):
                yield cell.item, outcome

    def _start(self, cell: _Cell) -> Job:
        attempt = cell.started
        cell.started += 1
        cell.running += 1
        prompts = self._task.prompts(cell.label, cell.item.text)
        if not self._settings.decay and self._settings.candidates == 1:
            prompts = prompts[:1]  # at decay 0 every factor is 1: counter prompts change nothing
        source_id, label = cell.item.source_id, cell.label.name
        key = job_key(self._settings.seed, source_id, label, attempt)
        return Job(cell.index, source_id, label, attempt, prompts, key)


def make_part(
    task: Task,
    model: str,
    settings: GenerateSettings,
    items: Sequence[Item],
    sampler: Sampler,
    progress: Progress,
) -> pa.Table:
    """Make all attempts for some items; return one row for each, with its origin, in order."""
    attempts = Attempts(task, settings, items, progress)
    sampler.run(attempts.first_jobs(), attempts.next_job)
    texts = ("text_a", "text_b") if task.is_pair else ("text",)
    rows = [
        {
            texts[0]: item.text,
            texts[-1]: outcome.text,
            "label": outcome.job.label,
            "source_id": _origin(item, outcome.job.label),
            "task": task.name,
            "model": model,
            "seed": settings.seed,
            "try": outcome.job.attempt,
            "tokens": outcome.tokens,
            "floor_share": outcome.floor_share,
            "drop_reason": outcome.reason,
            "item": item.number,
            "margin": outcome.margin,
        }
        for item, outcome in attempts.outcomes()
    ]
    schema = [
        *((name, pa.string()) for name in (*texts, "label", "source_id", "task", "model")),
        ("seed", pa.int64()),
        ("try", pa.int16()),
        ("tokens", pa.int16()),
        ("floor_share", pa.float32()),
        ("drop_reason", pa.string()),
        ("item", pa.int64()),
    ]
    if settings.candidates > 1:
        schema.append(("margin", pa.float32()))
    return pa.Table.from_pylist(rows, schema=pa.schema(schema))
