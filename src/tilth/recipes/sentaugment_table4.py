"""SentAugment, Table 4: distillation on labelled, random and retrieved sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilth.recipes.selftraining import (
    FIXED,
    NEEDS,
    PAPERS_MEAN,
    SOURCE,
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
    students,
    teacher_of,
    weights_of,
)
from tilth.recipes.steps import Recipe, Result, Scale, Steps
from tilth.recipes.table import published
from tilth.selftrain.retrieve import random_sentences
from tilth.selftrain.rows import Rows, joined

TEACHER, ALONE = "teacher", "student, labelled rows alone"
GT, RD, SA = "GT: labelled sentences", "RD: random sentences", "SA: retrieved sentences"
BALANCED = "RB: random sentences, in the ratio of classes of SA"
SURE = "SA, the most confident (the paper's cut)"
BOTH = "SA and GT"
_HEAD = ["SST-2", "SST-5", "CR", "IMP", "TREC", PAPERS_MEAN]
PUBLISHED = [
    published("RoBERTa-large", _HEAD, [96.5, 57.8, 94.8, 84.6, 97.8, 86.3]),
    published("RoBERTa-small", _HEAD, [92.0, 49.0, 88.7, 83.8, 96.4, 82.0]),
    published("GT, as many as the training set", _HEAD, [92.4, 49.7, 89.6, 84.4, 96.6, 82.5]),
    published("RD, as many", _HEAD, [90.7, 47.5, 87.4, 69.1, 90.8, 77.1]),
    published("SA, as many", _HEAD, [91.8, 50.7, 88.2, 84.6, 94.4, 81.9]),
    published("RD, 100,000", _HEAD, [92.5, 51.2, 92.4, 78.1, 96.2, 82.1]),
    published("SA, 100,000", _HEAD, [94.2, 57.6, 92.6, 85.5, 97.0, 85.4]),
]


def run(steps: Steps) -> Result:
    """Label all three kinds of sentences with one teacher, and train students on each."""
    tasks, notes = read_tasks(steps, ["sst2", "trec", "insults"])
    board = Board([task.name for task in tasks])
    bank = open_bank(steps)
    count = steps.scale.sentences
    for task in tasks:
        teacher = teacher_of(steps, task)
        board.put(TEACHER, task.name, measure_trained([teacher], task))
        near = label_pool(
            steps, f"{task.name}-near", task, retrieved(steps, task, bank, count), teacher
        )
        random = [
            label_pool(
                steps,
                f"{task.name}-random-{seed}",
                task,
                random_sentences(bank, round(count * SPARE), without=task.without, seed=seed),
                teacher,
            )
            for seed in range(steps.seeds)
        ]
        # The labelled sentences with the teacher's probabilities, as the others have.
        own = replace(task.train, targets=teacher.answers(task.train))
        _train(steps, board, task, near, random, own)
    few, many = "as many as the training set", f"{count:,}"
    notes += [
        "SA and RB are drawn in the training set's ratio of classes, fewer where a class has too "
        f"few, of {SPARE:g} labelled sentences for each drawn one; RD without regard to classes. "
        "Each training has random sentences of its own.",
        f"Lines of no more sentences than the training set has are passed over twice as often. "
        f"{FIXED}",
        board.gain(f"{SA}, {many}", f"{BALANCED}, {many}"),
        board.gain(f"{SA}, {few}", f"{BALANCED}, {few}"),
        board.gain(f"{SA}, {many}", f"{RD}, {many}"),
        board.gain(f"{SA}, {few}", f"{RD}, {few}"),
        board.gain(f"{BOTH}, {many}", GT),
        board.gain(f"{BOTH}, {many}", ALONE),
        board.gain(f"{SA}, {many}", f"{SURE}, {many}"),
    ]
    return result(steps, "SentAugment, Table 4", board, PUBLISHED, notes)


def _train(
    steps: Steps, board: Board, task: Task, near: Pool, random: Sequence[Pool], own: Rows
) -> None:
    scale = steps.scale
    settings: dict[str, Any] = dict(scale.training)
    # A small set is passed over more often, that it is not behind by learning less.
    longer = settings | {"epochs": 2.0 * settings["epochs"]}
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
    same = [near] * steps.seeds
    student(GT, lambda _: own, longer, "gt", **learnt)
    for size, words, training in ((len(own), few, longer), (scale.sentences, many, settings)):
        for name, pools, by, step in (
            (RD, random, "any", "rd"), (BALANCED, random, "random", "rb"),
            (SA, same, "random", "sa"),
        ):  # fmt: skip
            student(
                f"{name}, {words}",
                lambda seed, pools=pools, by=by, size=size: pools[seed].draw(task, size, by, seed),
                training, f"{step}-{size}", pools, count=size, by=by, **learnt,
            )  # fmt: skip
    size = scale.sentences
    student(
        f"{SURE}, {many}", lambda seed: near.draw(task, size, "confidence", seed), settings,
        f"sure-{size}", same, count=size, by="confidence", **learnt,
    )  # fmt: skip
    # The labelled rows are seen as often as in the lines that have no others.
    student(
        f"{BOTH}, {many}",
        lambda seed: joined(joined(near.draw(task, size, "random", seed), own), own),
        settings, f"both-{size}", same, count=size, by="random", labelled=2, **learnt,
    )  # fmt: skip


RECIPE = Recipe(
    name="sentaugment-table4",
    title="Distillation: labelled, random and retrieved sentences",
    source=f"{SOURCE}, Table 4",
    steps=(
        "build a bank of all raw text in bank/, or go on with it",
        "fine-tune a teacher on each task",
        "retrieve sentences with the task's queries, draw others at random, and let the teacher "
        "label them",
        "train the small student on the labelled set alone, and on the teacher's probabilities of "
        "labelled, random and retrieved sentences, as many as the training set has, and more",
    ),
    needs=NEEDS,
    scales={
        "starter": Scale(
            base="starter-small",
            teacher="starter-encoder",
            encoder="starter-static",
            sentences=20_000,
            query="clusters",
            training={"epochs": 1.0, "batch": 32, "max_length": 64},
            smaller="20,000 sentences instead of 100,000, a bank of millions instead of billions, "
            "a student a quarter of its teacher instead of a hundredth",
        ),
        "paper": Scale(
            base="nreimers/MiniLMv2-L6-H384-distilled-from-RoBERTa-Large",
            teacher="FacebookAI/roberta-large",
            encoder="sentence-transformers/all-MiniLM-L6-v2",
            sentences=100_000,
            query="label-average",
            training={"epochs": 3.0, "batch": 16},
            smaller="the paper's RoBERTa-small has no public checkpoint: a public small RoBERTa "
            "stands for it, and a public encoder for SASE; bank/ should hold 100 million "
            "sentences or more",
        ),
    },
    run=run,
)
