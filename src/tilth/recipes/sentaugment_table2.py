"""SentAugment, Table 2: fine-tuning, continued pretraining and self-training on retrieved texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tilth.classifiers.examples import LabeledExamples, concatenate, repeat
from tilth.classifiers.mlm import adapt
from tilth.models.classifier import Classifier
from tilth.recipes.recipe import Result
from tilth.recipes.sentaugment import (
    LabelPool,
    hash_sentences,
    kept_count,
    label_pool,
    open_bank,
    retrieved,
    teacher_of,
    teaching,
)
from tilth.recipes.sentaugment_scores import TaskBoard, measure_trained, students, weights_of
from tilth.recipes.sentaugment_tasks import Benchmark, SentAugmentSteps, read_tasks
from tilth.recipes.table import published
from tilth.selftrain.pseudo_label import blend_labels

MakeRows = Callable[[int], tuple[LabeledExamples, str]]  # seed -> rows and base

FINE, ICP, ST = "fine-tuned", "ICP, then fine-tuned", "self-training"
OURS = "self-training with a draw, a better teacher and the labelled rows (ours)"
_PASSES = 4  # over the labelled rows, per pass over the retrieved sentences
_HEAD = ["SST-2", "SST-5", "CR", "IMP", "TREC", "NER"]
PUBLISHED = [
    published("RoBERTa-large", _HEAD, [96.5, 57.8, 94.8, 84.6, 97.8, 92.7]),
    published("RoBERTa-large + ICP", _HEAD, [93.9, 55.1, 93.7, 84.4, 97.8, 92.1]),
    published("RoBERTa-large + ST", _HEAD, [96.7, 60.4, 95.7, 87.7, 97.8, 93.3]),
]


def run(steps: SentAugmentSteps) -> Result:
    """Train with each method on each task.

    The paper's teacher of each seed is the model fine-tuned with it; ours has another base.
    """
    tasks, notes = read_tasks(steps)
    board = TaskBoard(tasks)
    bank = open_bank(steps)
    for task in tasks:
        found, few = retrieved(steps, task, bank)
        notes += few
        _train(steps, board, task, found)
    notes += [board.gain(name, FINE) for name in (ICP, ST, OURS)]
    return board.result(steps, "SentAugment, Table 2", PUBLISHED, notes)


def _train(steps: SentAugmentSteps, board: TaskBoard, task: Benchmark, found: pa.Table) -> None:
    scale, size = steps.scale, kept_count(steps.scale, task)

    def fine_tuned(seed: int) -> Classifier:
        """Return the base fine-tuned with a seed; it is also the teacher of its sentences."""
        return teacher_of(steps, task, seed=seed, base=scale.base)

    def most_confident(seed: int) -> LabeledExamples:
        """Return the sentences with the highest confidence of the seed's teacher."""
        name = f"{task.name}-near-self-{seed}"
        pool = label_pool(steps, name, task, found, fine_tuned(seed))
        return pool.draw(task, size, scale.select, seed)

    @cache
    def by_better_teacher() -> tuple[LabelPool, LabeledExamples]:
        """Label the sentences and the labelled rows with a teacher of another base."""
        teacher = teacher_of(steps, task)
        name = f"{task.name}-near-{Path(scale.teacher).name}"
        near = label_pool(steps, name, task, found, teacher)
        return near, repeat(blend_labels(task.train, teacher), _PASSES)

    def with_labelled(seed: int) -> tuple[LabeledExamples, str]:
        """Return drawn sentences, and labelled rows with the mean of label and teacher."""
        near, own = by_better_teacher()
        return concatenate(near.draw(task, size, "random", seed), own), scale.base

    def adapted(_: int) -> tuple[LabeledExamples, str]:
        folder = steps.at(f"{task.name}-adapted")
        texts = [text for (text,) in most_confident(0).texts]
        adapt(texts, scale.base, folder, device=steps.settings.device, quiet=steps.settings.quiet)
        return task.train, str(folder)

    own = teaching(scale)
    weights = weights_of(task, scale.base, scale.teacher)
    lines: list[tuple[str, str, MakeRows, Any, dict[str, Any]]] = [
        (ICP, "icp", adapted, own, {"adapted": size}),
        (ST, "st", lambda seed: (most_confident(seed), scale.base), scale.training,
         {"count": size}),
        (OURS, "with-labelled", with_labelled, {**own, "epochs": 1.0},
         {"count": size, "teacher": scale.teacher, "passes": _PASSES}),
    ]  # fmt: skip
    board.put(FINE, task.name, measure_trained(map(fine_tuned, range(steps.settings.seeds)), task))
    made_from = {"base": scale.base, "query": scale.query, "sentences": hash_sentences(found)}
    for name, step, make, training, more in lines:
        about = {**more, **made_from}
        scores = students(steps, step, task, make, training, about=about, weights=weights)
        board.put(name, task.name, scores)
