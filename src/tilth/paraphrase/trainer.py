"""transformers' trainer, set up for a rewriter; the one file that knows its options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from transformers import (
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerState,
)

from tilth.models.training import CountSteps, go_on, load_best, state_of
from tilth.paraphrase.pairs import LikeLengths

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerControl, TrainingArguments

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


class _Follow(CountSteps):
    """Shows progress, saves now and then, and stops when the loss no longer falls.

    What it knows it reads from the log, which each checkpoint holds: so a training that was
    stopped stops where an undisturbed one does.
    """

    def __init__(self, progress: Progress, patience: int, save_every: int) -> None:
        super().__init__(progress)
        self._patience, self._save_every = patience, save_every

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: Any
    ) -> None:
        """Count a step, save after some."""
        super().on_step_end(args, state, control, **more)
        if state.global_step % self._save_every == 0:
            control.should_save = control.should_log = True

    def on_evaluate(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Stop when enough epochs have brought nothing."""
        if is_over(state.log_history, self._patience):
            control.should_training_stop = True


def is_over(history: Sequence[dict[str, Any]], patience: int) -> bool:
    """Tell whether so many epochs in a row have not lowered the best loss."""
    losses = [entry[LOSS] for entry in history if LOSS in entry]
    return bool(losses) and len(losses) - 1 - int(np.argmin(losses)) >= patience


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
    """Return a trainer that leaves the best checkpoint's weights in the model.

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
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=settings.max_epochs,
        per_device_train_batch_size=rows,
        per_device_eval_batch_size=rows,
        gradient_accumulation_steps=settings.batch // rows,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        bf16=bfloat16,
        use_cpu=seq2seq.device.type == "cpu",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,  # the best one stays beside the last
        load_best_model_at_end=True,
        metric_for_best_model=LOSS,
        greater_is_better=False,
        prediction_loss_only=True,
        remove_unused_columns=False,
        dataloader_pin_memory=seq2seq.device.type == "cuda",
        seed=settings.seed,
        data_seed=settings.seed,
        report_to="none",
        disable_tqdm=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # else a batch would be one for each GPU
    trainer = _Trainer(
        LikeLengths(lengths, settings.batch, settings.seed),
        model=seq2seq.model,
        args=arguments,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=collator,
        callbacks=[_Follow(progress, settings.patience, settings.save_every)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def resume(
    trainer: Seq2SeqTrainer, checkpoint: Path, steps: int, patience: int
) -> list[dict[str, Any]]:
    """Train from a checkpoint on; where training was over, only the best is loaded."""
    state = state_of(checkpoint)
    if state.global_step < steps and not is_over(state.log_history, patience):
        return go_on(trainer, checkpoint)
    return load_best(trainer, checkpoint)


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
