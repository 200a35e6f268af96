"""Trains a classifier or tagger on rows, in place, and keeps its best weights."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tilth.classifiers.collate import EncodedRows, encode
from tilth.classifiers.logistic import begin_head
from tilth.classifiers.trainer import (
    CHOICE,
    LOSS,
    SCORE,
    Measure,
    answers,
    choice,
    divergence_of,
    loss_of,
    make_tuner,
    own_random,
    trained,
)
from tilth.errors import InputError, TilthError
from tilth.metrics import scores as metrics
from tilth.metrics.entity_spans import entity_types, span_counts
from tilth.models.device import choose_precision
from tilth.models.length_sampler import LengthBatchSampler
from tilth.models.source import silence_transformers
from tilth.models.trainer import all_finite
from tilth.runs import Progress

if TYPE_CHECKING:
    from tilth.classifiers.examples import Rows
    from tilth.classifiers.settings import Finetuning
    from tilth.models.classifier import Classifier

MEASURES = {"class": "accuracy", "multi": "macro F1", "tags": "span F1"}
_VALIDATION_BATCH = 64
# Of fewer validation rows chance would choose the weights, and early ones are worse than the last:
# benchmarks/augment_defaults.py. Seeds are chosen by few rows too: none is worse beforehand.
_ENOUGH = 100


@dataclass(frozen=True, slots=True)
class Curve:
    """How a training went, at each measurement.

    Attributes:
        step: from 1.
        loss: mean since the one before.
        score: on the validation rows, x 100; nan without any.
        validation_loss: there.
        kept: whether these weights are those that were kept.
    """

    step: list[int]
    loss: list[float]
    score: list[float]
    validation_loss: list[float]
    kept: list[bool]

    @property
    def best(self) -> tuple[int, float]:
        """The step whose weights were kept, and their score."""
        place = self.kept.index(True)
        return self.step[place], self.score[place]

    @property
    def choice(self) -> float:
        """What the best of several trainings has most of; nan without validation rows."""
        place = self.kept.index(True)
        return choice(self.score[place], self.validation_loss[place])

    def table(self) -> pa.Table:
        """Return it as columns."""
        return pa.table(
            {
                "step": self.step,
                "loss": self.loss,
                "score": self.score,
                "validation_loss": self.validation_loss,
                "kept": self.kept,
            }
        )


def fit(
    classifier: Classifier,
    train: Rows,
    validation: Rows | None,
    settings: Finetuning,
    folder: Path | None = None,
    *,
    quiet: bool = False,
) -> Curve:
    """Train a classifier in place.

    Now and then it is measured on the validation rows (accuracy, for several classes a row macro
    F1, for tags F1 over spans), and the best weights are kept; of equally good ones those with
    the lower loss. Of fewer than 100 rows the score is shown, and the last weights are kept.

    Args:
        classifier: what `new_classifier` or `load_classifier` gives.
        train: rows to learn from, with the classifier's labels.
        validation: rows to choose with; None or few: the last weights are kept.
        settings: how; what makes the classifier (dropout, max_length) is not read here.
        folder: for checkpoints: the same call goes on from the last. None: none are written.
        quiet: no progress.

    Raises:
        InputError: rows have other labels than the classifier, or no learning rate is set.
        TilthError: training gave no numbers, or memory is too small.
    """
    for rows in (train, validation):
        if rows is not None and (rows.kind, rows.labels) != (classifier.kind, classifier.labels):
            raise InputError(
                f"the rows are for {rows.kind} {', '.join(rows.labels)}, the model is for "
                f"{classifier.kind} {', '.join(classifier.labels)}: give it rows of its labels"
            )
    if settings.learning_rate is None:
        settings = settings.for_base(classifier.name)
    bfloat16 = choose_precision(settings.precision, classifier.device) is torch.bfloat16
    encoded = encode(classifier, train, bfloat16=bfloat16)
    if classifier.pools_mean:
        begin_head(classifier, encoded)
    measure, enough = None, False
    if validation is not None and len(validation):
        measure = _measure(classifier, validation, bfloat16=bfloat16)
        enough = len(validation) >= _ENOUGH
    if folder is not None:
        history = _train(
            classifier, encoded, measure, settings, folder, keep=True, choose=enough,
            bfloat16=bfloat16, quiet=quiet,
        )  # fmt: skip
    else:
        with tempfile.TemporaryDirectory(prefix="tilth-") as temporary:
            history = _train(
                classifier, encoded, measure, settings, Path(temporary), keep=False, choose=enough,
                bfloat16=bfloat16, quiet=quiet,
            )  # fmt: skip
    classifier.model.train(mode=False)
    curve = _curve(history)
    if not all_finite(classifier.model) or not np.isfinite(curve.loss).all():
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return curve


def _train(
    classifier: Classifier,
    train: EncodedRows,
    measure: Measure | None,
    settings: Finetuning,
    folder: Path,
    *,
    keep: bool,
    choose: bool,
    bfloat16: bool,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Train and return what was logged."""
    steps, every = settings.steps(len(train))
    # Of a run: one command may train a student, its baseline and a teacher, each of several seeds.
    what = f"steps of {folder.parent.parent.name}, {folder.name}" if keep else "steps"
    with (
        silence_transformers(),
        own_random(settings.seed),
        Progress(steps, quiet=quiet, what=what) as progress,
    ):
        tuner = make_tuner(
            classifier.model, train,
            LengthBatchSampler(train.ids.lengths, settings.batch, settings.seed),
            loss_of(classifier, settings, bfloat16=bfloat16), measure, settings, folder, keep=keep,
            choose=choose, steps=steps, every=every, progress=progress,
        )  # fmt: skip
        history = trained(tuner, settings.batch)
        tuner.restore_best()
    return history


def _measure(classifier: Classifier, rows: Rows, *, bfloat16: bool) -> Measure:
    """Return a function that measures a classifier on rows, which are tokenised once."""
    encoded = encode(classifier, rows, bfloat16=bfloat16)
    order = np.argsort(encoded.ids.lengths, kind="stable")
    batches = [
        encoded[order[start : start + _VALIDATION_BATCH].tolist()]
        for start in range(0, len(order), _VALIDATION_BATCH)
    ]
    gold = encoded.targets
    if encoded.words is not None:  # batches follow `order`, answers are wanted in that of rows
        starts = encoded.words.starts
        places = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in order])
    else:
        places = order
    model, device = classifier.model, classifier.device

    @torch.inference_mode()
    def measure() -> tuple[float, float]:
        model.train(mode=False)
        found = np.empty(gold.shape, np.float32)
        given = [
            answers(model, {key: value.to(device) for key, value in batch.items()},
                    bfloat16=bfloat16).cpu()
            for batch in batches
        ]  # fmt: skip
        found[places] = torch.cat(given).numpy()
        losses = divergence_of(classifier)(torch.from_numpy(found), torch.from_numpy(gold))
        return score_of(rows, found), float(losses.mean())

    return measure


def score_of(rows: Rows, outputs: NDArray[np.float32]) -> float:
    """Return how well outputs agree with the targets of rows, x 100.

    Args:
        rows: what should be answered.
        outputs: logits or their like: for `multi` above 0 is yes. # (rows or tokens, labels)
    """
    if isinstance(rows.targets, list):
        names = np.array(rows.labels)
        ends = np.cumsum([len(target) for target in rows.targets])[:-1]
        said = [names[some].tolist() for some in np.split(outputs.argmax(axis=1), ends)]
        true = [names[target.argmax(axis=1)].tolist() for target in rows.targets]
        counts = span_counts(true, said, entity_types([*true, *said]))
        return metrics.percent(metrics.micro_f1(metrics.Counts.of(counts.sum(axis=0)))) or 0.0
    if rows.kind == "multi":
        counts = metrics.label_counts(metrics.positive(rows.targets), outputs > 0)
        return metrics.percent(metrics.macro_f1(metrics.Counts.of(counts.sum(axis=0)))) or 0.0
    return 100 * float(np.mean(rows.targets.argmax(axis=1) == outputs.argmax(axis=1)))


def _curve(history: list[dict[str, Any]]) -> Curve:
    losses = {entry["step"]: float(entry["loss"]) for entry in history if "loss" in entry}
    steps = sorted(losses)
    columns = (
        losses,
        *(
            {entry["step"]: float(entry[name]) for entry in history if name in entry}
            for name in (SCORE, LOSS, CHOICE)
        ),
    )
    loss, score, validation_loss, chosen = (
        [column.get(step, math.nan) for step in steps] for column in columns
    )
    kept = int(np.nanargmax(chosen)) if np.isfinite(chosen).any() else len(steps) - 1
    return Curve(
        steps, loss, score, validation_loss, [place == kept for place in range(len(steps))]
    )
