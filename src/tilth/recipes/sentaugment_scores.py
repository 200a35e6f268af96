"""Students of the SentAugment tables: trainings over seeds, test scores, gains and the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.finetune import fine_tune, new_for
from tilth.classifiers.settings import Finetuning
from tilth.evaluate.classify import answered
from tilth.evaluate.tag import best_tags
from tilth.metrics.scores import entity_types, span_counts
from tilth.metrics.significance import Interval, f1_contributions, gain_interval
from tilth.models.classifier import Classifier, fingerprint_classifier, new_classifier
from tilth.recipes.recipe import Result
from tilth.recipes.sentaugment import SentAugmentSteps
from tilth.recipes.sentaugment_steps import Benchmark, LabelPool, column_of
from tilth.recipes.table import Row, Table, TableCell, mean_of, over_seeds
from tilth.runs import Run

MEAN = "mean of our tasks"


@dataclass(frozen=True, slots=True)
class SeedScores:
    """Test scores of several trainings on one task.

    Attributes:
        scores: accuracy or span F1, x 100. # (seeds,)
        counts: right, predicted and gold spans per seed and test row; for classes one row is one
            span. # (seeds, rows, 3)
    """

    scores: list[float]
    counts: NDArray[np.int64]


def weights_of(task: Benchmark, *bases: str) -> dict[str, str]:
    """Return hashes of the weights of bases, with a head for a task's labels."""
    kind, labels = task.train.kind, task.train.labels
    return {
        f"weights of {base}": fingerprint_classifier(
            new_classifier(base, kind=kind, labels=labels, device="cpu")
        )
        for base in dict.fromkeys(bases)
    }


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: what its students learn.

    Attributes:
        step: name of its trainings.
        rows: seed -> training rows.
        training: fields of `Finetuning`.
        about: origin of the rows; other values start another run.
        pools: per seed, the sentences its rows are drawn from; others start another run.
        base: returns the model that is trained; None: the scale's.
    """

    name: str
    step: str
    rows: Callable[[int], LabeledExamples]
    training: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    pools: Sequence[LabelPool] = ()
    base: Callable[[], str] | None = None


def students(
    steps: SentAugmentSteps, task: Benchmark, line: Line, weights: Mapping[str, str]
) -> SeedScores:
    """Train once per seed and measure on the test set; the models are not kept.

    Args:
        weights: hashes of the models that the rows and the students come from, by `weights_of`.
    """
    sets = {"train": task.train, "validation": task.validation, "test": task.test}
    fingerprints = {part: rows.fingerprint() for part, rows in sets.items()}
    tables = []
    for seed in range(steps.settings.seeds):
        training = {**line.training, "seed": seed}
        drawn = {"sentences": line.pools[seed].rows.fingerprint()} if line.pools else {}
        run = Run.open(
            steps.at(f"{task.name}-{line.step}-{seed}"),
            command="recipe train",
            settings={**training, "base": steps.scale.base, **line.about, **drawn},
            fingerprints={**fingerprints, **weights},
            parts=1,
        )
        with run:
            if run.missing():
                rows, base = line.rows(seed), line.base() if line.base else steps.scale.base
                chosen = Finetuning(**training).for_base(base)
                classifier = new_for(rows, base, chosen, steps.settings.device)
                fine_tune(classifier, rows, task.validation, chosen, quiet=steps.settings.quiet)
                run.write_part(0, _count_spans(task, classifier))
            tables.append(run.read_part(0))
    return _seed_scores(tables)


def measure_trained(classifiers: Iterable[Classifier], task: Benchmark) -> SeedScores:
    """Measure classifiers on the test set."""
    return _seed_scores([_count_spans(task, classifier) for classifier in classifiers])


def _count_spans(task: Benchmark, classifier: Classifier) -> pa.Table:
    """Return right, predicted and gold spans of each test row."""
    test = task.test
    answers = classifier.answers(test)
    if isinstance(test.targets, list):
        gold, _ = best_tags(test.targets, test.labels)
        said, _ = best_tags(answers, classifier.labels)
        kinds = entity_types([*gold, *said])
        counts = span_counts(gold, said, kinds)[:, : 3 * len(kinds)]
        counts = counts.reshape(len(gold), 3, len(kinds)).sum(axis=2)  # (rows, 3)
    else:
        right = answered(answers, "class") == test.targets.argmax(axis=1)
        counts = np.stack([right, np.ones_like(right), np.ones_like(right)], axis=1)  # (rows, 3)
    names = ("right", "answered", "wanted")
    return pa.table({name: counts[:, place].astype(np.int64) for place, name in enumerate(names)})


def _seed_scores(tables: Sequence[pa.Table]) -> SeedScores:
    counts = np.stack(
        [np.stack([column.to_numpy() for column in table.columns], axis=1) for table in tables]
    )  # (seeds, rows, 3)
    right, answers, wanted = np.moveaxis(counts.sum(axis=1), 1, 0)  # each (seeds,)
    f1 = 200 * right / np.maximum(answers + wanted, 1)  # for classes this equals accuracy
    return SeedScores(f1.tolist(), counts)


def gain(first: Mapping[str, SeedScores], second: Mapping[str, SeedScores]) -> Interval:
    """Return the gain in the mean over the tasks of `first` over `second`, x 100."""
    both = [
        (f1_contributions(one.counts), f1_contributions(second[task].counts))
        for task, one in first.items()
    ]
    return gain_interval(*zip(*both, strict=True))


@dataclass(slots=True)
class TaskBoard:
    """Collects the lines of a table: name -> task -> scores."""

    steps: SentAugmentSteps
    tasks: Sequence[Benchmark]
    lines: dict[str, dict[str, SeedScores]] = field(default_factory=dict)

    def put(self, name: str, task: Benchmark, scores: SeedScores) -> None:
        """Add the scores of one line on one task."""
        self.lines.setdefault(name, {})[task.name] = scores

    def train(self, task: Benchmark, lines: Iterable[Line], *bases: str) -> None:
        """Train and add the students of some lines, which come from the weights of `bases`."""
        weights = weights_of(task, *bases)
        for line in lines:
            self.put(line.name, task, students(self.steps, task, line, weights))

    def gain(self, name: str, over: str) -> str:
        """Return a sentence that states the gain of one line over another."""
        found = gain(self.lines[name], self.lines[over])
        rows = "" if found.trainings else ", test rows; one training"
        return (
            f"{name} less {over}, mean of the tasks: {found.value:+.1f} "
            f"[{found.low:+.1f}, {found.high:+.1f}{rows}]."
        )

    def result(self, title: str, published: Sequence[Row], notes: Sequence[str]) -> Result:
        """Return the table: our lines, then the published ones."""
        seeds = self.steps.settings.seeds
        varied = "test rows and trainings, Student's t"
        if seeds == 1:
            varied = "test rows; what one training differs from the next by takes --seeds 3"
        ours = [
            Row(name, {column_of(task): over_seeds(found.scores) for task, found in line.items()})
            for name, line in self.lines.items()
        ]
        about = f"mean and deviation of {seeds} trainings; brackets: 95% over {varied}."
        notes = [f"{metric_note(self.tasks)}; {about}", *notes]
        tasks = [task.name for task in self.tasks]
        return Result(table_of(title, tasks, [*ours, *published], notes))


def metric_note(tasks: Sequence[Benchmark]) -> str:
    """Return the metric of some tasks in words."""
    spans = ", ".join(column_of(task.name) for task in tasks if task.train.kind == "tags")
    return "Accuracy x 100" + (f" ({spans}: F1 of spans)" if spans else "") + " on the test sets"


def table_of(title: str, tasks: Sequence[str], rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """Return a table of tasks and add means over the same tasks for us and the paper.

    Args:
        tasks: tasks measured here.
        rows: ours, then published ones.
    """
    measured = [column_of(task) for task in tasks]
    of_paper = [column for row in rows if row.published for column in row.cells]
    shared = [column for column in measured if column in of_paper]
    means = {MEAN: measured} if set(shared) != set(measured) and len(measured) > 1 else {}
    if len(shared) > 1:
        means[f"mean of {', '.join(shared)}"] = shared
    made = []
    for row in rows:
        own: dict[str, TableCell] = {
            name: mean_of([row.cells[column] for column in columns])
            for name, columns in means.items()
            if all(column in row.cells for column in columns)
        }
        made.append(Row(row.name, {**row.cells, **own}, row.published))
    return Table(title, list(dict.fromkeys([*measured, *means, *of_paper])), made, notes)
