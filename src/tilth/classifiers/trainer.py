"""transformers' trainer, set up for classifiers; the one file that knows its options."""

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

from tilth.classifiers.collate import PLACES, TARGETS, WEIGHTS, Batch
from tilth.models.trainer import CheckpointCallback, run_trainer, training_arguments

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from tilth.classifiers.settings import Finetuning
    from tilth.models.classifier import Classifier, Kind
    from tilth.runs import Progress


def divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the model from the targets, in nats.

    For targets of one label it is the cross entropy.

    Args:
        logits: outputs. # (..., labels)
        targets: probabilities that add up to 1. # (..., labels)

    Reference:
        Du et al. 2021, section 2.2.
    """
    each = kl_div(log_softmax(logits.float(), dim=-1), targets, reduction="none")
    return each.sum(dim=-1)  # (...)


def binary_divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of labels that are drawn each by itself, in nats.

    Args:
        logits: outputs. # (..., labels)
        targets: the probability of each label. # (..., labels)
    """
    each = binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
    return each.mean(dim=-1)  # (...)


def smoothed(targets: Tensor, share: float, kind: Kind) -> Tensor:
    """Return targets of which a share is spread evenly: over the labels, or over yes and no."""
    if not share:
        return targets
    even = 0.5 if kind == "multi" else 1 / targets.shape[-1]
    return (1 - share) * targets + share * even


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of some losses times their weights, which are 1 on average in the set."""
    if weights is None:
        return losses.mean()
    return (losses * weights).mean()


SCORE, LOSS, CHOICE = "eval_score", "eval_loss", "eval_choice"
Measure = Callable[[], tuple[float, float]]


def choice(score: float, loss: float) -> float:
    """Return what the best weights have most of: the score; of equal scores the lower loss."""
    return score - 1e-6 * loss / (1 + loss) if math.isfinite(loss) else -math.inf


class Tuner(Trainer):
    """Learns probabilities, measures by a function, and may keep the best weights in memory.

    Args:
        loss: of a model and a batch.
        measure: gives score and loss of the model as it is; None: it is not measured.
        sampler: gives the batches of an epoch.
        in_memory: keep the best weights in memory; else the checkpoints hold them.
        choose: whether the best weights are those that score best; else the last.
        options: of `Trainer`.
    """

    def __init__(
        self,
        loss: Callable[[PreTrainedModel, Batch], torch.Tensor],
        measure: Measure | None,
        sampler: Sampler[Any],
        *,
        in_memory: bool,
        choose: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._loss, self._measure, self._sampler = loss, measure, sampler
        self._in_memory, self._choose = in_memory, choose
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
        """Measure, log score and loss, and remember the weights if they are the best."""
        assert self._measure is not None
        score, loss = self._measure()
        chosen = choice(score, loss) if self._choose else float(self.state.global_step)
        metrics = {SCORE: score, LOSS: loss, CHOICE: chosen}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        if self._in_memory and (self._best is None or metrics[CHOICE] > self._best[0]):
            weights = self._model().state_dict()
            self._best = (
                metrics[CHOICE],
                {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()},
            )
        return metrics

    def _model(self) -> torch.nn.Module:
        assert self.model is not None
        return self.model

    def restore_best(self) -> None:
        """Load the best weights from memory, where there are any."""
        if self._best is not None:
            self._model().load_state_dict(self._best[1])


def make_tuner(
    model: PreTrainedModel,
    train: Sized,
    sampler: Sampler[Any],
    loss: Callable[[PreTrainedModel, Batch], torch.Tensor],
    measure: Measure | None,
    settings: Any,
    folder: Path,
    *,
    keep: bool,
    steps: int,
    every: int,
    progress: Progress,
    choose: bool = False,
) -> Tuner:
    """Return a trainer of a model.

    Args:
        model: trained in place, on its device.
        train: what to train on: gives the batch of what the sampler yields.
        sampler: yields what is asked for of each batch, by epochs.
        loss: of a model and a batch.
        measure: gives score and loss of the model as it is; None: the last weights are kept.
        settings: learning_rate, warmup, weight_decay and seed.
        folder: for checkpoints.
        keep: write checkpoints; else the best weights are kept in memory.
        steps: of the whole training.
        every: steps between two measurements and checkpoints.
        progress: advanced by one each step.
        choose: whether the best weights are those that score best; else the last.
    """
    strategy = "steps" if measure is not None else "no"
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
        eval_strategy=strategy,
        eval_steps=every,
        save_strategy="steps" if keep else "no",
        save_steps=every,
        metric_for_best_model=CHOICE,
        greater_is_better=True,
        logging_steps=every,
        logging_nan_inf_filter=False,  # looks at every step's loss; what is no number is reported
        remove_unused_columns=False,
    )
    return Tuner(
        loss,
        measure,
        sampler,
        in_memory=not keep,
        choose=choose,
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=train if measure is not None else None,  # `measure` knows its own
        data_collator=_only,
        callbacks=[CheckpointCallback(progress)],
    )


def _only(batches: list[Batch]) -> Batch:
    return batches[0]


def trained(tuner: Tuner, batch: int) -> list[dict[str, Any]]:
    """Train, from the last checkpoint on, to the end; return what was logged.

    Raises:
        TilthError: memory is too small.
    """
    return run_trainer(
        tuner,
        too_large=f"{batch} rows at once do not fit into memory: lower --batch or --max-length",
    )


def loss_of(
    classifier: Classifier, settings: Finetuning, *, bfloat16: bool
) -> Callable[[PreTrainedModel, Batch], torch.Tensor]:
    """Return the loss of a classifier: how far its outputs are from the targets of a batch."""
    each = divergence_of(classifier)

    def loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
        targets = smoothed(batch[TARGETS], settings.label_smoothing, classifier.kind)
        return weighted_mean(
            each(answers(model, batch, bfloat16=bfloat16), targets), batch.get(WEIGHTS)
        )

    return loss


def divergence_of(classifier: Classifier) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return what a classifier's outputs are compared with targets by."""
    return binary_divergence if classifier.kind == "multi" else divergence


def answers(model: Any, batch: Batch, *, bfloat16: bool) -> torch.Tensor:
    """Return a model's outputs for the rows of a batch, or for their words.

    Args:
        model: plain transformers.
        batch: what an `EncodedRows` gives, on the model's device.
        bfloat16: whether the pass runs in bfloat16.
    """
    inputs = {key: value for key, value in batch.items() if key not in (TARGETS, WEIGHTS, PLACES)}
    cast = torch.autocast(model.device.type, torch.bfloat16) if bfloat16 else nullcontext()
    with cast:
        logits: torch.Tensor = model(**inputs).logits.float()
    if PLACES in batch:
        logits = logits.flatten(0, 1)[batch[PLACES]]  # (words, labels)
    return logits


def loss_of_masked(*, bfloat16: bool) -> Callable[[PreTrainedModel, Batch], torch.Tensor]:
    """Return the loss of a masked language model: the cross entropy of what is hidden."""

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        cast = torch.autocast(model.device.type, torch.bfloat16) if bfloat16 else nullcontext()
        with cast:
            found: torch.Tensor = model(**batch).loss
        return found

    return loss


@contextmanager
def own_random(seed: int) -> Iterator[None]:
    """Draw from generators with a seed, and leave the process's as they were."""
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
