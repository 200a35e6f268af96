"""SentAugment, Table 4: distillation on labelled, random and retrieved sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilth.classifiers.examples import Rows, joined
from tilth.recipes.recipe import Scale
from tilth.recipes.sentaugment import (
    SPARE,
    Board,
    Pool,
    Task,
    label_pool,
    measure_trained,
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
from tilth.selftrain.retrieve import random_sentences
from tilth.workflows.table import published

TEACHER, ALONE = "teacher", "student, labelled rows alone"
GT, RD, SA = "GT: labelled sentences", "RD: random sentences", "SA: retrieved sentences"
BALANCED = "RB: random sentences, in the ratio of classes of SA"
OTHER = {  # a line of what SA is not selected by
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


def run(steps: Steps) -> Result:
    """Label all three kinds of sentences with one teacher, and train students on each."""
    tasks, notes = read_tasks(steps)
    board = Board(tasks)
    bank = open_bank(steps)
    count = steps.scale.sentences
    for task in tasks:
        teacher = teacher_of(steps, task)
        board.put(TEACHER, task.name, measure_trained([teacher], task))
        found = retrieved(steps, task, bank)
        notes += shortfall(steps, task, found)
        near = label_pool(steps, f"{task.name}-near", task, found, teacher)
        random = [
            label_pool(
                steps,
                f"{task.name}-random-{seed}",
                task,
                random_sentences(bank, round(count * SPARE), without=task.without, seed=seed),
                teacher,
            )
            for seed in range(steps.settings.seeds)
        ]
        # The labelled sentences with the teacher's probabilities, as the others have.
        own = replace(task.train, targets=teacher.answers(task.train))
        _train(steps, board, task, near, random, own)
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
        board.gain(f"{SA}, {many}", f"{OTHER[_other(steps.scale)]}, {many}"),
    ]
    return result(steps, "SentAugment, Table 4", board, PUBLISHED, notes)


def _other(scale: Scale) -> str:
    """Return what SA is not selected by."""
    return "confidence" if scale.select == "random" else "random"


def _train(
    steps: Steps, board: Board, task: Task, near: Pool, random: Sequence[Pool], own: Rows
) -> None:
    scale = steps.scale
    settings: dict[str, Any] = dict(scale.training)
    longer = settings | {"epochs": scale.small_epochs * settings["epochs"]}
    few, many = "as many as the training set", f"{scale.sentences:,}"

    weights = weights_of(task, scale.base)

    def student(
        name: str, rows: Any, training: dict[str, Any], step: str,
        pools: Sequence[Pool] | None = None, **about: Any,
    ) -> None:  # fmt: skip
        def of(seed: int) -> dict[str, Any]:
            return {} if pools is None else {"sentences": pools[seed].rows.fingerprint()}

        outcome = students(
            steps, step, task, lambda seed: (rows(seed), scale.base), training,
            about=lambda seed: {"base": scale.base, **about, **of(seed)}, weights=weights,
        )  # fmt: skip
        board.put(name, task.name, outcome)

    student(ALONE, lambda _: task.train, longer, "alone")
    # What is learnt enters each step: of other sentences or labels it is another.
    learnt: dict[str, Any] = {"teacher": scale.teacher, "own": own.fingerprint()}
    same = [near] * steps.settings.seeds
    student(GT, lambda _: own, longer, "gt", **learnt)
    for size, words, training in ((len(own), few, longer), (scale.sentences, many, settings)):
        for name, pools, by, step in (
            (RD, random, "any", "rd"), (BALANCED, random, "random", "rb"),
            (SA, same, scale.select, "sa"),
        ):  # fmt: skip
            student(
                f"{name}, {words}",
                lambda seed, pools=pools, by=by, size=size: pools[seed].draw(task, size, by, seed),
                training, f"{step}-{size}", pools, count=size, by=by, **learnt,
            )  # fmt: skip
    size, other = scale.sentences, _other(scale)
    student(
        f"{OTHER[other]}, {many}", lambda seed: near.draw(task, size, other, seed), settings,
        f"{other}-{size}", same, count=size, by=other, **learnt,
    )  # fmt: skip
    # The labelled rows are seen as often as in the lines that have no others.
    student(
        f"{BOTH}, {many}",
        lambda seed: joined(joined(near.draw(task, size, scale.select, seed), own), own),
        settings, f"both-{size}", same, count=size, by=scale.select, labelled=2, **learnt,
    )  # fmt: skip
