"""sentence-transformers' trainer, set up for pairs; the one file that knows its options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import (
    SentenceTransformerDataCollator,
)

from tilth.encoders.batches import LengthGrouped
from tilth.models.training import Follow, make_arguments

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.encoders.fitting import Aim
    from tilth.encoders.pairs import Pairs
    from tilth.encoders.settings import Training
    from tilth.runs import Progress

_VALIDATION_BATCH = 128
_LENGTHS = 8


class _Trainer(SentenceTransformerTrainer):
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Leave the model card alone: the run folder says how the model was made."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        """Save a checkpoint's model without a card, which would take longer than the model."""
        self.model.save_pretrained(str(output_dir or self.args.output_dir), create_model_card=False)


def make_trainer(
    encoder: SentenceTransformer,
    parts: Pairs,
    aim: Aim,
    settings: Training,
    folder: Path,
    *,
    bfloat16: bool,
    steps: int,
    progress: Progress,
) -> SentenceTransformerTrainer:
    """Return a trainer of an encoder.

    Args:
        encoder: trained in place, on its device.
        parts: what to train on and to choose with.
        aim: the loss, and what chooses.
        settings: how.
        folder: for checkpoints.
        bfloat16: whether passes run in bfloat16.
        steps: of the whole training.
        progress: advanced by one each step.
    """
    assert settings.learning_rate is not None  # `for_base` has put one
    arguments = make_arguments(
        SentenceTransformerTrainingArguments,
        folder,
        encoder.device,
        settings.seed,
        max_steps=steps,
        per_device_train_batch_size=settings.batch,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        bf16=bfloat16,
        batch_sampler=LengthGrouped,
        eval_strategy="steps",
        eval_steps=settings.evaluate_every,
        save_strategy="steps",
        save_steps=settings.evaluate_every,
        metric_for_best_model=f"eval_{aim.measure}",
        greater_is_better=True,
        logging_strategy="no",  # `Follow` says when
    )
    return _Trainer(
        model=encoder,
        args=arguments,
        train_dataset=parts.train,
        loss=aim.loss(encoder),
        data_collator=SentenceTransformerDataCollator(preprocess_fn=partial(_preprocess, encoder)),
        evaluator=aim.judge(parts.validation, batch=_VALIDATION_BATCH, bfloat16=bfloat16),
        callbacks=[Follow(progress)],
    )


def _preprocess(encoder: SentenceTransformer, texts: list[str], **options: Any) -> dict[str, Any]:
    """Tokenise texts; they are padded to one of few lengths.

    Processors compile a matrix product anew for each shape they meet, which takes longer than to
    compute it.
    """
    if (encoder.max_seq_length or 0) % _LENGTHS == 0:  # else padding would pass the limit
        options["processing_kwargs"] = {"text": {"pad_to_multiple_of": _LENGTHS}}
    features: dict[str, Any] = encoder.preprocess(texts, **options)
    return features


def learning_curve(history: list[dict[str, Any]], aim: Aim) -> dict[str, list[Any]]:
    """Return step, measure on the validation part, and mean loss up to each checkpoint."""
    losses = {entry["step"]: entry["loss"] for entry in history if "loss" in entry}
    found = {e["step"]: e[f"eval_{aim.measure}"] for e in history if f"eval_{aim.measure}" in e}
    steps = sorted(found)
    return {
        "step": steps,
        aim.column: [float(found[step]) for step in steps],
        "loss": [float(losses.get(step, torch.nan)) for step in steps],
    }
