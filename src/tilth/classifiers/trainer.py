"""Losses of soft labels, and transformers' trainer set up for them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, log_softmax
from torch.utils.data import Sampler
from transformers import Trainer, TrainingArguments

from tilth.classifiers.collate import TARGETS, WEIGHTS, WORD_STARTS, Batch
from tilth.models.trainer import CheckpointCallback, run_trainer, training_arguments

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from tilth.classifiers.settings import Finetuning
    from tilth.models.classifier import Classifier, Kind
    from tilth.runs import Progress

SCORE, LOSS, SELECTION = "eval_score", "eval_loss", "eval_choice"
Loss = Callable[["PreTrainedModel", Batch], torch.Tensor]
Measure = Callable[[], tuple[float, float]]


def divergence(logits: Tensor, targets: Tensor, kind: Kind) -> Tensor:
    """Return the divergence of predictions from target probabilities, in nats, (...).

    For `multi`: mean binary cross entropy of the labels. Else: Kullback-Leibler divergence of the
    prediction from the target, which for a target of one label is its cross entropy.

    Args:
        logits: # (..., labels)
        targets: # (..., labels)

    Reference:
        Du et al. 2021, section 2.2.
    """
    if kind == "multi":
        each = binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
        return each.mean(dim=-1)
    return kl_div(log_softmax(logits.float(), dim=-1), targets, reduction="none").sum(dim=-1)


def smooth_labels(targets: Tensor, share: float, kind: Kind) -> Tensor:
    """Spread a share of the targets evenly: over the labels, or for `multi` over yes and no."""
    if not share:
        return targets
    even = 0.5 if kind == "multi" else 1 / targets.shape[-1]
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
            found: torch.Tensor = model(**batch).loss
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


class SoftLabelTrainer(Trainer):
    """Train with a given loss, sampler and measure; optionally keep the best weights in memory.

    Without a run folder, weights in memory avoid checkpoints, which for small models take longer to
    write than the steps between.

    Args:
        measure: returns score and loss of the model; None: it is not measured.
        sampler: yields the batches of an epoch.
        in_memory: keep the best weights in memory; else checkpoints hold them.
        select_best: keep the weights with the best score; else the last.
        options: of `Trainer`.
    """

    def __init__(
        self,
        loss: Loss,
        measure: Measure | None,
        sampler: Sampler[Any],
        *,
        in_memory: bool,
        select_best: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._loss, self._measure, self._sampler = loss, measure, sampler
        self._in_memory, self._select_best = in_memory, select_best
        self._best: tuple[float, Batch] | None = None

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
        return self._loss(model, inputs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure, log score and loss, and keep the weights if they are the best."""
        assert self._measure is not None
        score, loss = self._measure()
        value = selection_score(score, loss) if self._select_best else float(self.state.global_step)
        metrics = {SCORE: score, LOSS: loss, SELECTION: value}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        if self._in_memory and (self._best is None or value > self._best[0]):
            assert self.model is not None
            weights = self.model.state_dict()
            copies = {name: one.detach().to("cpu", copy=True) for name, one in weights.items()}
            self._best = value, copies
        return metrics

    def fit(self, batch: int) -> list[dict[str, Any]]:
        """Train from the last checkpoint on, load the best weights, and return the log."""
        history = run_trainer(
            self,
            too_large=f"{batch} rows at once do not fit into memory: lower --batch or --max-length",
        )
        if self._best is not None:
            assert self.model is not None
            self.model.load_state_dict(self._best[1])
        return history


def make_trainer(
    model: PreTrainedModel,
    train: Sized,
    sampler: Sampler[Any],
    loss: Loss,
    settings: Any,
    folder: Path,
    *,
    steps: int,
    every: int,
    progress: Progress,
    measure: Measure | None = None,
    keep: bool = True,
    select_best: bool = False,
) -> SoftLabelTrainer:
    """Return a trainer of a model.

    Args:
        model: trained in place, on its device.
        train: data set whose items are batches.
        sampler: yields the keys of the batches, by epochs.
        settings: learning_rate, warmup, weight_decay and seed.
        steps: of the whole training.
        every: steps between measurements and checkpoints.
        progress: advanced by one each step.
        measure: returns score and loss of the model; None: the last weights are kept.
        keep: write checkpoints; else the best weights are kept in memory.
        select_best: keep the weights with the best score; else the last.
    """
    arguments = training_arguments(
        TrainingArguments,
        folder,
        model.device,
        settings.seed,
        max_steps=steps,
        per_device_train_batch_size=1,  # the sampler yields batches
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        eval_strategy="no" if measure is None else "steps",
        eval_steps=every,
        save_strategy="steps" if keep else "no",
        save_steps=every,
        metric_for_best_model=SELECTION,
        greater_is_better=True,
        logging_steps=every,
        logging_nan_inf_filter=False,  # reads every step's loss; a loss of NaN is reported
        remove_unused_columns=False,
    )
    return SoftLabelTrainer(
        loss,
        measure,
        sampler,
        in_memory=not keep,
        select_best=select_best,
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=train if measure is not None else None,  # `measure` has its own
        data_collator=lambda batches: batches[0],
        callbacks=[CheckpointCallback(progress)],
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all random generators, and restore their state afterwards."""
    python, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)
