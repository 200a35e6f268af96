"""Trains a rewriter: an encoder-decoder that reads two tags and a sentence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments

from tilth.data import fingerprint
from tilth.errors import InputError, TilthError
from tilth.models.device import choose_precision, free_memory
from tilth.models.length_sampler import LengthSampler
from tilth.models.seq2seq import load_seq2seq
from tilth.models.source import silence_transformers
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    CheckpointCallback,
    all_finite,
    complete_training,
    require_single_process,
    run_trainer,
    save_transformer,
    settings_of,
    training_arguments,
)
from tilth.paraphrase.settings import RewriterTraining
from tilth.paraphrase.tags import TAGS
from tilth.paraphrase.train_data import (
    COLUMNS,
    Collator,
    TrainingData,
    read_corpus,
    without_long,
)
from tilth.runs import RESULTS, Progress, Run, read_results, refuse_inside

if TYPE_CHECKING:
    from datasets import DatasetDict

    from tilth.models.seq2seq import Seq2Seq

LOSS = "eval_loss"
_FLOAT_BYTES = 4


def train_rewriter(
    corpus: str | Path | DatasetDict,
    base: str = "starter",
    out: str | Path | None = None,
    *,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> Seq2Seq:
    """Train a model to write the rewrite from `<SIM95> <BLEU0_5> sentence`.

    Tags that the vocabulary lacks are added to it. The validation loss is measured after every
    epoch; training stops after `patience` epochs without a lower one, and the best weights are
    kept. Pairs of similar lengths share a batch.

    Args:
        corpus: from `make_corpus`, or its place: splits train and validation with text_a, text_b
            and tags.
        base: an encoder-decoder: `starter`, a folder, or a hub id.
        out: the run folder; the same call resumes from the last checkpoint. The model lies in its
            `model`, which transformers loads.
        device: `auto`, `cpu`, `cuda` or `cuda:0`; one GPU.
        training: fields of `RewriterTraining`: max_epochs, patience, batch, rows, learning_rate,
            schedule, max_length, save_every, precision, seed.

    Returns:
        The best model, as `load_seq2seq` loads it.

    Raises:
        InputError: the corpus, the base or a setting is wrong, or `out` holds another run.
        TilthError: training diverged, memory is too small, or the folder cannot be written.

    Reference:
        Ogasa, Kajiwara and Arase, sections 3.3 and 4.2.
    """
    settings = settings_of(RewriterTraining, training).for_base(base)
    if out is None:
        raise InputError("no run folder is given: say with out where the model goes")
    require_single_process(device)
    named = [str(one) if isinstance(one, (str, Path)) else None for one in (corpus, base)]
    refuse_inside(Path(out), named[0], named=named[1:])
    train, validation = read_corpus(corpus)
    seq2seq = load_seq2seq(base, device=device, precision="float32")
    fingerprints = {
        "train": fingerprint(train, COLUMNS),
        "validation": fingerprint(validation, COLUMNS),
        "base": seq2seq.fingerprint,
    }
    pairs = {"train": len(train), "validation": len(validation)}
    choose_precision(settings.precision, seq2seq.device)  # refused before the folder is made
    add_tags(seq2seq, settings.seed)
    limit = min(seq2seq.positions, settings.max_length or seq2seq.positions)
    collator = Collator(seq2seq.tokenizer, limit)
    train, lengths = without_long(train, collator, limit, "training")
    validation, _ = without_long(validation, collator, limit, "validation")
    data = TrainingData(train, validation, lengths, collator)
    run = Run.open(
        out,
        command="paraphrase train",
        settings={"base": base, **asdict(settings)},
        fingerprints=fingerprints,
        parts=1,
        outputs=(MODEL, CHECKPOINTS, RESULTS),
        overwrite=overwrite,
    )

    def fit(folder: Path) -> pa.Table:
        rows = settings.rows or int(
            run.resolve("rows", lambda: rows_that_fit(seq2seq, data.longest(), settings.batch))
        )
        return _fit(seq2seq, data, settings, folder, rows=rows, quiet=quiet)

    with run:
        complete_training(
            run, fit, lambda folder: save_transformer(seq2seq.model, seq2seq.tokenizer, folder)
        )
        results = _results(run.read_part(0), base, pairs)
        if read_results(run.path) != results:
            run.write_file(RESULTS, json.dumps(results, indent=2) + "\n")
    return load_seq2seq(str(run.path), device=device)


def add_tags(seq2seq: Seq2Seq, seed: int) -> int:
    """Add the tags that the vocabulary lacks, and return their number.

    Embeddings of new tags start near the mean of the others. The published checkpoint has all tags.
    """
    model, tokenizer = seq2seq.model, seq2seq.tokenizer
    known = tokenizer.get_vocab()
    missing = [tag for tag in TAGS if tag not in known]
    if not missing:
        return 0
    tokenizer.add_special_tokens(
        {"extra_special_tokens": missing}, replace_extra_special_tokens=False
    )
    embeddings: Any = model.get_input_embeddings()
    if len(tokenizer) > embeddings.num_embeddings:
        with torch.random.fork_rng(devices=[]), silence_transformers():  # new embeddings are drawn
            torch.manual_seed(seed)
            model.resize_token_embeddings(len(tokenizer))
    return len(missing)


class _Trainer(Seq2SeqTrainer):
    """Trainer whose batches hold pairs of similar lengths."""

    def __init__(self, sampler: LengthSampler, **options: Any) -> None:
        super().__init__(**options)
        self._sampler = sampler

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthSampler:  # noqa: ARG002
        return self._sampler


def _fit(
    seq2seq: Seq2Seq,
    data: TrainingData,
    settings: RewriterTraining,
    folder: Path,
    *,
    rows: int,
    quiet: bool,
) -> pa.Table:
    """Train in place, with `rows` pairs in a forward pass, and return the learning curve."""
    assert settings.learning_rate is not None  # set by `for_base`
    epoch = -(-len(data.train) // settings.batch)  # optimizer steps
    arguments = training_arguments(
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
        bf16=choose_precision(settings.precision, seq2seq.device) is torch.bfloat16,
        eval_strategy="steps",
        eval_steps=epoch,
        save_strategy="steps",
        save_steps=settings.save_every,
        logging_strategy="no",  # `CheckpointCallback` decides when
        restore_callback_states_from_checkpoint=True,  # epochs without a lower loss
        metric_for_best_model=LOSS,
        greater_is_better=False,
        prediction_loss_only=True,
        remove_unused_columns=False,
    )
    steps = epoch * settings.max_epochs
    with silence_transformers(), Progress(steps, quiet=quiet, what="steps") as progress:
        trainer = _Trainer(
            LengthSampler(data.lengths.sum(axis=1), settings.batch, settings.seed),
            model=seq2seq.model,
            args=arguments,
            train_dataset=data.train,
            eval_dataset=data.validation,
            data_collator=data.collator,
            callbacks=[CheckpointCallback(progress), EarlyStoppingCallback(settings.patience)],
        )
        history = run_trainer(
            trainer,
            too_large=f"{rows} pairs at once do not fit into the memory of {seq2seq.device}: give "
            f"--rows {max(1, rows // 2)}, which takes a batch in more passes",
        )
    curve = learning_curve(history)
    if not all_finite(seq2seq.model) or not np.isfinite(curve["validation_loss"].to_numpy()).any():
        raise TilthError("training gave NaN or infinite weights: lower --learning-rate")
    return curve


def learning_curve(history: Sequence[dict[str, Any]]) -> pa.Table:
    """Return epoch, step, validation loss, and mean training loss of each epoch."""
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


def rows_that_fit(seq2seq: Seq2Seq, tokens: int, batch: int) -> int:
    """Return the pairs of a forward pass: the largest divisor of the batch that fits in memory.

    Memory is estimated, not measured.

    Args:
        tokens: of the longest text.
        batch: pairs in an optimizer step.
    """
    config: Any = seq2seq.model.config
    # Weights' gradients and AdamW's two averages come on top of the weights.
    free = free_memory(seq2seq.device) - 3 * _FLOAT_BYTES * sum(
        weight.numel() for weight in seq2seq.model.parameters()
    )
    layers = int(getattr(config, "num_hidden_layers", 6)) * 2
    width = int(getattr(config, "hidden_size", 768))
    heads = int(getattr(config, "num_attention_heads", 12))
    logits = 4 * len(seq2seq.tokenizer)  # and their softmax, gradients and float copy
    per_token = logits + layers * (40 * width + 4 * heads * tokens)
    most = max(1, int(free / 2) // (_FLOAT_BYTES * tokens * per_token))
    return max(rows for rows in range(1, batch + 1) if batch % rows == 0 and rows <= most)


def _results(curve: pa.Table, base: str, pairs: dict[str, int]) -> dict[str, Any]:
    losses = curve["validation_loss"].to_numpy()
    best = int(np.nanargmin(losses))
    return {
        "base": base,
        "pairs": pairs,
        "epochs": len(losses),
        "best": {
            "epoch": curve["epoch"][best].as_py(),
            "step": curve["step"][best].as_py(),
            "validation_loss": float(losses[best]),
        },
        "curve": curve.to_pydict(),
    }
