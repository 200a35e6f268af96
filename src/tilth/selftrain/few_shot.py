"""Few-shot experiments: small draws of a task, fine-tuned alone and with retrieved sentences."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import Rows, Targets, joined, rows_of, strata
from tilth.classifiers.finetune import MEASURES, Curve, fit, score_of
from tilth.classifiers.load import Task
from tilth.data.hashing import random_keys, text_hashes
from tilth.errors import InputError
from tilth.metrics.scores import positive
from tilth.metrics.significance import mean_interval
from tilth.models.classifier import Classifier, fingerprint_classifier, new_classifier
from tilth.models.trainer import require_single_process
from tilth.runs import RESULTS, Progress, Run
from tilth.selftrain.few_shot_settings import FINE_TUNED, FewShot, SelfTraining
from tilth.selftrain.pseudo_label import (
    PROBABILITIES,
    TOKENS,
    as_lists,
    bank_fingerprints,
    labelled_rows,
)
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.select import class_ratio, select
from tilth.selftrain.tokenize import learn_words

if TYPE_CHECKING:
    from tilth.bank import Bank

Texts = Collection[tuple[str, ...]]


def draw(
    rows: Rows,
    per_class: int | None = 20,
    *,
    sentences: int = 200,
    seed: int = 0,
    without: Texts = (),
) -> NDArray[np.int64]:  # fmt: skip
    """Draw a small training set: as many rows of each class, or so many tagged sentences.

    Which rows are drawn follows from seed and content, not from their order. Equal texts are
    drawn once. A class with fewer rows has them all drawn.

    Args:
        rows: the large training set.
        per_class: rows of each class; where a row has any number of classes it counts for each.
            None: all rows that may be drawn.
        sentences: drawn altogether where tokens have tags, in the set's shares of types.
        seed: another one draws others.
        without: texts that are not drawn, such as those of a test set.

    Returns:
        Places of the rows, ascending.

    Raises:
        InputError: a class has no row that may be drawn, or a number is below 1.

    Reference:
        Du et al. 2021, section 3.3, "Few-shot learning experiments".
    """
    if min(sentences, sentences if per_class is None else per_class) < 1:
        raise InputError(
            f"per_class is {per_class}, sentences {sentences}: draw at least one of each"
        )
    order = _drawn_order(rows, f"few-shot/{seed}", without)
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
    return np.unique(np.concatenate(chosen))


def draw_validation(
    rows: Rows, count: int = 200, *, seed: int = 0, without: Texts = ()
) -> NDArray[np.int64]:
    """Draw validation rows with the set's shares of labels; all rows where there are fewer.

    Args:
        rows: the large validation set.
        count: rows drawn.
        seed: another one draws others.
        without: texts that are not drawn, such as those of a test set.

    Returns:
        Places of the rows, ascending.

    Raises:
        InputError: no row can be drawn.

    Reference:
        Du et al. 2021, section 3.3.
    """
    order = _drawn_order(rows, f"few-shot validation/{seed}", without)
    if count < 1 or not len(order):
        raise InputError(f"{count} validation rows of {len(order)}: at least one is needed")
    return np.sort(_in_shares(strata(rows), order, count))


def _drawn_order(rows: Rows, purpose: str, without: Texts) -> NDArray[np.int64]:
    """Return the rows that may be drawn, each text once, in an order that their texts decide."""
    barred = set(without)
    first: dict[tuple[str, ...], int] = {}
    for place, texts in enumerate(rows.texts):
        if texts not in barred:
            first.setdefault(texts, place)
    places = np.fromiter(first.values(), np.int64, len(first))
    if not len(places):
        return places
    keys = [text_hashes(pa.array(side, pa.large_string())) for side in zip(*first, strict=True)]
    return places[np.argsort(random_keys(0, purpose, *keys), kind="stable")]


def _in_shares(
    groups: NDArray[np.int64], order: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Take the first rows of an order, of each group its share.

    Args:
        groups: of all rows. # (rows,)
        order: places of the rows that can be taken.
        count: how many are taken.
    """
    own = groups[order]
    found, sizes = np.unique(own, return_counts=True)
    wanted = shares(sizes, count)
    chosen = [order[own == group][:size] for group, size in zip(found, wanted, strict=True)]
    return np.concatenate(chosen)


def shares(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Divide a count in proportion to sizes; what is over goes to the largest fractions.

    Args:
        sizes: of the groups. # (groups,)
        count: to be divided; all where there are fewer.

    Example:
        >>> import numpy as np
        >>> shares(np.array([60, 30, 10]), 9).tolist()
        [5, 3, 1]
    """
    total = int(sizes.sum())
    if count >= total:
        return sizes
    exact = sizes * (count / total)  # (groups,)
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left = count - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def best_of(validation: Sequence[float], test: Sequence[float], best: int = 3) -> float:
    """Return the mean test score of the trainings that are best by validation.

    Args:
        validation: score of each training; of equal ones the first count as better.
        test: of the same trainings.
        best: how many count.

    Reference:
        Du et al. 2021, section 3.3.

    Example:
        >>> best_of([80.0, 90.0, 85.0], [70.0, 74.0, 78.0], best=2)
        76.0
    """
    return float(np.mean([test[place] for place in highest(validation, best)]))


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the places of the highest scores, highest first; of equal ones the first."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])[:count]


@dataclass(frozen=True, slots=True)
class OverDraws:
    """A figure of several draws.

    Attributes:
        mean: over the draws.
        deviation: over the draws (n - 1); None for one.
        low: lower end of the 95% interval of the mean (Student's t); None for one draw.
        high: its upper end.
        draws: the figure of each.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    draws: tuple[float, ...]


def over_draws(values: Sequence[float]) -> OverDraws:
    """Return mean, deviation and interval of figures of draws."""
    found = mean_interval(values)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return OverDraws(found.value, deviation, found.low, found.high, tuple(values))


def gain(before: Sequence[float], after: Sequence[float]) -> OverDraws:
    """Return by how much the second is higher, draw by draw.

    Args:
        before: score of each draw.
        after: score of the same draws.
    """
    return over_draws([new - old for old, new in zip(before, after, strict=True)])


_MEASUREMENTS = 10  # of each training


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a few-shot experiment found.

    Attributes:
        measure: what the scores are.
        scores: of fine-tuning and each way of self-training.
        gains: of each way of self-training over fine-tuning, draw by draw.
        rows: trained on in each system, the mean over the draws.
    """

    measure: str
    scores: Mapping[str, OverDraws]
    gains: Mapping[str, OverDraws]
    rows: Mapping[str, float]


def few_shot(
    task: Task,
    bank: Bank,
    out: str | Path,
    settings: FewShot | None = None,
    *,
    device: str = "auto",
    quiet: bool = False,
    overwrite: bool = False,
) -> Outcome:
    """Measure on small draws of a task what self-training with a bank's sentences gains.

    Of each draw, several trainings with seeds of their own are measured on the test set, and the
    mean of those that are best by validation counts. The best one teaches: it labels sentences
    that the bank has for the draw, and students learn from these and the draw. Training is
    measured ten times, and the weights that are best by validation are kept.

    Args:
        task: the large labelled set that is drawn from, what validation rows are drawn from once
            for all draws, and the test set; none of its texts is drawn or retrieved.
        bank: where sentences are found.
        out: the run folder; the same call goes on where it stopped, and loses the training that
            was at work and the weights of its draw's teachers.
        settings: how; None: as in the paper.
        device: `auto`, `cpu`, `cuda` or `cuda:0`.
        quiet: no progress.
        overwrite: begin the run anew.

    Raises:
        InputError: the sets do not go together, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2021, arXiv 2010.02194, section 3.3, "Few-shot learning experiments".
    """
    settings = settings or FewShot()
    settings = replace(settings, training=settings.training.for_base(settings.base))
    require_single_process(device)
    task = _checked(task, settings)
    jobs = plan(settings)
    base = new_classifier(
        settings.base, kind=task.rows.kind, labels=task.rows.labels, device=device
    )
    run = Run.open(
        out,
        command="fewshot",
        settings=asdict(settings),
        fingerprints={
            "train": task.rows.fingerprint(),
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
        missing = run.missing()
        with Progress(len(jobs), done=len(jobs) - len(missing), quiet=quiet, what="parts") as bar:
            for place in missing:
                run.write_part(place, study.do(jobs[place]))
                bar.advance(1)
        rows = study.trainings(jobs)
        found = summarise(rows, MEASURES[task.rows.kind], settings)
        sizes = {name: len(rows) for name, rows in task.held_out.items()}
        results = {**asdict(found), **sizes, "trainings": rows}
        run.write_file(RESULTS, json.dumps(results, indent=2) + "\n")
    return found


def _checked(task: Task, settings: FewShot) -> Task:
    """Return a task whose rows stand as its examples do, with the validation rows drawn.

    Raises:
        InputError: there is nothing to choose with or to measure on, the examples are pairs, or
            the sets have other labels.
    """
    if task.examples.kind == "pair":
        raise InputError("the examples are pairs: a bank has single sentences; give single texts")
    rows = rows_of(task.examples, task.rows.labels)
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
        task.validation, settings.validation, seed=settings.seed, without=set(task.test.texts)
    )
    return replace(task, rows=rows, validation=task.validation.select(chosen))


@dataclass(frozen=True, slots=True)
class Job:
    """One part of the run: a training, or the labelled sentences that students learn from.

    Attributes:
        draw: from 0.
        system: `FINE_TUNED`, or the name of a way of self-training.
        seed: of the training, from 0; None: sentences are retrieved and labelled.
    """

    draw: int
    system: str
    seed: int | None = None


def plan(settings: FewShot) -> list[Job]:
    """Return all parts of a run, in an order in which each comes after what it needs."""
    jobs, seeds = [], range(settings.seeds)
    for number in range(settings.draws):
        jobs += [Job(number, FINE_TUNED, seed) for seed in seeds]
        jobs += [Job(number, name, seed) for name in settings.systems for seed in (None, *seeds)]
    return jobs


class _Study:
    """A few-shot experiment at work."""

    def __init__(
        self, run: Run, jobs: list[Job], task: Task, bank: Bank, settings: FewShot, device: str
    ) -> None:
        self.run, self.jobs, self.task, self.bank = run, jobs, task, bank
        self.settings, self.device = settings, device
        self._draw = -1
        # Of the draw: places of its rows, what was retrieved for it, and its best trainings.
        self._places: NDArray[np.int64] = np.empty(0, np.int64)
        self._found: dict[tuple[str, int], pa.Table] = {}
        self._best: dict[int, tuple[float, Classifier]] = {}

    def do(self, job: Job) -> pa.Table:
        """Do a part."""
        if job.draw != self._draw:
            self._draw, self._found, self._best = job.draw, {}, {}
            self._places = draw(
                self.task.rows, self.settings.per_class, sentences=self.settings.sentences,
                seed=self.settings.seed + job.draw,
                without={text for rows in self.task.held_out.values() for text in rows.texts},
            )  # fmt: skip
        return self._label(job) if job.seed is None else self._train(job)

    def trainings(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Return the scores of trainings that are done."""
        places = {job: place for place, job in enumerate(self.jobs)}
        return [
            self.run.read_part(places[job]).to_pylist()[0] for job in jobs if job.seed is not None
        ]

    def _train(self, job: Job) -> pa.Table:
        """Train once; return its scores."""
        began = time.monotonic()
        rows = self._rows(job)
        classifier, curve = self._fit(job, rows)
        assert self.task.test is not None
        facts = {
            "validation": curve.best[1], "choice": curve.choice, "rows": len(rows),
            "test": _score(self.task.test, _answers([classifier], self.task.test)),
        }  # fmt: skip
        seconds = round(time.monotonic() - began, 2)
        return pa.Table.from_pylist([{**asdict(job), **facts, "seconds": seconds}])

    def _rows(self, job: Job) -> Rows:
        """Return what a training learns from: a draw, for students with what was labelled."""
        drawn = self.task.rows.select(self._places)
        if job.system == FINE_TUNED:
            return drawn
        system = self.settings.systems[job.system]
        table = self.run.read_part(self.jobs.index(replace(job, seed=None)))
        more = labelled_rows(table, drawn)
        rows = joined(drawn, more if system.soft else more.hard())
        if system.weight == 1:
            return rows
        weights = np.repeat([system.weight, 1.0], [len(drawn), len(more)]).astype(np.float32)
        return replace(rows, weights=weights)

    def _fit(self, job: Job, rows: Rows) -> tuple[Classifier, Curve]:
        """Train; return the best weights, and how it went. What may teach is kept."""
        assert job.seed is not None  # a training has one
        settings, training = self.settings, self.settings.training
        training = replace(training, seed=training.seed + job.seed)
        systems = settings.systems
        if job.system != FINE_TUNED and (epochs := systems[job.system].epochs) is not None:
            training = replace(training, epochs=epochs)
        if training.evaluate_every is None:
            every = max(1, training.steps(len(rows))[0] // _MEASUREMENTS)
            training = replace(training, evaluate_every=every)
        classifier = new_classifier(
            settings.base, kind=rows.kind, labels=rows.labels, seed=training.seed,
            dropout=training.dropout, max_length=training.max_length, device=self.device,
        )  # fmt: skip
        curve = fit(classifier, rows, self.task.validation, training, quiet=True)
        if job.system == FINE_TUNED:
            self._best[job.seed] = curve.choice, classifier
            most = max((system.teachers for system in systems.values()), default=0)
            seeds = sorted(self._best)
            choices = [self._best[seed][0] for seed in seeds]
            for place in highest(choices, len(seeds))[most:]:
                del self._best[seeds[place]]
        return classifier, curve

    def _label(self, job: Job) -> pa.Table:
        """Retrieve sentences for a draw, let its teachers label them, and draw among them."""
        system = self.settings.systems[job.system]
        drawn = self.task.rows.select(self._places)
        found = self._retrieved(system)
        if system.labelled is not None:
            found = _sampled(found, system.labelled * len(drawn), job.draw)
        texts = found["text"].to_pylist()
        tokens = None
        if drawn.tokens is not None:
            words = learn_words(drawn.tokens)
            tokens = [words.cut(text) for text in texts]
        empty = Rows(drawn.kind, drawn.labels, [(text,) for text in texts], tokens, [])
        given = _answers(self._teachers(job.draw, system.teachers), empty)
        chosen = select(
            given, kind=drawn.kind, labels=drawn.labels,
            ratio=class_ratio(drawn.targets, kind=drawn.kind, labels=drawn.labels),
            count=system.multiple * len(drawn), by="random", keys=_keys(found), seed=job.draw,
        ).kept  # fmt: skip
        table = found.take(pa.array(chosen))
        if tokens is not None:
            table = table.append_column(TOKENS, pa.array([tokens[row] for row in chosen]))
        kept = [given[row] for row in chosen] if isinstance(given, list) else given[chosen]
        return table.append_column(PROBABILITIES, as_lists(kept))

    def _retrieved(self, system: SelfTraining) -> pa.Table:
        """Return the sentences of the bank that are nearest to the draw."""
        key = (system.query, system.top)
        if key not in self._found:
            self._found[key] = retrieve(
                self.bank, self.task.examples.select(self._places.tolist()), kind=system.query,
                count=system.top * len(self._places), without=self.task.left_out,
            )  # fmt: skip
        return self._found[key]

    def _teachers(self, number: int, count: int) -> list[Classifier]:
        """Return a draw's best classifiers; of a run that was stopped they are trained again."""
        group = [Job(number, FINE_TUNED, seed) for seed in range(self.settings.seeds)]
        best = highest([row["choice"] for row in self.trainings(group)], count)
        found = []
        for seed in best:
            kept = self._best.get(seed)
            found.append(kept[1] if kept else self._fit(group[seed], self._rows(group[seed]))[0])
        return found


def summarise(rows: Sequence[Mapping[str, Any]], measure: str, settings: FewShot) -> Outcome:
    """Return what trainings gave.

    Args:
        rows: draw, system, rows, choice (what the best by validation have most of) and test score
            of each training.
        measure: what the scores are.
        settings: whose systems and number of best trainings.
    """
    scores, sizes = {}, {}
    for system in (FINE_TUNED, *settings.systems):
        own = [row for row in rows if row["system"] == system]
        draws = [[row for row in own if row["draw"] == one] for one in range(settings.draws)]
        scores[system] = over_draws([
            best_of([row["choice"] for row in some], [row["test"] for row in some], settings.best)
            for some in draws
        ])  # fmt: skip
        sizes[system] = float(np.mean([row["rows"] for row in own]))
    base = scores[FINE_TUNED].draws
    gains = {name: gain(base, scores[name].draws) for name in settings.systems}
    return Outcome(measure, scores, gains, sizes)


def _answers(classifiers: Sequence[Classifier], rows: Rows) -> Targets:
    """Return the mean probabilities that classifiers give the labels of rows, or of tokens."""
    answers = [one.answers(rows) for one in classifiers]
    if rows.tokens is not None:
        return [np.mean(each, axis=0) for each in zip(*answers, strict=True)]
    mean: NDArray[np.float32] = np.mean(answers, axis=0)
    return mean


def _score(rows: Rows, given: Targets) -> float:
    """Return how well probabilities agree with the targets of rows, x 100."""
    flat = np.concatenate(given) if isinstance(given, list) else given
    return score_of(rows, flat - 0.5)  # above 0 is yes where a text has any number of classes


def _sampled(found: pa.Table, count: int, seed: int) -> pa.Table:
    """Draw some sentences; which ones, seed and text decide. They stay in their order."""
    order = np.argsort(random_keys(seed, "few-shot candidates", _keys(found)), kind="stable")
    return found.take(pa.array(np.sort(order[:count])))


def _keys(found: pa.Table) -> NDArray[np.uint64]:
    return text_hashes(found["text"].combine_chunks())
