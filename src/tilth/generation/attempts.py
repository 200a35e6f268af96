"""Make all attempts of one part of a generate run; return kept and dropped ones as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tilth.generation.jobs import FINAL_REASONS, Item, Job, Outcome, Sampler, job_key
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import Label, Task

if TYPE_CHECKING:
    from tilth.runs import Progress


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
        if not self._settings.decay:
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
            "source_id": item.source_id,
            "task": task.name,
            "model": model,
            "seed": settings.seed,
            "try": outcome.job.attempt,
            "tokens": outcome.tokens,
            "floor_share": outcome.floor_share,
            "drop_reason": outcome.reason,
            "item": item.number,
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
    return pa.Table.from_pylist(rows, schema=pa.schema(schema))
