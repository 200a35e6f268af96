"""Losses of soft labels, and transformers' trainer set up for them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, log_softmax
from torch.utils.data import Sampler
from transformers import Trainer, TrainingArguments

from tilth.classifiers.collate import TARGETS, WEIGHTS, WORD_STARTS, Batch
from tilth.errors import TilthError
from tilth.models.distributed import weighted
from tilth.models.pretrained import seeded, silence_transformers
from tilth.models.trainer import (
    CheckpointCallback,
    all_finite,
    run_trainer,
    training_arguments,
)
from tilth.runs import Progress

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from tilth.classifiers.settings import Adaptation, Finetuning
    from tilth.models.classifier import Classifier, Kind

SCORE, LOSS, SELECTION = "eval_score", "eval_loss", "eval_choice"
Loss = Callable[["PreTrainedModel", Batch], torch.Tensor]
Measure = Callable[[], tuple[float, float]]


def divergence(logits: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """Return the divergence of predictions from target probabilities, in nats, (...).

    For `multi` and `number`: mean binary cross entropy of the outputs. Else: Kullback-Leibler
    divergence of the prediction from the target, which for a target of one label is its cross
    entropy.

    Args:
        logits: # (..., labels)
        targets: # (..., labels)

    Reference:
        Du et al. 2020, section 2.2.
    """
    if kind in ("multi", "number"):
        each = binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
        return each.mean(dim=-1)
    return kl_div(log_softmax(logits.float(), dim=-1), targets, reduction="none").sum(dim=-1)


def smooth_labels(targets: Tensor, share: float, kind: Kind) -> Tensor:
    """Spread a share of the targets evenly: over the labels, or over 0 and 1 of each output."""
    if not share:
        return targets
    even = 0.5 if kind in ("multi", "number") else 1 / targets.shape[-1]
    return (1 - share) * targets + share * even


def soft_label_loss(classifier: Classifier, settings: Finetuning, *, bfloat16: bool) -> Loss:
    """Return the loss of a classifier: the weighted mean divergence from the targets of a batch."""

    def loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        targets = smooth_labels(batch[TARGETS], settings.label_smoothing, classifier.kind)
        logits = logits_of(model, batch, bfloat16=bfloat16)
        losses = divergence(logits, targets, classifier.kind)
        # Weights are 1 on average in the whole set.
        return (losses * batch[WEIGHTS]).mean() if WEIGHTS in batch else losses.mean()

    return loss


def masked_lm_loss(*, bfloat16: bool) -> Loss:
    """Return the loss of a masked language model: the cross entropy of the masked tokens."""

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        with _autocast(model, bfloat16=bfloat16):
            made = model(**batch)
        if not (batch["labels"] >= 0).any():  # texts of unknown tokens alone: the mean of none
            found: torch.Tensor = made.logits.sum() * 0.0
        else:
            found = made.loss
        return found

    return loss


def logits_of(model: Any, batch: Batch, *, bfloat16: bool) -> torch.Tensor:
    """Return a model's logits for the rows of a batch, or for their words, (answers, labels).

    Args:
        batch: of an `EncodedRows`, on the model's device.
    """
    with _autocast(model, bfloat16=bfloat16):
        logits: torch.Tensor = model(**model_inputs(batch)).logits.float()
    if WORD_STARTS in batch:
        logits = logits.flatten(0, 1)[batch[WORD_STARTS]]  # (words, labels)
    return logits


def model_inputs(batch: Batch) -> Batch:
    """Return the tensors of a batch that a transformers model takes."""
    others = (TARGETS, WEIGHTS, WORD_STARTS)
    return {key: value for key, value in batch.items() if key not in others}


def _autocast(model: Any, *, bfloat16: bool) -> Any:
    return torch.autocast(model.device.type, torch.bfloat16) if bfloat16 else nullcontext()


def selection_score(score: float, loss: float) -> float:
    """Return the model-selection score: ties are broken by validation loss."""
    return score - 1e-6 * loss / (1 + loss) if math.isfinite(loss) else -math.inf


@dataclass(frozen=True, slots=True)
class Schedule:
    """Length of a training, and its measurements.

    Attributes:
        steps: of the whole training.
        every: steps between measurements and checkpoints.
        measure: returns score and loss of the model; None: it is not measured.
        select_best: keep the weights with the best score; else the last.
        what: name of the steps in the progress bar.
    """

    steps: int
    every: int
    measure: Measure | None = None
    select_best: bool = False
    what: str = "steps"


class SoftLabelTrainer(Trainer):
    """Train with a given loss, sampler and schedule; optionally keep the best weights in memory.

    Without a run folder, weights in memory avoid checkpoints, which for small models take longer to
    write than the steps between.
    """

    def __init__(
        self, loss: Loss, sampler: Sampler[Any], schedule: Schedule, *, in_memory: bool,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self._loss, self._sampler, self._schedule = loss, sampler, schedule
        self._in_memory = in_memory
        self.best: tuple[float, Batch] | None = None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:  # noqa: ARG002
        return self._sampler

    def compute_loss(
        self,
        model: Any,
        inputs: Batch,
        return_outputs: bool = False,  # noqa: ARG002 - as transformers calls it
        num_items_in_batch: Any = None,  # noqa: ARG002
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = self._loss(model, inputs)
        return weighted(loss, len(inputs[TARGETS])) if TARGETS in inputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure, log score and loss, and keep the weights if they are the best."""
        assert self._schedule.measure is not None
        assert self.model is not None
        score, loss = self._schedule.measure()
        step = float(self.state.global_step)
        value = selection_score(score, loss) if self._schedule.select_best else step
        metrics = {SCORE: score, LOSS: loss, SELECTION: value}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        if self._in_memory and (self.best is None or value > self.best[0]):
            weights = self.model.state_dict()
            copies = {name: one.detach().to("cpu", copy=True) for name, one in weights.items()}
            self.best = value, copies
        return metrics


def train_model(
    model: PreTrainedModel,
    rows: Sized,
    sampler: Sampler[Any],
    loss: Loss,
    settings: Finetuning | Adaptation,
    schedule: Schedule,
    folder: Path | None,
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    """Train a model in place, load its best weights, and return the trainer's log.

    Args:
        rows: data set whose items are batches.
        sampler: yields the keys of the batches, by epochs.
        folder: for checkpoints, from which the same call resumes. None: the best weights are kept
            in memory.
    """
    assert settings.learning_rate is not None  # set by `for_base`
    temporary = tempfile.TemporaryDirectory(prefix="tilth-") if folder is None else nullcontext()
    with (
        temporary as unused,
        silence_transformers(),
        seeded(settings.seed),
        Progress(schedule.steps, quiet=quiet, what=schedule.what) as progress,
    ):
        arguments = training_arguments(
            TrainingArguments,
            folder or Path(str(unused)),
            model.device,
            settings.seed,
            max_steps=schedule.steps,
            per_device_train_batch_size=1,  # the sampler yields batches
            learning_rate=settings.learning_rate,
            warmup_steps=settings.warmup,
            weight_decay=settings.weight_decay,
            eval_strategy="no" if schedule.measure is None else "steps",
            eval_steps=schedule.every,
            save_strategy="no" if folder is None else "steps",
            save_steps=schedule.every,
            metric_for_best_model=SELECTION,
            greater_is_better=True,
            logging_steps=schedule.every,
            logging_nan_inf_filter=False,  # reads every step's loss; a loss of NaN is reported
            remove_unused_columns=False,
        )
        trainer = SoftLabelTrainer(
            loss,
            sampler,
            schedule,
            in_memory=folder is None,
            model=model,
            args=arguments,
            train_dataset=rows,
            eval_dataset=None if schedule.measure is None else rows,  # `measure` has its own
            data_collator=lambda batches: batches[0],
            callbacks=[CheckpointCallback(progress)],
        )
        size = f"{settings.batch} rows at once"
        history = run_trainer(
            trainer, too_large=f"{size} do not fit into memory: lower --batch or --max-length"
        )
        if trainer.best is not None:
            model.load_state_dict(trainer.best[1])
    model.train(mode=False)
    losses = [entry["loss"] for entry in history if "loss" in entry]
    if not all_finite(model) or not np.isfinite(losses).all():
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return history
