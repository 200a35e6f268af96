"""SentAugment, Table 4: distillation on labelled, random and retrieved sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilth.classifiers.examples import LabeledExamples, concatenate
from tilth.recipes.recipe import Result
from tilth.recipes.sentaugment import (
    SPARE,
    LabelPool,
    label_pool,
    open_bank,
    retrieved,
    teacher_of,
)
from tilth.recipes.sentaugment_scores import TaskBoard, measure_trained, students, weights_of
from tilth.recipes.sentaugment_tasks import Benchmark, SentAugmentSteps, read_tasks
from tilth.recipes.table import published
from tilth.selftrain.retrieve import random_sentences

TEACHER, ALONE = "teacher", "student, labelled rows alone"
GT, RD, SA = "GT: labelled sentences", "RD: random sentences", "SA: retrieved sentences"
BALANCED = "RB: random sentences, in the ratio of classes of SA"
OTHER = {  # names of the line with the selection that SA does not use
    "confidence": "SA, the most confident",
    "random": "SA, a draw in the ratio of classes",
}
BOTH = "SA and GT"
_HEAD = ["SST-2", "SST-5", "CR", "IMP", "TREC"]
PUBLISHED = [
    published("RoBERTa-large", _HEAD, [96.5, 57.8, 94.8, 84.6, 97.8]),
    published("RoBERTa-small", _HEAD, [92.0, 49.0, 88.7, 83.8, 96.4]),
    published("GT, as many as the training set", _HEAD, [92.4, 49.7, 89.6, 84.4, 96.6]),
    published("RD, as many", _HEAD, [90.7, 47.5, 87.4, 69.1, 90.8]),
    published("SA, as many", _HEAD, [91.8, 50.7, 88.2, 84.6, 94.4]),
    published("RD, 100,000", _HEAD, [92.5, 51.2, 92.4, 78.1, 96.2]),
    published("SA, 100,000", _HEAD, [94.2, 57.6, 92.6, 85.5, 97.0]),
]


def run(steps: SentAugmentSteps) -> Result:
    """Label all three kinds of sentences with one teacher, and train students on each."""
    tasks, notes = read_tasks(steps)
    board = TaskBoard(tasks)
    bank = open_bank(steps)
    count = steps.scale.sentences
    for task in tasks:
        teacher = teacher_of(steps, task)
        board.put(TEACHER, task.name, measure_trained([teacher], task))
        found, few_found = retrieved(steps, task, bank)
        notes += few_found
        near = label_pool(steps, f"{task.name}-near", task, found, teacher)
        drawn = round(count * SPARE)
        random = []
        for seed in range(steps.settings.seeds):
            texts = random_sentences(bank, drawn, exclude=task.excluded, seed=seed)
            random.append(label_pool(steps, f"{task.name}-random-{seed}", task, texts, teacher))
        # The labelled sentences get the teacher's probabilities, as the others do.
        own = replace(task.train, targets=teacher.answers(task.train))
        _Students(steps, board, task, own).train(near, random)
    few, many = "as many as the training set", f"{count:,}"
    notes += [
        "SA and RB are in the training set's ratio of classes, fewer where a class has too few; RD "
        "is drawn without regard to classes. Each training has random sentences of its own.",
        board.gain(f"{SA}, {many}", f"{BALANCED}, {many}"),
        board.gain(f"{SA}, {few}", f"{BALANCED}, {few}"),
        board.gain(f"{SA}, {many}", f"{RD}, {many}"),
        board.gain(f"{SA}, {few}", f"{RD}, {few}"),
        board.gain(f"{BOTH}, {many}", GT),
        board.gain(f"{BOTH}, {many}", ALONE),
        board.gain(f"{SA}, {many}", f"{OTHER[_other(steps)]}, {many}"),
    ]
    return board.result(steps, "SentAugment, Table 4", PUBLISHED, notes)


def _other(steps: SentAugmentSteps) -> str:
    """Return the selection that SA does not use."""
    return "confidence" if steps.scale.select == "random" else "random"


class _Students:
    """Trains the students of one task and records their scores."""

    def __init__(
        self, steps: SentAugmentSteps, board: TaskBoard, task: Benchmark, own: LabeledExamples
    ) -> None:
        self.steps, self.board, self.task, self.own = steps, board, task, own
        self.weights = weights_of(task, steps.scale.base)

    def train(self, near: LabelPool, random: Sequence[LabelPool]) -> None:
        """Train one student per line; `random` has a pool for each seed."""
        scale, own, task = self.steps.scale, self.own, self.task
        training = dict(scale.training)
        longer = training | {"epochs": scale.small_epochs * training["epochs"]}

        def draw(
            pools: Sequence[LabelPool], count: int, by: str
        ) -> Callable[[int], LabeledExamples]:
            return lambda seed: pools[seed].draw(task, count, by, seed)

        self._student(ALONE, "alone", lambda _: task.train, longer, {})
        # Record the sources of the rows: other sentences or labels start another run.
        sources: dict[str, Any] = {"teacher": scale.teacher, "own": own.fingerprint()}
        self._student(GT, "gt", lambda _: own, longer, sources)
        same, few, many = [near] * len(random), len(own), scale.sentences
        kinds = ((RD, random, "any", "rd"), (BALANCED, random, "random", "rb"),
                 (SA, same, scale.select, "sa"))  # fmt: skip
        for count, words, settings in (
            (few, "as many as the training set", longer), (many, f"{many:,}", training),
        ):  # fmt: skip
            for name, pools, by, step in kinds:
                about = {"count": count, "by": by, **sources}
                rows = draw(pools, count, by)
                self._student(f"{name}, {words}", f"{step}-{count}", rows, settings, about, pools)
        other = _other(self.steps)
        about = {"count": many, "by": other, **sources}
        rows, step = draw(same, many, other), f"{other}-{many}"
        self._student(f"{OTHER[other]}, {many:,}", step, rows, training, about, same)

        def with_labelled(seed: int) -> LabeledExamples:
            """Add the labelled rows as often as the lines without other rows see them."""
            return concatenate(concatenate(near.draw(task, many, scale.select, seed), own), own)

        about = {"count": many, "by": scale.select, "labelled": 2, **sources}
        self._student(f"{BOTH}, {many:,}", f"both-{many}", with_labelled, training, about, same)

    def _student(
        self,
        name: str,
        step: str,
        rows: Callable[[int], LabeledExamples],
        training: Mapping[str, Any],
        about: Mapping[str, Any],
        pools: Sequence[LabelPool] = (),
    ) -> None:
        base = self.steps.scale.base
        scores = students(
            self.steps, step, self.task, lambda seed: (rows(seed), base), training,
            about={"base": base, **about}, weights=self.weights, pools=pools,
        )  # fmt: skip
        self.board.put(name, self.task.name, scores)
