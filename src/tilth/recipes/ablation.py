"""What SentAugment's Tables 5 to 8 share: one thing differs from line to line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tilth.bank import Bank
from tilth.recipes.selftraining import (
    FIXED,
    PAPERS_MEAN,
    Board,
    Outcome,
    Pool,
    Task,
    label_pool,
    open_bank,
    read_tasks,
    result,
    retrieved,
    students,
    teacher_of,
    weights_of,
)
from tilth.recipes.steps import Result, Scale, Steps
from tilth.recipes.table import Row
from tilth.selftrain.rows import Rows

TASKS = ("trec", "insults", "ncbi-disease")
HEAD = ["SST-5", "CR", "NER", PAPERS_MEAN]
BASE_QUERY = "label-average"
STEPS = (
    "build a bank of all raw text in bank/, or go on with it",
    "fine-tune a teacher on each task",
    "retrieve sentences in each way and let the teacher label them",
    "train the student on them, in each way with as many",
)
SCALES = {
    "starter": Scale(
        base="starter-small",
        teacher="starter-encoder",
        encoder="starter-static",
        sentences=5_000,
        training={"epochs": 2.0, "batch": 32, "max_length": 64},
        smaller="other tasks, 5,000 sentences for each, a bank of millions instead of billions, "
        "and a student smaller than its teacher, which shows more of what sentences are worth",
    ),
    "paper": Scale(
        base="FacebookAI/roberta-large",
        teacher="FacebookAI/roberta-large",
        encoder="sentence-transformers/all-MiniLM-L6-v2",
        sentences=100_000,
        training={"epochs": 3.0, "batch": 16},
        smaller="other tasks and a public encoder for SASE; bank/ should hold 100 million "
        "sentences or more",
    ),
}


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
    tasks, notes = read_tasks(steps, TASKS)
    board = Board([task.name for task in tasks])
    whole = open_bank(steps)
    for way in ways:
        bank = whole if way.bank is None else way.bank(steps)
        for task in tasks:
            found = _found(steps, task, bank, way)
            teacher = teacher_of(steps, task)
            pool = label_pool(steps, f"{task.name}-near-{way.step}", task, found, teacher)
            board.put(way.name, task.name, _students(steps, task, pool, way))
    gains = [board.gain(way.name, over) for way in ways if way.name != over]
    notes.append(
        "Sentences are drawn of the nearest in the training set's ratio of classes; the paper "
        f"keeps the most confident. {FIXED}"
    )
    return result(steps, title, board, rows, [*notes, *gains])


def _found(steps: Steps, task: Task, bank: Bank, way: Way) -> pa.Table:
    found = retrieved(steps, task, bank, steps.scale.sentences * way.share, query=way.query)
    # Of all hits those that lie in a part of the bank are what a search of that part finds.
    kept = np.flatnonzero(found["id"].to_numpy() % way.share == 0)
    return found.take(pa.array(kept))


def _students(steps: Steps, task: Task, pool: Pool, way: Way) -> Outcome:
    scale = steps.scale

    def make(seed: int) -> tuple[Rows, str]:
        rows = pool.draw(task, scale.sentences, "random", seed)
        return (rows.hard() if way.hard else rows), scale.base

    about = {
        "base": scale.base, "teacher": scale.teacher, "query": way.query, "share": way.share,
        "count": scale.sentences, "hard": way.hard, "sentences": pool.rows.fingerprint(),
    }  # fmt: skip
    name = f"from-{way.step}{'-hard' if way.hard else ''}"
    return students(
        steps, name, task, make, dict(scale.training), about=lambda _: about,
        weights=weights_of(task, *dict.fromkeys((scale.base, scale.teacher))),
    )  # fmt: skip
