"""transformers' trainer, set up for a rewriter; the one file that knows its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments

from tilth.models.training import Follow, make_arguments
from tilth.paraphrase.pairs import LikeLengths

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.models.seq2seq import Seq2Seq
    from tilth.paraphrase.pairs import Collator
    from tilth.paraphrase.training import RewriterTraining
    from tilth.runs import Progress

LOSS = "eval_loss"


class _Trainer(Seq2SeqTrainer):
    """Takes batches of pairs of like lengths."""

    def __init__(self, sampler: LikeLengths, **options: Any) -> None:
        super().__init__(**options)
        self._sampler = sampler

    def _get_train_sampler(self, train_dataset: Any = None) -> LikeLengths:  # noqa: ARG002
        return self._sampler


def make_trainer(
    seq2seq: Seq2Seq,
    train: Dataset,
    validation: Dataset,
    lengths: np.ndarray[Any, np.dtype[np.int64]],
    collator: Collator,
    settings: RewriterTraining,
    folder: Path,
    *,
    rows: int,
    bfloat16: bool,
    progress: Progress,
) -> Seq2SeqTrainer:
    """Return a trainer of a rewriter.

    Args:
        seq2seq: its model is trained in place, on its device.
        train: pairs to learn from.
        validation: pairs to stop with.
        lengths: of the training pairs. # (pairs,)
        collator: makes tensors of pairs.
        settings: how.
        folder: for checkpoints.
        rows: pairs in a pass; divides the batch.
        bfloat16: whether passes run in bfloat16.
        progress: advanced by one each step.
    """
    assert settings.learning_rate is not None  # `for_base` has put one
    epoch = -(-len(train) // settings.batch)  # steps
    arguments = make_arguments(
        Seq2SeqTrainingArguments,
        folder,
        seq2seq.device,
        settings.seed,
        max_steps=epoch * settings.max_epochs,
        per_device_train_batch_size=rows,
        per_device_eval_batch_size=rows,
        gradient_accumulation_steps=settings.batch // rows,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        bf16=bfloat16,
        eval_strategy="steps",
        eval_steps=epoch,
        save_strategy="steps",
        save_steps=settings.save_every,
        logging_strategy="no",  # `Follow` says when
        restore_callback_states_from_checkpoint=True,  # epochs without a lower loss
        metric_for_best_model=LOSS,
        greater_is_better=False,
        prediction_loss_only=True,
        remove_unused_columns=False,
    )
    return _Trainer(
        LikeLengths(lengths, settings.batch, settings.seed),
        model=seq2seq.model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=collator,
        callbacks=[Follow(progress), EarlyStoppingCallback(settings.patience)],
    )


def learning_curve(history: Sequence[dict[str, Any]]) -> pa.Table:
    """Return epoch, step, loss on the validation pairs, and mean loss of the epoch's steps."""
    columns: dict[str, list[Any]] = {"epoch": [], "step": [], "validation_loss": [], "loss": []}
    before, total = 0, 0.0
    epoch_begun = 0
    for entry in history:
        if "loss" in entry:
            total += entry["loss"] * (entry["step"] - before)
            before = entry["step"]
        elif LOSS in entry:
            step = entry["step"]
            row = (len(columns["epoch"]) + 1, step, entry[LOSS], total / max(step - epoch_begun, 1))
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            epoch_begun, total = step, 0.0
    return pa.table(columns)
