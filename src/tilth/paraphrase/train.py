"""Trains a rewriter, an encoder-decoder that reads two tags and a sentence, on its corpus."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from tilth.data import fingerprint, read_rows
from tilth.errors import InputError, TilthError
from tilth.limits import settings_of
from tilth.models.device import choose_precision, free_memory
from tilth.models.lm import load_seq2seq
from tilth.models.names import name_of
from tilth.models.pretrained import save_transformer, silence_transformers
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    CheckpointCallback,
    LengthSampler,
    all_finite,
    check_processes,
    complete_training,
    run_trainer,
    training_arguments,
)
from tilth.paraphrase.candidates import TAG_COLUMN, TEXT_A, TEXT_B
from tilth.paraphrase.settings import RewriterTraining
from tilth.paraphrase.tags import CELLS, TAGS
from tilth.runs import RESULTS, Progress, Run, read_results, refuse_inside
from tilth.storage import as_path

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from tilth.models.lm import Seq2Seq

log = logging.getLogger(__name__)

TRAIN, VALIDATION = "train", "validation"
COLUMNS = (TEXT_A, TEXT_B, TAG_COLUMN)
_MULTIPLE = 8  # of padded lengths: few shapes run faster
_TEXTS_AT_ONCE = 1_000
_AROUND = 8  # tokens beside the text: tags, begin and end
_LONGEST = 64
_IGNORED = -100  # label of padding
LOSS = "eval_loss"
_FLOAT_BYTES = 4


def read_corpus(source: str | Path | DatasetDict) -> tuple[Dataset, Dataset]:
    """Read and check the training and validation pairs of a rewriter's corpus.

    Args:
        source: a run of `tilth paraphrase corpus`, another data set with splits train and
            validation and columns text_a, text_b and tags, or its splits.
    """
    parts = []
    for split in (TRAIN, VALIDATION):
        where = f"{source}: split {split!r}" if isinstance(source, (str, Path)) else split
        hint = ""
        if split == VALIDATION:
            hint = "; its loss says when to stop: make the corpus of more candidates"
        try:
            rows = _split(source, split)
        except InputError as error:
            raise InputError(f"{error}{hint}") from error
        if not len(rows):
            raise InputError(f"{where} holds no pairs{hint}")
        parts.append(_checked(rows, where))
    return parts[0], parts[1]


def _split(source: str | Path | DatasetDict, split: str) -> Dataset:
    if isinstance(source, (str, Path)):
        return read_rows(source, split=split)
    if not isinstance(source, dict):
        raise InputError(f"the corpus is {type(source).__name__}: give splits train and validation")
    if split not in source:
        raise InputError(f"no split {split!r} among {', '.join(source)}")
    return source[split]


def _checked(rows: Dataset, where: str) -> Dataset:
    for column in COLUMNS:
        if column not in rows.column_names:
            raise InputError(
                f"{where}: no column {column!r} among {', '.join(rows.column_names)}: give what "
                "`tilth paraphrase corpus` makes"
            )
    rows = rows.select_columns(list(COLUMNS))
    known = {cell.tags for cell in CELLS}
    wrong = [tags for tags in rows.unique(TAG_COLUMN) if tags not in known]
    if wrong:
        raise InputError(f"{where}: tags {wrong[0]!r} are unknown: they look like {CELLS[-1].tags}")
    table = rows.with_format("arrow")[:]
    full = np.ones(len(rows), np.bool_)
    for column in (TEXT_A, TEXT_B):
        texts = pc.utf8_trim_whitespace(pc.fill_null(table[column].cast(pa.large_string()), ""))
        full &= pc.not_equal(texts, "").to_numpy()
    if not full.any():
        raise InputError(f"{where}: every pair has an empty text")
    if not full.all():
        log.warning("%s: %d pairs with an empty text are left out", where, int((~full).sum()))
        rows = rows.select(np.flatnonzero(full))
    return rows


class Collator:
    """Makes batches: `<SIM95> <BLEU0_5> source` as input, the rewrite as labels.

    Args:
        tokenizer: with the tags in its vocabulary.
        limit: maximum tokens of a text, tags included.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:
        self._tokenizer = tokenizer
        # Beyond the limit there are no positions.
        multiple = _MULTIPLE if limit % _MULTIPLE == 0 else 1
        self._pad = DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=multiple)

    def __call__(self, pairs: Sequence[dict[str, str]]) -> dict[str, torch.Tensor]:
        """Return input_ids and attention_mask, (pairs, source), and labels, (pairs, rewrite)."""
        names = ("input_ids", "labels")
        batch: dict[str, torch.Tensor] = self._pad(
            [dict(zip(names, ids, strict=True)) for ids in zip(*self._ids(pairs), strict=True)]
        )
        return batch

    def tokens(self, pairs: Sequence[dict[str, str]]) -> NDArray[np.int64]:
        """Return the tokens of the longer text of each pair, not cut, (pairs,)."""
        return np.array(
            [max(map(len, both)) for both in zip(*self._ids(pairs), strict=True)], np.int64
        )

    def _ids(self, pairs: Sequence[dict[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        sources = [f"{pair[TAG_COLUMN]} {pair[TEXT_A]}" for pair in pairs]
        rewrites = [pair[TEXT_B] for pair in pairs]
        tokenizer = self._tokenizer
        return (
            tokenizer(sources, verbose=False)["input_ids"],
            tokenizer(text_target=rewrites, verbose=False)["input_ids"],
        )


def without_long(
    rows: Dataset, collator: Collator, limit: int, what: str
) -> tuple[Dataset, NDArray[np.int64]]:
    """Leave out pairs with a text of more tokens than the limit, tags and end included.

    A token has a byte at least, so only pairs of many bytes are tokenised. `what` names the pairs
    in messages. The second result is the bytes of both texts, (pairs, 2).
    """
    lengths = np.concatenate([
        np.stack([pc.binary_length(table[name]).to_numpy() for name in (TEXT_A, TEXT_B)], 1)
        for table in rows.with_format("arrow").iter(batch_size=10_000)
    ]).astype(np.int64)  # fmt: skip
    keep = np.ones(len(rows), np.bool_)
    doubtful = np.flatnonzero(lengths.max(axis=1) + _AROUND > limit)
    for start in range(0, len(doubtful), _TEXTS_AT_ONCE):
        chosen = doubtful[start : start + _TEXTS_AT_ONCE]
        keep[chosen] = collator.tokens(rows.select(chosen).to_list()) <= limit
    if not keep.any():
        raise InputError(
            f"every {what} pair has a text of more than {limit} tokens: raise max-length"
        )
    if keep.all():
        return rows, lengths
    log.warning(
        "%d of %d %s pairs have a text of more than %d tokens and are left out",
        int((~keep).sum()), len(rows), what, limit,
    )  # fmt: skip
    return rows.select(np.flatnonzero(keep)), lengths[keep]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """Pairs whose texts are short enough; `lengths` are bytes of the training texts, (pairs, 2)."""

    train: Dataset
    validation: Dataset
    lengths: NDArray[np.int64]
    collator: Collator

    def longest(self) -> int:
        """Return the tokens of about the longest text: that of the pairs with the most bytes."""
        chosen = np.argsort(-self.lengths.max(axis=1), kind="stable")[:_LONGEST]
        return int(self.collator.tokens(self.train.select(chosen).to_list()).max())


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
    base = name_of(base, "base")
    settings = settings_of(RewriterTraining, training).for_base(base)
    if out is None:
        raise InputError("no run folder is given: say with out where the model goes")
    check_processes(device)
    named = [str(one) if isinstance(one, (str, Path)) else None for one in (corpus, base)]
    refuse_inside(as_path(out), named[0], named=named[1:])
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
            run.write_results(results)
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
            torch.default_generator.manual_seed(seed)
            model.resize_token_embeddings(len(tokenizer))
    return len(missing)


class _Trainer(Seq2SeqTrainer):
    """Trainer whose batches hold pairs of similar lengths; its loss is the mean over tokens."""

    def __init__(self, sampler: LengthSampler, **options: Any) -> None:
        super().__init__(**options)
        self._sampler = sampler
        # The batch's tokens are counted, and the loss is not divided by the number of passes.
        self.model_accepts_loss_kwargs = True

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return a pass's part of the mean loss over the batch's tokens."""
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
        if num_items_in_batch is not None:
            loss = loss * (inputs["labels"] != _IGNORED).sum() / num_items_in_batch
        return (loss, outputs) if return_outputs else loss

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
