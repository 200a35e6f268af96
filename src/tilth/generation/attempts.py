"""One part of a generate run: from items to a table of all tries, kept and dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tilth.generation.jobs import Job, Outcome, Sampler, job_key
from tilth.generation.settings import Item, Settings
from tilth.generation.task import Label, Task

# Another try would meet the same wall.
_FINAL = frozenset({"prompt-too-long", "not-a-number"})


class Counter(Protocol):
    """Whatever wants to know how the work goes on (a progress bar)."""

    def advance(self, done: int = 0, kept: int = 0, dropped: int = 0) -> None:
        """Take note of finished items, kept and dropped tries."""


@dataclass(slots=True)
class _Cell:
    """The tries for one (item, label)."""

    item: Item
    label: Label
    wanted: int
    started: int = 0
    running: int = 0
    kept: int = 0
    outcomes: list[Outcome] = field(default_factory=list)


class Tries:
    """Starts tries, counts what is kept and starts the next until enough are.

    Which tries are made follows from their outcomes alone: the shortest run of tries, in order,
    that holds the wanted number of kept ones, or all that are allowed.
    """

    def __init__(
        self, task: Task, settings: Settings, items: Sequence[Item], counter: Counter
    ) -> None:
        self._task, self._settings, self._counter = task, settings, counter
        wanted = settings.per_input if task.is_pair else 1
        self._cells = {
            (place, label.name): _Cell(item, label, wanted)
            for place, item in enumerate(items)
            for label in item.labels
        }
        self._open = [len(item.labels) for item in items]

    def first(self) -> Iterator[Job]:
        """Yield the first tries of every cell, an item's together."""
        for (place, _), cell in self._cells.items():
            for _ in range(cell.wanted):
                yield self._next(place, cell)

    def then(self, outcome: Outcome) -> Job | None:
        """Take an outcome; answer with the next try of its cell if one is needed."""
        place = outcome.job.item
        cell = self._cells[place, outcome.job.label]
        cell.outcomes.append(outcome)
        cell.running -= 1
        kept = outcome.reason is None
        cell.kept += kept
        self._counter.advance(kept=int(kept), dropped=int(not kept))
        again = not kept and outcome.reason not in _FINAL
        if again and cell.started < self._settings.max_tries:
            return self._next(place, cell)
        if not cell.running:
            self._open[place] -= 1
            if not self._open[place]:
                self._counter.advance(done=1)
        return None

    def outcomes(self) -> Iterator[tuple[_Cell, Outcome]]:
        """Yield all tries in order: item, label, try."""
        for cell in self._cells.values():
            for outcome in sorted(cell.outcomes, key=lambda outcome: outcome.job.attempt):
                yield cell, outcome

    def _next(self, place: int, cell: _Cell) -> Job:
        attempt = cell.started
        cell.started += 1
        cell.running += 1
        prompts = self._task.prompts(cell.label, cell.item.text)
        if not self._settings.sampling.decay:
            prompts = prompts[:1]  # at decay 0 every factor is 1: counter prompts change nothing
        source_id = cell.item.source_id
        key = job_key(self._settings.seed, source_id, cell.label.name, attempt)
        return Job(place, source_id, cell.label.name, attempt, prompts, key)


def part_schema(task: Task) -> pa.Schema:
    """Return the columns of a part: every try with its origin and why it was dropped, if it was."""
    texts = [("text_a", pa.string()), ("text_b", pa.string())] if task.is_pair else []
    return pa.schema(
        [
            *(texts or [("text", pa.string())]),
            ("label", pa.string()),
            ("source_id", pa.string()),
            ("task", pa.string()),
            ("model", pa.string()),
            ("seed", pa.int64()),
            ("try", pa.int16()),
            ("tokens", pa.int16()),
            ("floor_share", pa.float32()),
            ("drop_reason", pa.string()),
            ("item", pa.int64()),
        ]
    )


def make_part(
    task: Task,
    model: str,
    settings: Settings,
    items: Sequence[Item],
    sampler: Sampler,
    counter: Counter,
) -> pa.Table:
    """Make all tries for some items and return them as a table, in order."""
    tries = Tries(task, settings, items, counter)
    sampler.run(tries.first(), tries.then)
    return pa.Table.from_pylist(
        list(_rows(task, model, settings, tries.outcomes())), schema=part_schema(task)
    )


def _rows(
    task: Task, model: str, settings: Settings, outcomes: Iterable[tuple[_Cell, Outcome]]
) -> Iterator[dict[str, object]]:
    for cell, outcome in outcomes:
        texts: dict[str, object] = {"text": outcome.text}
        if task.is_pair:
            texts = {"text_a": cell.item.text, "text_b": outcome.text}
        yield {
            **texts,
            "label": cell.label.name,
            "source_id": cell.item.source_id,
            "task": task.name,
            "model": model,
            "seed": settings.seed,
            "try": outcome.job.attempt,
            "tokens": outcome.tokens,
            "floor_share": outcome.floor_share,
            "drop_reason": outcome.reason,
            "item": cell.item.number,
        }
