"""A few-shot experiment at work: trainings, and the sentences that teachers label."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.keys import keyed, text_hashes
from tilth.models.classifier import Classifier, load_classifier, new_classifier
from tilth.selftrain.draws import highest
from tilth.selftrain.fewshot_plan import FINE_TUNED, FewShot, Job, SelfTraining
from tilth.selftrain.finetune import Curve, fit, score_of
from tilth.selftrain.labelled import as_lists
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.rows import Rows, Targets, joined
from tilth.selftrain.select import class_ratio, select
from tilth.selftrain.words import learn_words

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.runs import Run
    from tilth.selftrain.fewshot_task import Task
    from tilth.selftrain.settings import Finetuning

CHECKPOINTS = "checkpoints"
_MEASUREMENTS = 10  # of each training
_TEXT, _TOKENS, _PROBABILITIES, _SIMILARITY = "text", "tokens", "probabilities", "similarity"


@dataclass(frozen=True)
class Study:
    """A few-shot experiment at work."""

    run: Run
    jobs: list[Job]
    task: Task
    bank: Bank
    base: str
    settings: FewShot
    training: Finetuning
    systems: Mapping[str, SelfTraining]
    device: str
    _found: dict[tuple[int, str, int], pa.Table] = field(default_factory=dict)

    def do(self, job: Job) -> pa.Table:
        """Do a part."""
        return self._label(job) if job.seed is None else self._train(job)

    def _train(self, job: Job) -> pa.Table:
        """Train once; return its scores. Weights that may be a teacher's are saved before."""
        began = time.monotonic()
        rows = self._rows(job)
        classifier, curve = self._fit(job, rows)
        test = _score(self.task.test, _answers([classifier], self.task.test))
        if self._teachers_wanted(job):
            self._save(classifier, job)
        facts = {
            "validation": curve.best[1], "choice": curve.choice, "test": test, "rows": len(rows)
        }  # fmt: skip
        seconds = round(time.monotonic() - began, 2)
        return pa.Table.from_pylist([{**asdict(job), **facts, "seconds": seconds}])

    def _rows(self, job: Job) -> Rows:
        """Return what a training learns from: a draw, for students with what was labelled."""
        drawn = self.task.train.select(self.task.drawn(self.settings, job.draw))
        if job.system == FINE_TUNED:
            return drawn
        system = self.systems[job.system]
        table = self.run.read_part(self.jobs.index(replace(job, seed=None)))
        more = _rows_of(table, drawn)
        rows = joined(drawn, more if system.soft else more.hard())
        if system.weight == 1:
            return rows
        weights = np.repeat([system.weight, 1.0], [len(drawn), len(more)]).astype(np.float32)
        return replace(rows, weights=weights)

    def _fit(self, job: Job, rows: Rows) -> tuple[Classifier, Curve]:
        """Train; return the best weights, and how it went."""
        assert job.seed is not None  # a training has one
        training = replace(self.training, seed=self.training.seed + job.seed)
        epochs = None if job.system == FINE_TUNED else self.systems[job.system].epochs
        if epochs is not None:
            training = replace(training, epochs=epochs)
        if training.evaluate_every is None:
            every = max(1, training.steps(len(rows))[0] // _MEASUREMENTS)
            training = replace(training, evaluate_every=every)
        classifier = new_classifier(
            self.base, kind=rows.kind, labels=rows.labels, seed=training.seed,
            dropout=training.dropout, max_length=training.max_length, device=self.device,
        )  # fmt: skip
        return classifier, fit(classifier, rows, self.task.validation, training, quiet=True)

    def _label(self, job: Job) -> pa.Table:
        """Retrieve sentences for a draw, let its teachers label them, and choose among them."""
        system, places = self.systems[job.system], self.task.drawn(self.settings, job.draw)
        drawn = self.task.train.select(places)
        found = self._retrieve(job, places)
        if system.labelled is not None:
            found = _sampled(found, system.labelled * len(drawn), job.draw)
        texts = found[_TEXT].to_pylist()
        tokens = None
        if drawn.tokens is not None:
            words = learn_words(drawn.tokens)
            tokens = [words.cut(text) for text in texts]
        empty = Rows(drawn.kind, drawn.labels, [(text,) for text in texts], tokens, [])
        given = _answers(self._teachers(job), empty)
        chosen = select(
            given, kind=drawn.kind, labels=drawn.labels,
            ratio=class_ratio(drawn.targets, kind=drawn.kind, labels=drawn.labels),
            count=system.multiple * len(drawn), floor=system.floor, by=system.select,
            similarity=found[_SIMILARITY].to_numpy(), keys=_keys(found), seed=job.draw,
        ).kept  # fmt: skip
        table = found.take(pa.array(chosen))
        if tokens is not None:
            table = table.append_column(_TOKENS, pa.array([tokens[row] for row in chosen]))
        kept = [given[row] for row in chosen] if isinstance(given, list) else given[chosen]
        return table.append_column(_PROBABILITIES, as_lists(kept))

    def _retrieve(self, job: Job, places: NDArray[np.int64]) -> pa.Table:
        """Return the sentences of the bank that are nearest to a draw."""
        system, task = self.systems[job.system], self.task
        key = (job.draw, system.query, system.top)
        if key not in self._found:
            if any(draw != job.draw for draw, _, _ in self._found):
                self._found.clear()
            parts = {"test": task.test, "validation": task.validation}
            self._found[key] = retrieve(
                self.bank, task.examples.select(places.tolist()), kind=system.query,
                count=system.top * len(places),
                without={name: [text for (text,) in rows.texts] for name, rows in parts.items()},
            )  # fmt: skip
        return self._found[key]

    def _teachers(self, job: Job) -> list[Classifier]:
        """Return the classifiers that label for a round of a system."""
        before = replace(job, round=job.round - 1) if job.round else Job(job.draw, FINE_TUNED)
        group = [replace(before, seed=seed) for seed in range(self.settings.seeds)]
        scores = [row["choice"] for row in self.trainings(group)]
        best = highest(scores, self.systems[job.system].teachers)
        return [self._load(group[place]) for place in best]

    def trainings(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Return the scores of trainings that are done."""
        places = {job: place for place, job in enumerate(self.jobs)}
        return [
            self.run.read_part(places[job]).to_pylist()[0] for job in jobs if job.seed is not None
        ]

    def _teachers_wanted(self, job: Job) -> int:
        """Return how many trainings of a job's round teach another."""
        if job.system == FINE_TUNED:
            return max((system.teachers for system in self.systems.values()), default=0)
        system = self.systems[job.system]
        return system.teachers if job.round < system.rounds - 1 else 0

    def _folder(self, job: Job) -> Path:
        system = list(self.systems).index(job.system) if job.system in self.systems else "base"
        name = f"draw-{job.draw}-{system}-{job.round}-{job.seed}"
        return self.run.path / CHECKPOINTS / name

    def _save(self, classifier: Classifier, job: Job) -> None:
        unfinished = self.run.path / CHECKPOINTS / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        classifier.save(unfinished)
        shutil.rmtree(self._folder(job), ignore_errors=True)
        unfinished.rename(self._folder(job))

    def _load(self, job: Job) -> Classifier:
        """Return a trained classifier; one whose weights were removed is trained again."""
        if not (self._folder(job) / "config.json").is_file():
            self._save(self._fit(job, self._rows(job))[0], job)
        return load_classifier(str(self._folder(job)), device=self.device)

    def tidy(self, done: Job) -> None:
        """Remove weights that will not teach, after a part was written."""
        there = self.run.done()
        left = [job for place, job in enumerate(self.jobs) if place not in there]
        if all(job.draw != done.draw for job in left):
            for folder in (self.run.path / CHECKPOINTS).glob(f"draw-{done.draw}-*"):
                shutil.rmtree(folder, ignore_errors=True)
            return
        if done.seed is not None and (wanted := self._teachers_wanted(done)):
            group = [
                replace(done, seed=seed) for seed in range(self.settings.seeds)
                if replace(done, seed=seed) not in left
            ]  # fmt: skip
            scores = [row["choice"] for row in self.trainings(group)]
            for place in highest(scores, len(scores))[wanted:]:
                shutil.rmtree(self._folder(group[place]), ignore_errors=True)


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
    order = np.argsort(keyed(seed, "few-shot candidates", _keys(found)), kind="stable")
    return found.take(pa.array(np.sort(order[:count])))


def _keys(found: pa.Table) -> NDArray[np.uint64]:
    return text_hashes(found[_TEXT].combine_chunks())


def _rows_of(table: pa.Table, like: Rows) -> Rows:
    """Return labelled sentences as rows."""
    texts: list[tuple[str, ...]] = [(text,) for text in table[_TEXT].to_pylist()]
    lists = [np.array(row, np.float32) for row in table[_PROBABILITIES].to_pylist()]
    if like.tokens is not None:
        return Rows(like.kind, like.labels, texts, table[_TOKENS].to_pylist(), lists)
    targets = np.array(lists, np.float32).reshape(len(texts), len(like.labels))
    return Rows(like.kind, like.labels, texts, None, targets)
