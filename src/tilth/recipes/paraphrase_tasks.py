"""Labelled sets for training with rewrites: parts of a task, rewrites of rows, scores of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples, concatenate, labeled_examples
from tilth.classifiers.finetune import fine_tune, new_for
from tilth.classifiers.settings import Finetuning
from tilth.data.examples import Examples, read_examples
from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.evaluate.glue import TASKS, accuracy, glue_scores
from tilth.models.classifier import fingerprint_classifier, new_classifier
from tilth.paraphrase.settings import RewriteSettings
from tilth.recipes.paraphrase import PART
from tilth.runs import Run
from tilth.workflows.train_scorer import OUTPUT

if TYPE_CHECKING:
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.round_trip import RoundTripRewriter

# The metric of each GLUE task in the papers' tables; of other sets, accuracy or Pearson.
_METRICS = {"cola": "Matthews", "mrpc": "F1", "qqp": "F1", "stsb": "Pearson"}


@dataclass(frozen=True, slots=True)
class TaskParts:
    """A labelled set: rows to train on, rows that choose, rows to measure on.

    Attributes:
        held: never trained on; None: nothing is chosen.
    """

    name: str
    train: LabeledExamples
    held: LabeledExamples | None
    test: LabeledExamples

    @property
    def sets(self) -> dict[str, LabeledExamples]:
        """All rows, by the names of what they are for."""
        held = {} if self.held is None else {f"{self.name} held": self.held}
        return {self.name: self.train, **held, f"{self.name} test": self.test}

    @property
    def metric(self) -> str:
        """Name of the score."""
        graded = self.train.kind == "number"
        return _METRICS.get(self.name, "Pearson" if graded else "accuracy")

    @property
    def column(self) -> str:
        """Column of the papers' tables."""
        return TASKS[self.name].title if self.name in TASKS else self.name.upper()

    def score(self, answers: NDArray[np.float32], rows: LabeledExamples) -> float:
        """Return the metric x 100 of a model's answers to rows, (rows, labels)."""
        targets = np.asarray(rows.targets)
        if rows.kind == "number":
            return glue_scores(TASKS["stsb"], targets[:, 0], answers[:, 0])["Pearson"]
        gold, said = targets.argmax(axis=1), answers.argmax(axis=1)
        if self.name not in TASKS:
            return 100 * accuracy(gold, said)
        codes = np.array([TASKS[self.name].label_of(label) for label in rows.labels], float)
        if np.isnan(codes).any():
            raise InputError(f"{self.name}: its labels are {', '.join(rows.labels)}, not GLUE's")
        return glue_scores(TASKS[self.name], codes[gold], codes[said])[self.metric]


def rows_of(source: Path, like: LabeledExamples | None = None) -> LabeledExamples:
    """Read classes, or graded pairs with labels as shares of the highest one.

    Args:
        like: the rows whose labels these have.
    """
    examples = read_examples(source)
    found = examples.labels
    assert found is not None  # labels are required by default
    if like is not None and (found.kind == "number") != (like.kind == "number"):
        raise InputError(f"{source}: {found.kind} labels, the training part has {like.kind} labels")
    if found.kind in ("multi", "tags"):
        raise InputError(f"{source}: a task has one label a row, or a number: give such a set")
    if found.kind != "number":
        return labeled_examples(examples, like.labels if like else None)
    return _graded(examples, str(source))


def _graded(examples: Examples, where: str) -> LabeledExamples:
    assert examples.labels is not None
    values = np.array(examples.labels.values, np.float32)  # (rows,)
    if values.min() < 0 or values.max() == values.min():
        raise InputError(f"{where}: graded labels go from 0 up and differ: give such labels")
    shares = (values / values.max())[:, None]
    return LabeledExamples("number", [OUTPUT], examples.texts, None, shares)


def draw_rows(rows: LabeledExamples, size: int | None = None) -> LabeledExamples:
    """Return at most so many rows in a random order that a smaller draw begins with, too."""
    order = np.random.default_rng(0).permutation(len(rows))
    return rows.select(order[:size])


def without_texts_of(rows: LabeledExamples, measured: LabeledExamples) -> LabeledExamples:
    """Leave out the rows whose texts the measured part has, too, but for case and punctuation."""
    known = {tuple(map(normalize_text, texts)) for texts in measured.texts}
    kept = [
        row for row, texts in enumerate(rows.texts)
        if tuple(map(normalize_text, texts)) not in known
    ]  # fmt: skip
    return rows.select(np.array(kept, np.int64))


def asked(pair: tuple[int, int], beams: int) -> RewriteSettings:
    """Return the settings of rewrites at a meaning and a wording."""
    return RewriteSettings(*pair, beams=beams, part_size=PART)


def rewritten(
    rows: LabeledExamples,
    model: Rewriter | RoundTripRewriter,
    settings: RewriteSettings,
    folder: Path,
    *,
    quiet: bool,
) -> LabeledExamples:
    """Rewrite all texts of rows as a step; labels are kept, rows without a rewrite are left out.

    Reference:
        Ogasa, Kajiwara and Arase, section 6.2.
    """
    from datasets import Dataset

    from tilth.paraphrase.paraphrase_set import run_paraphrase

    names = ("text_a", "text_b")[: len(rows.texts[0])]
    sides = zip(*rows.texts, strict=True)
    source = Dataset.from_dict({name: list(side) for name, side in zip(names, sides, strict=True)})
    made = run_paraphrase(source, lambda: model, settings, folder, columns=names, quiet=quiet)
    found = rows.select(np.array(made["source_row"][:], np.int64))
    texts = zip(*(made[name][:] for name in names), strict=True)
    return replace(found, texts=list(texts))


def with_rewrites(rows: LabeledExamples, more: LabeledExamples | None) -> LabeledExamples:
    """Return rows and their rewrites, twice as many: as many rows again as rewrites are missing.

    So trainings with and without rewrites take as many steps.
    """
    if more is None:
        return concatenate(rows, rows)
    again = rows.select(np.arange(len(rows) - len(more)))
    return concatenate(concatenate(rows, more), again)


def score_of_training(
    task: TaskParts, rows: LabeledExamples, base: str, training: Mapping[str, Any], device: str
) -> dict[str, float]:
    """Train a base on rows; return its scores on a task's parts `held` (if any) and `test`.

    The last weights are taken: nothing is chosen by the rows that are measured.
    """
    settings = Finetuning(**training).for_base(base)
    model = new_for(rows, base, settings, device)
    fine_tune(model, rows, None, settings, quiet=True)
    measured = {"held": task.held, "test": task.test}
    return {
        part: task.score(model.answers(one), one)
        for part, one in measured.items() if one is not None
    }  # fmt: skip


def recorded_scores(
    folder: Path,
    settings: Mapping[str, Any],
    rows: Mapping[str, LabeledExamples],
    trainings: Sequence[Callable[[], dict[str, float]]],
) -> list[dict[str, float]]:
    """Run the missing trainings of a step and return the scores of all.

    Args:
        settings: decide the result, with the rows and the weights of their base; others start
            another run.
    """
    some = next(iter(rows.values()))
    base = new_classifier(str(settings["base"]), kind=some.kind, labels=some.labels, device="cpu")
    run = Run.open(
        folder,
        command="recipe train",
        settings=dict(settings),
        fingerprints={
            "weights of the base": fingerprint_classifier(base),
            **{name: some.fingerprint() for name, some in rows.items()},
        },
        parts=len(trainings),
    )
    with run:
        for number in run.missing():
            scores = trainings[number]()
            run.write_part(number, pa.table({key: [value] for key, value in scores.items()}))
        return [run.read_part(number).to_pylist()[0] for number in range(run.parts)]
