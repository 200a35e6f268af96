"""SentAugment, Table 3: few-shot learning with fine-tuning alone and with self-training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tilth.recipes import sentaugment as paper
from tilth.recipes.recipe import Result
from tilth.recipes.sentaugment import SentAugmentScale, SentAugmentSteps
from tilth.recipes.table import Row, TableCell, mean_of, over_seeds
from tilth.selftrain.settings import FINE_TUNED, OURS, QUICK, FewShot, SelfTraining, both_ways

if TYPE_CHECKING:
    from tilth.recipes.sentaugment_steps import Benchmark
    from tilth.selftrain.few_shot import FewShotResults


def _published(name: str, values: Sequence[float], deviations: Sequence[float]) -> Row:
    figures = zip(paper.PAPERS_TASKS, values, deviations, strict=True)
    return Row(name, {column: TableCell(mean, by) for column, mean, by in figures}, published=True)


PUBLISHED = [
    _published(
        "RoBERTa-large", [83.6, 42.3, 88.9, 77.3, 90.9, 49.0], [2.7, 1.6, 1.7, 2.8, 2.5, 1.7]
    ),
    _published(
        "RoBERTa-large, self-training",
        [86.7, 44.4, 89.7, 81.9, 92.1, 58.4],
        [2.3, 1.0, 2.0, 1.4, 2.4, 1.4],
    ),
]


def run(steps: SentAugmentSteps) -> Result:
    """Draw a few rows of each task and measure all systems on them."""
    from tilth.classifiers.load import TaskData
    from tilth.recipes.sentaugment_scores import table_of
    from tilth.recipes.sentaugment_steps import column_of, open_bank, read_tasks
    from tilth.selftrain.few_shot import few_shot

    settings = _settings(steps)
    tasks, notes = read_tasks(steps)
    bank = open_bank(steps)
    found = {
        task.name: few_shot(
            TaskData(task.examples, task.train, task.validation, task.test), bank,
            steps.at(f"{task.name}-few-shot"), settings, device=steps.settings.device,
            quiet=steps.settings.quiet,
        )
        for task in tasks
    }  # fmt: skip
    rows = []
    for name in (FINE_TUNED, *settings.systems):
        draws = {column_of(task): one.scores[name].draws for task, one in found.items()}
        rows.append(Row(name, {column: over_seeds(values) for column, values in draws.items()}))
    notes = [_about(settings, tasks), *notes]
    notes += [_gain_note(found, name) for name in settings.systems]
    notes.append(_ours(settings))
    return Result(table_of("SentAugment, Table 3", list(found), [*rows, *PUBLISHED], notes))


def _settings(steps: SentAugmentSteps) -> FewShot:
    """Return the paper's settings, overridden by those of the scale."""
    given: dict[str, Any] = dict(steps.scale.training)
    if steps.settings.seeds > 1:  # asked for
        given["seeds"] = steps.settings.seeds
    chosen = {field.name: given.pop(field.name) for field in fields(FewShot) if field.name in given}
    systems = both_ways(given.pop("student_epochs", None), given.pop("labelled_per_row", None))
    settings = FewShot(steps.scale.base, systems=systems, **chosen)
    return replace(settings, training=replace(settings.training, **given))


def _gain_note(found: Mapping[str, FewShotResults], name: str) -> str:
    from tilth.selftrain.few_shot import gain_over_draws

    gains = {task: outcome.gains[name] for task, outcome in found.items()}
    if len(found) > 1:
        each = [
            mean_of([over_seeds(one.scores[system].draws) for one in found.values()])
            for system in (FINE_TUNED, name)
        ]
        gains["mean of the tasks"] = gain_over_draws(*(cell.runs or [cell.value] for cell in each))
    said = ", ".join(f"{task} {one.signed}" for task, one in gains.items())
    return f"{name.capitalize()} less {FINE_TUNED}, draw by draw: {said}."


def _ours(settings: FewShot) -> str:
    way, paper = settings.systems[OURS], SelfTraining()
    return (
        f"Our way: the {way.top} nearest sentences for each row instead of {paper.top:,}, with a "
        f"query a row; the mean probabilities of the {min(way.teachers, settings.seeds)} best "
        f"teachers; labelled rows weigh {way.weight:g}."
    )


def _about(settings: FewShot, tasks: Sequence[Benchmark]) -> str:
    from tilth.recipes.sentaugment_scores import metric_note

    tagged = any(task.train.kind == "tags" for task in tasks)
    sentences = f", of tagged sets {settings.sentences} sentences" if tagged else ""
    return (
        f"{metric_note(tasks)}; mean and deviation of {settings.draws} draws of "
        f"{settings.per_class} rows of each class{sentences}. Of each draw it is the mean of the "
        f"{min(settings.best, settings.seeds)} best by {settings.validation} validation rows of "
        f"{settings.seeds} trainings of {settings.training.epochs:g} epochs; brackets: 95%, "
        "Student's t over the draws."
    )


RECIPE = paper.recipe_of(
    3, "Few-shot learning: fine-tuned alone, and with self-training",
    run,
    steps=(
        paper.BUILD,
        "draw 20 rows of each class of a task, of tagged sentences 200, several times",
        "fine-tune the base on each draw with several seeds; the best by validation is its "
        "teacher",
        "retrieve the nearest sentences of the bank for the draw, 1,000 for each of its rows, "
        "label some of them, and train on ten times as many as the draw has, and on the draw",
    ),
    scales={
        "starter": SentAugmentScale(
            base="starter-small",
            encoder="starter-static",
            tasks=paper.TASKS,
            training=QUICK,
            departures=(
                "the mean of the best 2 trainings for that of the best 3 of 10",
                "30 epochs for 50, of students 5, 64 tokens of a text",
                "the teacher labels 100 of the 1,000 sentences for each row, and of these 10 "
                "are drawn in the draw's ratio of classes",
                paper.SMALL_BANK,
            ),
        ),
        "paper": SentAugmentScale(
            base=paper.ROBERTA, encoder=paper.PUBLIC_ENCODER, tasks=paper.PAPERS_TASKS,
            departures=paper.AT_PAPER,
        ),
    },
    models=paper.measured(*paper.PAPERS_TASKS) | paper.BASE | paper.ENCODER,
    departures=(
        *paper.ALWAYS,
        "labelled rows keep their own labels, the paper's get the teacher's",
        "our way is not in the paper; it was chosen on one draw of trec by other rows of its "
        "training set: its gain on trec is too high",
    ),
)  # fmt: skip
