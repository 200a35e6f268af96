"""Fine-tunes a classifier or tagger in place, and keeps its best weights."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from tilth.classifiers.collate import encode
from tilth.classifiers.logistic import begin_head
from tilth.classifiers.settings import ENOUGH
from tilth.classifiers.trainer import (
    LOSS,
    SCORE,
    SELECTION,
    Measure,
    Schedule,
    divergence,
    logits_of,
    selection_score,
    soft_label_loss,
    train_model,
)
from tilth.data.tokenize import learn_tokenizer
from tilth.errors import InputError
from tilth.metrics import scores as metrics
from tilth.metrics.correlation import pearson
from tilth.metrics.scores import entity_types, span_counts
from tilth.models.classifier import Classifier, new_classifier
from tilth.models.device import choose_precision
from tilth.models.distributed import in_every_process
from tilth.models.trainer import LengthBatchSampler

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.classifiers.settings import Finetuning

MEASURES = {
    "class": "accuracy", "multi": "macro F1", "tags": "span F1", "number": "Pearson correlation",
}  # fmt: skip
_VALIDATION_BATCH = 64


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """Record losses and scores at each measurement.

    Attributes:
        step: from 1.
        loss: mean training loss since the last measurement.
        score: on the validation rows, x 100; nan without any.
        kept: whether these weights were kept.
    """

    step: list[int]
    loss: list[float]
    score: list[float]
    validation_loss: list[float]
    kept: list[bool]

    @classmethod
    def of(cls, history: list[dict[str, Any]]) -> TrainingCurve:
        """Read a trainer's log."""

        def column(name: str) -> list[float]:
            found = {entry["step"]: float(entry[name]) for entry in history if name in entry}
            return [found.get(step, math.nan) for step in steps]

        steps = sorted({entry["step"] for entry in history if "loss" in entry})
        selection = column(SELECTION)
        kept = int(np.nanargmax(selection)) if np.isfinite(selection).any() else len(steps) - 1
        are_kept = [place == kept for place in range(len(steps))]
        return cls(steps, column("loss"), column(SCORE), column(LOSS), are_kept)

    @property
    def best(self) -> tuple[int, float]:
        """Step and score of the kept weights."""
        place = self.kept.index(True)
        return self.step[place], self.score[place]

    @property
    def selection_score(self) -> float:
        """What is compared between several trainings; -inf without validation rows."""
        place = self.kept.index(True)
        return selection_score(self.score[place], self.validation_loss[place])

    def table(self) -> pa.Table:
        """Return it as columns."""
        return pa.table(asdict(self))


def new_for(
    rows: LabeledExamples, base: str, settings: Finetuning, device: str = "auto"
) -> Classifier:
    """Return a base with a new head for the labels of rows, to be fine-tuned."""
    return new_classifier(
        base, kind=rows.kind, labels=rows.labels, seed=settings.seed, dropout=settings.dropout,
        max_length=settings.max_length, device=device,
    )  # fmt: skip


@in_every_process
def fine_tune(
    classifier: Classifier,
    train: LabeledExamples,
    validation: LabeledExamples | None,
    settings: Finetuning,
    folder: Path | None = None,
    *,
    quiet: bool = False,
) -> TrainingCurve:
    """Fine-tune a classifier in place.

    The weights with the best validation score (`MEASURES`) are kept, ties going to the lower loss.
    With fewer than 100 validation rows the score is only logged, and the last weights are kept.

    Args:
        settings: dropout and max_length are not read: the classifier has its own.
        folder: for checkpoints, from which the same call resumes. None: none are written.
    """
    for rows in (train, validation):
        if rows is not None and (rows.kind, rows.labels) != (classifier.kind, classifier.labels):
            raise InputError(
                f"the rows are for {rows.kind} {', '.join(rows.labels)}, the model is for "
                f"{classifier.kind} {', '.join(classifier.labels)}: give it rows of its labels"
            )
    if len(train):
        classifier.note_texts(len(train.texts[0]))
        if train.tokens is not None:
            classifier.note_words(asdict(learn_tokenizer(train.tokens)))
    settings = settings.for_base(classifier.name)
    bfloat16 = choose_precision(settings.precision, classifier.device) is torch.bfloat16
    encoded = encode(classifier, train, bfloat16=bfloat16)
    if classifier.reads_embedding and classifier.kind != "number":
        begin_head(classifier, encoded)
    measure, select_best = None, False
    if validation is not None and len(validation):
        measure = _measure(classifier, validation, bfloat16=bfloat16)
        select_best = len(validation) >= ENOUGH
    # One command may train a student, its baseline and a teacher, each with several seeds.
    what = "steps" if folder is None else f"steps of {folder.parent.parent.name}, {folder.name}"
    history = train_model(
        classifier.model, encoded,
        LengthBatchSampler(encoded.ids.lengths, settings.batch, settings.seed),
        soft_label_loss(classifier, settings, bfloat16=bfloat16), settings,
        Schedule(*settings.steps(len(encoded)), measure, select_best, what), folder, quiet=quiet,
    )  # fmt: skip
    return TrainingCurve.of(history)


def _measure(classifier: Classifier, rows: LabeledExamples, *, bfloat16: bool) -> Measure:
    """Return a function that measures a classifier on rows, which are tokenised once."""
    encoded = encode(classifier, rows, bfloat16=bfloat16)
    order = np.argsort(encoded.ids.lengths, kind="stable")
    batches = [
        encoded[order[start : start + _VALIDATION_BATCH].tolist()]
        for start in range(0, len(order), _VALIDATION_BATCH)
    ]
    places = encoded.answers_of(order.tolist())
    model, device = classifier.model, classifier.device

    @torch.inference_mode()
    def measure() -> tuple[float, float]:
        model.train(mode=False)
        logits = np.empty(encoded.targets.shape, np.float32)
        found = [
            logits_of(model, {key: value.to(device) for key, value in batch.items()},
                      bfloat16=bfloat16).cpu()
            for batch in batches
        ]  # fmt: skip
        logits[places] = torch.cat(found).numpy()
        losses = divergence(
            torch.from_numpy(logits), torch.from_numpy(encoded.targets), classifier.kind
        )
        return score(rows, logits), float(losses.mean())

    return measure


def score(rows: LabeledExamples, outputs: NDArray[np.float32]) -> float:
    """Return the score of `MEASURES` for the rows' kind, x 100.

    Args:
        outputs: logits, or other values where above 0 means yes (`multi`). # (rows or tokens,
        labels)
    """
    if isinstance(rows.targets, list):
        names = np.array(rows.labels)
        ends = np.cumsum([len(target) for target in rows.targets])[:-1]
        said = [names[some].tolist() for some in np.split(outputs.argmax(axis=1), ends)]
        true = [names[target.argmax(axis=1)].tolist() for target in rows.targets]
        counts = span_counts(true, said, entity_types([*true, *said]))
        return metrics.times_100(metrics.micro_f1(metrics.Counts.of(counts.sum(axis=0)))) or 0.0
    if rows.kind == "multi":
        counts = metrics.label_counts(metrics.positive(rows.targets), outputs > 0)
        return metrics.times_100(metrics.macro_f1(metrics.Counts.of(counts.sum(axis=0)))) or 0.0
    if rows.kind == "number":
        similarity = 1 / (1 + np.exp(-outputs[:, 0].astype(np.float64)))  # (rows,)
        found = pearson(rows.targets[:, 0].astype(np.float64), similarity)
        return 100 * float(np.nan_to_num(found))
    return 100 * float(np.mean(rows.targets.argmax(axis=1) == outputs.argmax(axis=1)))
