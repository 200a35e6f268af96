"""What SentAugment's Tables 5 to 8 share: one thing differs from line to line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilth.bank import Bank
from tilth.classifiers.examples import Rows
from tilth.recipes.sentaugment import (
    Board,
    Outcome,
    Pool,
    Task,
    kept_count,
    label_pool,
    open_bank,
    read_tasks,
    result,
    retrieved,
    shortfall,
    students,
    teacher_of,
    weights_of,
)
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import Row

HEAD = ["SST-5", "CR", "NER"]
BASE_QUERY = "label-average"


@dataclass(frozen=True, slots=True)
class Way:
    """One line of a table.

    Attributes:
        name: of the line.
        step: of its retrieval; lines with the same one share it.
        query: kind of queries.
        bank: where sentences come from; None: the bank of all.
        share: of the bank's sentences one in so many is used.
        hard: whether students learn the likeliest label alone.
    """

    name: str
    step: str
    query: str = BASE_QUERY
    bank: Callable[[Steps], Bank] | None = None
    share: int = 1
    hard: bool = False


def compare(
    steps: Steps, title: str, ways: Sequence[Way], rows: Sequence[Row], *, over: str
) -> Result:
    """Train students in each way on each task.

    Args:
        steps: where.
        title: of the table.
        ways: the lines.
        rows: the published ones.
        over: the line that the others' gains are told against.
    """
    tasks, notes = read_tasks(steps)
    board = Board(tasks)
    whole = open_bank(steps)
    for way in ways:
        bank = whole if way.bank is None else way.bank(steps)
        for task in tasks:
            found = retrieved(steps, task, bank, query=way.query, share=way.share)
            notes += [f"{way.name}: {note}" for note in shortfall(steps, task, found)]
            teacher = teacher_of(steps, task)
            pool = label_pool(steps, f"{task.name}-near-{way.step}", task, found, teacher)
            board.put(way.name, task.name, _students(steps, task, pool, way))
    gains = [board.gain(way.name, over) for way in ways if way.name != over]
    return result(steps, title, board, rows, [*notes, *gains])


def _students(steps: Steps, task: Task, pool: Pool, way: Way) -> Outcome:
    scale, count = steps.scale, kept_count(steps.scale, task)

    def make(seed: int) -> tuple[Rows, str]:
        rows = pool.draw(task, count, scale.select, seed)
        return (rows.hard() if way.hard else rows), scale.base

    about = {
        "base": scale.base, "teacher": scale.teacher, "query": way.query, "share": way.share,
        "count": count, "by": scale.select, "hard": way.hard,
        "sentences": pool.rows.fingerprint(),
    }  # fmt: skip
    name = f"from-{way.step}{'-hard' if way.hard else ''}"
    return students(
        steps, name, task, make, dict(scale.training), about=lambda _: about,
        weights=weights_of(task, *dict.fromkeys((scale.base, scale.teacher))),
    )  # fmt: skip
