"""Trains an encoder towards an aim, in a run folder: what all such trainings do alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import (
    SentenceTransformerDataCollator,
)

from tilth.data import fingerprint
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, Pairs
from tilth.encoders.settings import Training
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.models.device import choose_device, choose_precision
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.models.length_sampler import length_grouped
from tilth.models.source import silence_transformers
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    CheckpointCallback,
    drop_limits,
    training_arguments,
)
from tilth.runs import RESULTS, Progress, Run

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

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
    arguments = training_arguments(
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
        logging_strategy="no",  # `CheckpointCallback` says when
    )
    return _Trainer(
        model=encoder,
        args=arguments,
        train_dataset=parts.train,
        loss=aim.loss(encoder),
        data_collator=SentenceTransformerDataCollator(preprocess_fn=partial(_preprocess, encoder)),
        evaluator=aim.judge(parts.validation, batch=_VALIDATION_BATCH, bfloat16=bfloat16),
        callbacks=[CheckpointCallback(progress)],
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


METRIC = "spearman_cosine"


class Validation(BaseEvaluator):
    """Measures an encoder on graded pairs by the cosine alone; each text is encoded once.

    The original's evaluator took the best of four similarities; this takes the one that is
    trained and reported.
    """

    primary_metric = METRIC

    def __init__(self, pairs: Dataset, *, batch: int, bfloat16: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        columns = [pairs[TEXT_A][:], pairs[TEXT_B][:]]
        places = {text: i for i, text in enumerate(dict.fromkeys([*columns[0], *columns[1]]))}
        self._texts = list(places)
        self._rows = [np.array([places[text] for text in column]) for column in columns]
        self._ranks = rankdata(pairs[LABEL][:])  # (pairs,)
        self._batch, self._bfloat16 = batch, bfloat16

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return Spearman's correlation x 100; 0 when the encoder tells no texts apart."""
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self._bfloat16):
            encoded = model.encode(
                self._texts, batch_size=self._batch, convert_to_tensor=True, show_progress_bar=False
            )  # (texts, width)
        vectors = torch.nn.functional.normalize(encoded.float(), dim=1).cpu().numpy()
        left, right = (vectors[rows] for rows in self._rows)  # (pairs, width)
        return {METRIC: 100 * _correlation(self._ranks, rankdata((left * right).sum(1)))}


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length else 0.0


SCORES = "sts"  # holds what the result was measured with: `tilth.workflows.train_encoder`


@dataclass(frozen=True, slots=True)
class Aim:
    """What an encoder is trained towards.

    Attributes:
        loss: makes the loss of an encoder.
        judge: made of held-out pairs, `batch` and `bfloat16`; the checkpoint with its highest
            measure is kept.
        measure: the judge's primary metric.
        column: what the learning curve calls it.
    """

    loss: Callable[[SentenceTransformer], torch.nn.Module]
    judge: Callable[..., BaseEvaluator]
    measure: str
    column: str


@dataclass(frozen=True, slots=True)
class Order:
    """A training, as its run folder records it.

    Attributes:
        command: such as `train encoder`.
        base: what the encoder is made of, by name.
        settings: how it is trained.
        more: what else was asked for that changes its weights.
        sources: where the pairs lie: name -> place, resolved at the first start.
    """

    command: str
    base: str
    settings: Training
    more: Mapping[str, Any]
    sources: Mapping[str, Any]


def open_base(order: Order, device: str) -> SentenceTransformer:
    """Load what is to be trained.

    Raises:
        InputError: it does not load, has no weights to train, or the device is not for training.
    """
    from tilth.models.trainer import require_single_process

    require_single_process(device)
    settings = order.settings
    encoder = load_encoder(
        order.base, pooling=settings.pooling, max_length=settings.max_length, device=device
    )
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise InputError(f"base {order.base!r} has no weights to train: give a transformer encoder")
    return encoder


def train(
    encoder: SentenceTransformer,
    parts: Pairs,
    aim: Aim,
    order: Order,
    out: str | Path | None,
    *,
    overwrite: bool,
    quiet: bool,
) -> SentenceTransformer:
    """Train an encoder, or what is left of its training, and return the best of its checkpoints.

    Args:
        encoder: as it begins; trained in place.
        parts: what to train on and to choose with.
        aim: the loss, and what chooses.
        order: what the run folder records.
        out: the run folder; None: nothing is kept on disk.
        overwrite: begin the run anew.
        quiet: no progress.

    Raises:
        InputError: `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tilth-") as folder, disk_errors(Path(folder)):
            fit(encoder, parts, aim, order.settings, Path(folder), quiet=quiet)
        return encoder.eval()
    run = Run.open(
        out,
        command=order.command,
        settings={"base": order.base, **asdict(order.settings), **order.more},
        fingerprints={
            "train": fingerprint(parts.train, (TEXT_A, TEXT_B, LABEL)),
            "validation": fingerprint(parts.validation, (TEXT_A, TEXT_B, LABEL)),
            "base": fingerprint_encoder(encoder),
        },
        parts=1,
        outputs=(MODEL, CHECKPOINTS, SCORES, RESULTS),
        overwrite=overwrite,
    )
    from tilth.models.trainer import complete_training

    device = str(encoder.device)
    with run:
        for name, place in order.sources.items():
            run.resolve(name, lambda place=place: place)  # type: ignore[misc]
        complete_training(
            run,
            lambda folder: fit(encoder, parts, aim, order.settings, folder, quiet=quiet),
            lambda folder: _save(encoder, folder),
        )
    return load_encoder(str(run.path / MODEL), device=device)


def _save(encoder: SentenceTransformer, folder: Path) -> None:
    drop_limits(encoder.tokenizer)
    with silence_transformers():
        encoder.save(str(folder), create_model_card=False)


def fit(
    encoder: SentenceTransformer,
    parts: Pairs,
    aim: Aim,
    settings: Training,
    folder: Path,
    *,
    quiet: bool,
) -> pa.Table:
    """Train the encoder in place; return step, measure x 100 and loss at each checkpoint."""
    from tilth.models.trainer import all_finite, run_trainer

    device = choose_device(str(encoder.device))
    bfloat16 = choose_precision(settings.precision, device) is torch.bfloat16
    steps = max(1, round(-(-len(parts.train) // settings.batch) * settings.epochs))
    with silence_transformers(), Progress(steps, quiet=quiet, what="steps") as progress:
        trainer = make_trainer(
            encoder, parts, aim, settings, folder,
            bfloat16=bfloat16, steps=steps, progress=progress,
        )  # fmt: skip
        history = run_trainer(
            trainer,
            too_large=f"{settings.batch} pairs at once do not fit into the memory of {device}: "
            "lower --batch or --max-length",
        )
    encoder.eval()
    if not all_finite(encoder):
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return pa.table(learning_curve(history, aim))


def characters(pairs: Dataset) -> NDArray[np.int64]:
    """Return the characters of each pair's longer text; a batch is padded to its longest."""
    table = pairs.with_format("arrow")[:]
    columns = [pc.utf8_length(table[name]).to_numpy() for name in (TEXT_A, TEXT_B)]
    longer: NDArray[np.int64] = np.maximum(*columns).astype(np.int64)  # (pairs,)
    return longer


class LengthGrouped(DefaultBatchSampler):
    """Gives sentence-transformers' trainer the batches of `length_grouped`."""

    epoch = 0

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **rest: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, **rest)
        self._lengths = characters(dataset)

    def __iter__(self) -> Iterator[list[int]]:
        for rows in length_grouped(
            self._lengths, self.batch_size, seed=self.seed, epoch=self.epoch
        ):
            yield rows.tolist()

    def __len__(self) -> int:
        return -(-len(self._lengths) // self.batch_size)
