"""Few-shot experiments: small draws of a task, fine-tuned alone and with retrieved sentences."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples, concatenate, labeled_examples, strata
from tilth.classifiers.finetune import MEASURES, TrainingCurve, fine_tune, new_for, score
from tilth.classifiers.load import TaskData
from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import normalize_rows
from tilth.data.tokenize import learn_tokenizer
from tilth.errors import InputError
from tilth.limits import later_seed
from tilth.metrics.scores import positive
from tilth.metrics.significance import EQUAL, mean_interval
from tilth.models.classifier import Classifier, fingerprint_classifier, new_classifier
from tilth.models.trainer import check_processes
from tilth.runs import RESULTS, Progress, Run, complete
from tilth.selftrain.pseudo_label import (
    PROBABILITIES,
    from_lists,
    label_sentences,
    pseudo_labeled,
    with_tokens,
)
from tilth.selftrain.retrieve import bank_fingerprints, retrieve
from tilth.selftrain.select import PseudoLabels, largest_remainder, select
from tilth.selftrain.settings import FINE_TUNED, Augmentation, FewShot, SelfTraining

if TYPE_CHECKING:
    from tilth.bank import Bank

_MEASUREMENTS = 10  # of each training
Texts = Collection[tuple[str, ...]]


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the indices of the highest scores, highest first; of equal ones the first."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])[:count]


@dataclass(frozen=True, slots=True)
class MeanOverDraws:
    """Summarise a score or gain over several draws.

    Attributes:
        deviation: standard deviation over the draws (n - 1); None for one.
        low: lower end of the 95% interval of the mean (Student's t); None for one draw, and where
            all are equal.
        high: its upper end.
        draws: the value of each.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    draws: tuple[float, ...]

    @property
    def signed(self) -> str:
        """The mean and its interval as text, with signs."""
        ends = "" if self.low is None else f" [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{self.mean:+.1f}{ends}"


def mean_over_draws(values: Sequence[float]) -> MeanOverDraws:
    """Return mean, standard deviation and interval of the values of draws."""
    found = mean_interval(values)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    ends = (found.low, found.high) if np.ptp(values) > EQUAL else (None, None)
    return MeanOverDraws(found.value, deviation, *ends, tuple(values))


def gain_over_draws(before: Sequence[float], after: Sequence[float]) -> MeanOverDraws:
    """Return the paired differences of the scores of draws."""
    return mean_over_draws([new - old for old, new in zip(before, after, strict=True)])


@dataclass(frozen=True, slots=True)
class FewShotResults:
    """Hold the results of a few-shot experiment.

    Attributes:
        measure: name of the score.
        scores: of fine-tuning and each variant of self-training.
        gains: of each variant over fine-tuning, draw by draw.
        rows: training rows of each system, the mean over the draws.
    """

    measure: str
    scores: Mapping[str, MeanOverDraws]
    gains: Mapping[str, MeanOverDraws]
    rows: Mapping[str, float]


def few_shot(
    task: TaskData,
    bank: Bank,
    out: str | Path,
    settings: FewShot,
    *,
    device: str = "auto",
    quiet: bool = False,
    overwrite: bool = False,
) -> FewShotResults:
    """Measure the gain of self-training with a bank's sentences on small draws of a task.

    Several seeds train on each draw; the mean test score of the best by validation counts, and the
    very best one labels sentences retrieved for the draw. Students learn from these and the draw.
    Each training is measured ten times, and its best weights are kept.

    Args:
        task: draws are taken from its training set, validation rows once from its validation set;
            no text of the test set is drawn or retrieved.
        out: the run folder; the same call resumes, and repeats the unfinished training and the
            teachers of its draw.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        quiet: no progress bar.
        overwrite: start the run folder anew.

    Reference:
        Du et al. 2020, arXiv 2010.02194, section 3.3, "Few-shot learning experiments".
    """
    settings = replace(settings, training=settings.training.for_base(settings.base))
    check_processes(device)
    task = _checked(task, settings)
    jobs = plan(settings)
    base = new_classifier(
        settings.base, kind=task.train.kind, labels=task.train.labels, device=device
    )
    run = Run.open(
        out,
        command="fewshot",
        settings=asdict(settings),
        fingerprints={
            "train": task.train.fingerprint(),
            **{name.split()[0]: rows.fingerprint() for name, rows in task.held_out.items()},
            **bank_fingerprints(bank, index=False), "base": fingerprint_classifier(base),
        },
        parts=len(jobs),
        outputs=(RESULTS,),
        overwrite=overwrite,
    )  # fmt: skip
    del base
    with run:
        study = _Study(run, jobs, task, bank, settings, device)

        def work(place: int, progress: Progress) -> pa.Table:
            table = study.do(jobs[place])
            progress.advance(1)
            return table

        complete(run, work, [1] * len(jobs), quiet=quiet, what="parts")
        rows = study.trainings(jobs)
        found = summarise(rows, MEASURES[task.train.kind], settings)
        sizes = {name: len(rows) for name, rows in task.held_out.items()}
        results = {**asdict(found), **sizes, "trainings": rows}
        run.write_results(results)
    return found


def _checked(task: TaskData, settings: FewShot) -> TaskData:
    """Return a task with the rows of its examples, and with drawn validation rows."""
    if task.examples.kind == "pair":
        raise InputError("the examples are pairs: a bank has single sentences; give single texts")
    rows = labeled_examples(task.examples, task.train.labels)
    for name in ("validation", "test"):
        other = getattr(task, name)
        if other is None:
            raise InputError(f"the task has no {name} rows: give a {name} set")
        if (other.kind, other.labels) != (rows.kind, rows.labels):
            raise InputError(
                f"{name} rows are for {other.kind} {', '.join(other.labels)}, the examples for "
                f"{rows.kind} {', '.join(rows.labels)}: read them with the same labels"
            )
    assert task.validation is not None
    assert task.test is not None
    chosen = draw_validation(
        task.validation, settings.validation, seed=settings.seed, exclude=set(task.test.texts)
    )
    return replace(task, train=rows, validation=task.validation.select(chosen))


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """Identify one part of the run: a training, or the pseudo-labelled sentences of a draw.

    Attributes:
        draw: from 0.
        system: `FINE_TUNED`, or the name of a variant of self-training.
        seed: of the training, from 0; None: sentences are retrieved and labelled.
    """

    draw: int
    system: str
    seed: int | None = None


def plan(settings: FewShot) -> list[TrainingJob]:
    """Return the jobs of a run, each after those it depends on."""
    jobs, seeds = [], range(settings.seeds)
    for number in range(settings.draws):
        jobs += [TrainingJob(number, FINE_TUNED, seed) for seed in seeds]
        jobs += [
            TrainingJob(number, name, seed) for name in settings.systems for seed in (None, *seeds)
        ]
    return jobs


class _Study:
    """Runs the jobs of a few-shot experiment."""

    def __init__(
        self,
        run: Run,
        jobs: list[TrainingJob],
        task: TaskData,
        bank: Bank,
        settings: FewShot,
        device: str,
    ) -> None:
        self.run, self.jobs, self.task, self.bank = run, jobs, task, bank
        self.settings, self.device = settings, device
        self._draw, self._seed = -1, 0
        # Of the draw: indices of its rows, sentences retrieved for it, and its best trainings.
        self._places: NDArray[np.int64] = np.empty(0, np.int64)
        self._found: dict[tuple[str, int], pa.Table] = {}
        self._best: dict[int, tuple[float, Classifier]] = {}

    def do(self, job: TrainingJob) -> pa.Table:
        """Return the part of a job."""
        if job.draw != self._draw:
            self._draw, self._found, self._best = job.draw, {}, {}
            sequence = np.random.SeedSequence((self.settings.seed, job.draw))
            self._seed = int(sequence.generate_state(1)[0])  # no draw of another seed has it
            self._places = draw(
                self.task.train, self.settings.per_class, sentences=self.settings.sentences,
                seed=self._seed,
                exclude={text for rows in self.task.held_out.values() for text in rows.texts},
            )  # fmt: skip
        return self._label(job) if job.seed is None else self._train(job)

    def trainings(self, jobs: Sequence[TrainingJob]) -> list[dict[str, Any]]:
        """Return the scores of finished trainings."""
        places = {job: place for place, job in enumerate(self.jobs)}
        return [
            self.run.read_part(places[job]).to_pylist()[0] for job in jobs if job.seed is not None
        ]

    def _train(self, job: TrainingJob) -> pa.Table:
        """Train once; return its scores."""
        began = time.monotonic()
        rows = self._rows(job)
        classifier, curve = self._fit(job, rows)
        facts = {
            "validation": curve.best[1], "choice": curve.selection_score, "rows": len(rows),
            "test": self._test(classifier),
        }  # fmt: skip
        seconds = round(time.monotonic() - began, 2)
        return pa.Table.from_pylist([{**asdict(job), **facts, "seconds": seconds}])

    def _test(self, classifier: Classifier) -> float:
        """Return the score of a classifier on the test set, x 100."""
        assert self.task.test is not None
        given = classifier.answers(self.task.test)
        flat = np.concatenate(given) if isinstance(given, list) else given
        return score(self.task.test, flat - np.float32(0.5))  # above 0 is yes for `multi`

    def _rows(self, job: TrainingJob) -> LabeledExamples:
        """Return the training rows: a draw, for students with pseudo-labelled sentences."""
        drawn = self.task.train.select(self._places)
        if job.system == FINE_TUNED:
            return drawn
        system = self.settings.systems[job.system]
        table = self.run.read_part(self.jobs.index(replace(job, seed=None)))
        more = pseudo_labeled(table, drawn)
        rows = concatenate(drawn, more if system.soft else more.hard())
        if system.weight == 1:
            return rows
        weights = np.repeat([system.weight, 1.0], [len(drawn), len(more)]).astype(np.float32)
        return replace(rows, weights=weights)

    def _fit(self, job: TrainingJob, rows: LabeledExamples) -> tuple[Classifier, TrainingCurve]:
        """Train; return the best weights and the curve. Trainings that may teach are kept."""
        assert job.seed is not None  # a training has one
        settings, training = self.settings, self.settings.training
        training = replace(training, seed=later_seed(training.seed, job.seed))
        systems = settings.systems
        if job.system != FINE_TUNED and (epochs := systems[job.system].epochs) is not None:
            training = replace(training, epochs=epochs)
        if training.evaluate_every is None:
            every = max(1, training.steps(len(rows))[0] // _MEASUREMENTS)
            training = replace(training, evaluate_every=every)
        classifier = new_for(rows, settings.base, training, self.device)
        curve = fine_tune(classifier, rows, self.task.validation, training, quiet=True)
        if job.system == FINE_TUNED:
            self._best[job.seed] = curve.selection_score, classifier
            most = max((system.teachers for system in systems.values()), default=0)
            seeds = sorted(self._best)
            choices = [self._best[seed][0] for seed in seeds]
            for place in highest(choices, len(seeds))[most:]:
                del self._best[seeds[place]]
        return classifier, curve

    def _label(self, job: TrainingJob) -> pa.Table:
        """Retrieve sentences for a draw, label them with its teachers, and draw among them."""
        system = self.settings.systems[job.system]
        drawn = self.task.train.select(self._places)
        found = self._retrieved(system)
        if system.labelled_per_row is not None:
            found = _sample(found, system.labelled_per_row * len(drawn), self._seed)
        teachers = self._teachers(job.draw, system.teachers)
        tokenizer = None if drawn.tokens is None else learn_tokenizer(drawn.tokens)
        table = label_sentences(with_tokens(found, tokenizer), teachers)
        selection = select(
            PseudoLabels(from_lists(table[PROBABILITIES]), _keys(found)), drawn,
            system.multiple * len(drawn), by="random", seed=self._seed,
        )  # fmt: skip
        return table.take(pa.array(selection.kept))

    def _retrieved(self, system: SelfTraining) -> pa.Table:
        """Return the sentences of the bank that are nearest to the draw."""
        key = (system.query, system.top)
        if key not in self._found:
            self._found[key] = retrieve(
                self.bank, self.task.examples.select(self._places.tolist()),
                system.top * len(self._places), Augmentation(system.query),
                exclude=self.task.excluded_texts,
            ).table  # fmt: skip
        return self._found[key]

    def _teachers(self, number: int, count: int) -> list[Classifier]:
        """Return a draw's best classifiers; of a resumed run they are trained again."""
        group = [TrainingJob(number, FINE_TUNED, seed) for seed in range(self.settings.seeds)]
        best = highest([row["choice"] for row in self.trainings(group)], count)
        found = []
        for seed in best:
            kept = self._best.get(seed)
            found.append(kept[1] if kept else self._fit(group[seed], self._rows(group[seed]))[0])
        return found


def summarise(rows: Sequence[Mapping[str, Any]], measure: str, settings: FewShot) -> FewShotResults:
    """Return the scores of a run's trainings; in each draw the best by validation count.

    Args:
        rows: draw, system, rows, choice (the selection score) and test score of each training.
        measure: name of the score.

    Reference:
        Du et al. 2020, section 3.3.
    """

    def best_mean(trainings: Sequence[Mapping[str, Any]]) -> float:
        best = highest([row["choice"] for row in trainings], settings.best)
        return float(np.mean([trainings[place]["test"] for place in best]))

    scores, sizes = {}, {}
    for system in (FINE_TUNED, *settings.systems):
        own = [row for row in rows if row["system"] == system]
        draws = [[row for row in own if row["draw"] == one] for one in range(settings.draws)]
        scores[system] = mean_over_draws([best_mean(some) for some in draws])
        sizes[system] = float(np.mean([row["rows"] for row in own]))
    base = scores[FINE_TUNED].draws
    gains = {name: gain_over_draws(base, scores[name].draws) for name in settings.systems}
    return FewShotResults(measure, scores, gains, sizes)


def _sample(found: pa.Table, count: int, seed: int) -> pa.Table:
    """Draw some sentences by seed and text, in their order."""
    order = np.argsort(random_keys(seed, "few-shot candidates", _keys(found)), kind="stable")
    return found.take(pa.array(np.sort(order[:count])))


def _keys(found: pa.Table) -> NDArray[np.uint64]:
    return text_hashes(found["text"].combine_chunks())


def draw(
    rows: LabeledExamples,
    per_class: int | None = 20,
    *,
    sentences: int = 200,
    seed: int = 0,
    exclude: Texts = (),
) -> NDArray[np.int64]:  # fmt: skip
    """Draw a small training set: some rows of each class, or some tagged sentences.

    The draw follows from seed and content, not from the order of rows. Equal texts are drawn
    once, with the labels of the first. A class with fewer rows has them all drawn.

    Args:
        per_class: where a row has any number of classes it counts for each; as many rows without
            any are drawn. None: all rows that may be drawn.
        sentences: total drawn where tokens have tags, stratified by entity types.
        exclude: texts that are not drawn, such as those of a test set.

    Returns:
        Indices of the rows, ascending.

    Reference:
        Du et al. 2020, section 3.3, "Few-shot learning experiments".
    """
    if min(sentences, sentences if per_class is None else per_class) < 1:
        raise InputError(
            f"per_class is {per_class}, sentences {sentences}: draw at least one of each"
        )
    order = _drawn_order(rows, f"few-shot/{seed}", exclude)
    if per_class is None:
        if not len(order):
            raise InputError("every row is in the test or validation set: give other rows")
        return np.sort(order)
    if isinstance(rows.targets, list):
        return np.sort(_in_shares(strata(rows), order, sentences))
    has = positive(rows.targets[order])  # (rows, labels)
    if rows.kind == "class":
        has = rows.targets[order].argmax(axis=1)[:, None] == np.arange(len(rows.labels))
    chosen = []
    for place, label in enumerate(rows.labels):
        own = order[has[:, place]][:per_class]
        if not len(own):
            raise InputError(f"label {label!r}: no row of it can be drawn: leave it out")
        chosen.append(own)
    if rows.kind == "multi":
        chosen.append(order[~has.any(axis=1)][:per_class])
    return np.unique(np.concatenate(chosen))


def draw_validation(
    rows: LabeledExamples, count: int = 200, *, seed: int = 0, exclude: Texts = ()
) -> NDArray[np.int64]:
    """Draw validation rows, stratified by label; all rows where there are fewer.

    Args:
        exclude: texts that are not drawn, such as those of a test set.

    Returns:
        Indices of the rows, ascending.

    Reference:
        Du et al. 2020, section 3.3.
    """
    order = _drawn_order(rows, f"few-shot validation/{seed}", exclude)
    if count < 1 or not len(order):
        raise InputError(f"{count} validation rows of {len(order)}: at least one is needed")
    return np.sort(_in_shares(strata(rows), order, count))


def _drawn_order(rows: LabeledExamples, purpose: str, exclude: Texts) -> NDArray[np.int64]:
    """Return the indices of distinct texts that may be drawn, in an order by their hashes."""
    excluded = set(normalize_rows(list(exclude)))
    first: dict[tuple[str, ...], int] = {}
    for place, (texts, known) in enumerate(
        zip(rows.texts, normalize_rows(rows.texts), strict=True)
    ):
        if known not in excluded:
            first.setdefault(texts, place)
    places = np.fromiter(first.values(), np.int64, len(first))
    if not len(places):
        return places
    keys = [text_hashes(pa.array(side, pa.large_string())) for side in zip(*first, strict=True)]
    return places[np.argsort(random_keys(0, purpose, *keys), kind="stable")]


def _in_shares(
    groups: NDArray[np.int64], order: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the first `count` rows of an order, divided among groups by their shares."""
    if count >= len(order):
        return order
    own = groups[order]
    found, sizes = np.unique(own, return_counts=True)
    wanted = largest_remainder(sizes, count / len(order))
    chosen = [order[own == group][:size] for group, size in zip(found, wanted, strict=True)]
    return np.concatenate(chosen)
