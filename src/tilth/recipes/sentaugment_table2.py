"""SentAugment, Table 2: fine-tuned, adapted to retrieved sentences, trained on their labels."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tilth.classifiers.examples import Rows, joined, repeated
from tilth.classifiers.mlm import adapt
from tilth.models.classifier import Classifier
from tilth.recipes.sentaugment import (
    Board,
    Pool,
    Task,
    digest,
    kept_count,
    label_pool,
    measure_trained,
    open_bank,
    read_tasks,
    result,
    retrieved,
    shortfall,
    students,
    teacher_of,
    teaching,
    weights_of,
)
from tilth.recipes.steps import Result, Steps
from tilth.selftrain.pseudo_label import halfway
from tilth.workflows.table import published

FINE, ICP, ST = "fine-tuned", "ICP, then fine-tuned", "self-training"
OURS = "self-training with a draw, a better teacher and the labelled rows (ours)"
_PASSES = 4  # over the labelled rows beside retrieved sentences, which are passed over once
_HEAD = ["SST-2", "SST-5", "CR", "IMP", "TREC", "NER"]
PUBLISHED = [
    published("RoBERTa-large", _HEAD, [96.5, 57.8, 94.8, 84.6, 97.8, 92.7]),
    published("RoBERTa-large + ICP", _HEAD, [93.9, 55.1, 93.7, 84.4, 97.8, 92.1]),
    published("RoBERTa-large + ST", _HEAD, [96.7, 60.4, 95.7, 87.7, 97.8, 93.3]),
]


def run(steps: Steps) -> Result:
    """Train in each way on each task.

    The paper's teacher of each seed is the model fine-tuned with it, ours one of another base.
    """
    tasks, notes = read_tasks(steps)
    board = Board(tasks)
    bank = open_bank(steps)
    for task in tasks:
        found = retrieved(steps, task, bank)
        notes += shortfall(steps, task, found)
        _train(steps, board, task, found)
    notes += [board.gain(name, FINE) for name in (ICP, ST, OURS)]
    return result(steps, "SentAugment, Table 2", board, PUBLISHED, notes)


def _train(steps: Steps, board: Board, task: Task, found: pa.Table) -> None:
    scale, size = steps.scale, kept_count(steps.scale, task)

    def fine_tuned(seed: int) -> Classifier:
        """Return the base fine-tuned with a seed, which is the teacher of its sentences too."""
        return teacher_of(steps, task, seed=seed, base=scale.base)

    def sure(seed: int) -> Rows:
        """Return the sentences that a seed's teacher labelled and is surest of."""
        name = f"{task.name}-near-self-{seed}"
        pool = label_pool(steps, name, task, found, fine_tuned(seed))
        return pool.draw(task, size, scale.select, seed)

    @cache
    def better() -> tuple[Pool, Rows]:
        """Return the sentences and the labelled rows as a teacher of another base sees them."""
        teacher = teacher_of(steps, task)
        name = f"{task.name}-near-{Path(scale.teacher).name}"
        near = label_pool(steps, name, task, found, teacher)
        return near, repeated(halfway(task.train, teacher), _PASSES)

    def both(seed: int) -> Rows:
        """Return drawn sentences, and the labelled rows half way between label and teacher."""
        near, own = better()
        return joined(near.draw(task, size, "random", seed), own)

    def adapted() -> str:
        folder = steps.at(f"{task.name}-adapted")
        texts = [text for (text,) in sure(0).texts]
        adapt(texts, scale.base, folder, device=steps.settings.device, quiet=steps.settings.quiet)
        return str(folder)

    def enter(name: str, step: str, make: Any, training: dict[str, Any], **about: Any) -> None:
        about |= {"base": scale.base, "query": scale.query, "sentences": digest(found)}
        outcome = students(
            steps, step, task, make, training, about=lambda _: about, weights=weights
        )
        board.put(name, task.name, outcome)

    longer, own = dict(scale.training), teaching(scale)
    weights = weights_of(task, *dict.fromkeys((scale.base, scale.teacher)))
    board.put(FINE, task.name, measure_trained(map(fine_tuned, range(steps.settings.seeds)), task))
    enter(ICP, "icp", lambda _: (task.train, adapted()), own, adapted=size)
    enter(ST, "st", lambda seed: (sure(seed), scale.base), longer, count=size)
    enter(
        OURS, "with-labelled", lambda seed: (both(seed), scale.base), {**own, "epochs": 1.0},
        count=size, teacher=scale.teacher, passes=_PASSES,
    )  # fmt: skip
