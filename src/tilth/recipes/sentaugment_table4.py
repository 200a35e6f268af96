"""SentAugment, Table 4: distillation on labelled, random and retrieved sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilth.recipes import sentaugment as paper
from tilth.recipes.sentaugment import SentAugmentScale, SentAugmentSteps
from tilth.recipes.table import published

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.recipes.recipe import Result
    from tilth.recipes.sentaugment_scores import Line
    from tilth.recipes.sentaugment_steps import Benchmark, LabelPool

TEACHER, ALONE = "teacher", "student, labelled rows alone"
GT, RD, SA = "GT: labelled sentences", "RD: random sentences", "SA: retrieved sentences"
BALANCED = "RB: random sentences, in the ratio of classes of SA"
OTHER = {  # names of the line with the selection that SA does not use
    "confidence": "SA, the most confident",
    "random": "SA, a draw in the ratio of classes",
}
BOTH = "SA and GT"
FEW = "as many as the training set"
_TASKS = paper.PAPERS_TASKS[:-1]  # of classes
PUBLISHED = [
    published("RoBERTa-large", _TASKS, [96.5, 57.8, 94.8, 84.6, 97.8]),
    published("RoBERTa-small", _TASKS, [92.0, 49.0, 88.7, 83.8, 96.4]),
    published("GT, as many as the training set", _TASKS, [92.4, 49.7, 89.6, 84.4, 96.6]),
    published("RD, as many", _TASKS, [90.7, 47.5, 87.4, 69.1, 90.8]),
    published("SA, as many", _TASKS, [91.8, 50.7, 88.2, 84.6, 94.4]),
    published("RD, 100,000", _TASKS, [92.5, 51.2, 92.4, 78.1, 96.2]),
    published("SA, 100,000", _TASKS, [94.2, 57.6, 92.6, 85.5, 97.0]),
]


def run(steps: SentAugmentSteps) -> Result:
    """Label all three kinds of sentences with one teacher, and train students on each."""
    from tilth.recipes import sentaugment_steps as work
    from tilth.recipes.sentaugment_scores import TaskBoard, measure_trained
    from tilth.selftrain.retrieve import random_sentences

    tasks, notes = work.read_tasks(steps)
    board = TaskBoard(steps, tasks)
    bank = work.open_bank(steps)
    count = steps.scale.sentences
    for task in tasks:
        teacher = work.teacher_of(steps, task)
        board.put(TEACHER, task, measure_trained([teacher], task))
        found, few_found = work.retrieved(steps, task, bank)
        notes += few_found
        near = work.label_pool(steps, f"{task.name}-near", task, found, teacher)
        random = []
        for seed in range(steps.settings.seeds):
            texts = random_sentences(
                bank, round(count * work.SPARE), exclude=task.excluded, seed=seed
            )
            random.append(
                work.label_pool(steps, f"{task.name}-random-{seed}", task, texts, teacher)
            )
        # The labelled sentences get the teacher's probabilities, as the others do.
        own = replace(task.train, targets=teacher.answers(task.train))
        board.train(task, _lines(steps.scale, task, own, near, random), steps.scale.base)
    few, many = FEW, f"{count:,}"
    notes += [
        "SA and RB are in the training set's ratio of classes, fewer where a class has too few; RD "
        "is drawn without regard to classes. Each training has random sentences of its own.",
        *(board.gain(f"{SA}, {size}", f"{other}, {size}")
          for other in (BALANCED, RD) for size in (many, few)),
        board.gain(f"{BOTH}, {many}", GT),
        board.gain(f"{BOTH}, {many}", ALONE),
        board.gain(f"{SA}, {many}", f"{OTHER[_other(steps.scale)]}, {many}"),
    ]  # fmt: skip
    return board.result("SentAugment, Table 4", PUBLISHED, notes)


def _other(scale: SentAugmentScale) -> str:
    """Return the selection that SA does not use."""
    return "confidence" if scale.select == "random" else "random"


def _lines(
    scale: SentAugmentScale,
    task: Benchmark,
    own: LabeledExamples,
    near: LabelPool,
    random: Sequence[LabelPool],
) -> Iterator[Line]:
    """Yield the lines of one task; `random` has a pool for each seed."""
    from tilth.classifiers.examples import concatenate
    from tilth.recipes.sentaugment_scores import Line

    training, many = dict(scale.training), scale.sentences
    longer = training | {"epochs": scale.small_epochs * training["epochs"]}
    # The sources of the rows: other sentences or labels start another run.
    sources: dict[str, Any] = {"teacher": scale.teacher, "own": own.fingerprint()}
    same = [near] * len(random)

    def drawn(name: str, step: str, pools: Sequence[LabelPool], count: int, by: str) -> Line:
        """Return a line of sentences drawn from pools."""
        size, settings = (FEW, longer) if count == len(own) else (f"{count:,}", training)
        about = {"count": count, "by": by, **sources}
        return Line(
            f"{name}, {size}", f"{step}-{count}",
            lambda seed: pools[seed].draw(task, count, by, seed), settings, about, pools,
        )  # fmt: skip

    yield Line(ALONE, "alone", lambda _: task.train, longer)
    yield Line(GT, "gt", lambda _: own, longer, sources)
    for count in (len(own), many):
        yield drawn(RD, "rd", random, count, "any")
        yield drawn(BALANCED, "rb", random, count, "random")
        yield drawn(SA, "sa", same, count, scale.select)
    other = _other(scale)
    yield drawn(OTHER[other], other, same, many, other)

    def with_labelled(seed: int) -> LabeledExamples:
        """Add the labelled rows as often as the lines without other rows see them."""
        return concatenate(concatenate(near.draw(task, many, scale.select, seed), own), own)

    about = {"count": many, "by": scale.select, "labelled": 2, **sources}
    yield Line(f"{BOTH}, {many:,}", f"both-{many}", with_labelled, training, about, same)


RECIPE = paper.recipe_of(
    4, "Distillation: labelled, random and retrieved sentences",
    run,
    steps=(
        paper.BUILD,
        "fine-tune a teacher on each task",
        "retrieve sentences with the task's queries, draw others at random, and let the "
        "teacher label them",
        "train the small student on the labelled set alone, and on the teacher's "
        "probabilities of labelled, random and retrieved sentences, as many as the training "
        "set has, and more",
    ),
    scales={
        "starter": replace(
            paper.STARTER_SCALE,
            sentences=20_000,
            query="clusters",
            tasks=("sst2", "trec", "insults"),
            training={"epochs": 1.0, "batch": 32, "max_length": 64},
            small_epochs=2.0,
            departures=(
                "up to 20,000 sentences for 100,000",
                paper.PER_TASK,
                f"SA: {paper.RATIO}",
                "queries are clusters, the paper's label averages",
                "lines of no more sentences than the training set has take twice the epochs",
                "batches of 32 for 16, 64 tokens of a text",
                paper.SMALL_BANK,
            ),
        ),
        "paper": replace(
            paper.PAPER_SCALE,
            base="nreimers/MiniLMv2-L6-H384-distilled-from-RoBERTa-Large",
            sentences=100_000,
            tasks=_TASKS,
        ),
    },
    models=paper.measured(*_TASKS)
    | {"base": ("RoBERTa-small, a hundredth of its teacher", "")}
    | paper.TEACHER
    | paper.ENCODER,
    departures=(
        *paper.ALWAYS,
        paper.EPOCHS,
        paper.ONE_TEACHER,
        "the lines RB, SA by the other selection, and SA and GT are not in the paper",
    ),
)  # fmt: skip
