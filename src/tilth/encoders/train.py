"""Trains a sentence encoder on an objective, in a run folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.data_collator import (
    SentenceTransformerDataCollator,
)
from torch import Tensor

from tilth.data import fingerprint
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, TrainingPairs
from tilth.encoders.settings import Training
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.models.device import choose_precision
from tilth.models.distributed import in_every_process, processes, shares, weighted
from tilth.models.embed import embed, unit
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.models.pretrained import reset_padding, seeded, silence_transformers, weights_drawn
from tilth.models.trainer import (
    CHECKPOINTS,
    MODEL,
    CheckpointCallback,
    all_finite,
    check_processes,
    complete_training,
    length_grouped,
    run_trainer,
    training_arguments,
)
from tilth.runs import RESULTS, Progress, Run

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

SCORES = "sts"  # scores of the result, written by `tilth.workflows.train_encoder`
_MULTIPLE = 8  # of padded lengths


@dataclass(frozen=True, slots=True)
class Objective:
    """Loss and evaluator of a training.

    Attributes:
        evaluator: made of held-out pairs and `bfloat16`; the checkpoint with its highest primary
            metric is kept, without held-out pairs the last one.
        metric: the evaluator's primary metric.
        column: name of the metric in the learning curve.
        group_lengths: whether a batch holds pairs of similar lengths, or any pairs.
    """

    loss: Callable[[SentenceTransformer], torch.nn.Module]
    evaluator: Callable[..., BaseEvaluator]
    metric: str
    column: str
    group_lengths: bool = True


@dataclass(frozen=True, slots=True)
class EncoderTraining:
    """A training as recorded in its run folder.

    Attributes:
        command: such as `train encoder`.
        settings: with a learning rate.
        more: other arguments that change the weights.
        sources: places of the pairs: name -> place, resolved at the first start.
        head: makes a module that follows the encoder in training only.
        dropout: in every part of the encoder; None: as the base was saved.
    """

    command: str
    base: str
    settings: Training
    objective: Objective
    more: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Any] = field(default_factory=dict)
    head: Callable[[SentenceTransformer], torch.nn.Module] | None = None
    dropout: float | None = None

    def load_base(self, device: str) -> SentenceTransformer:
        """Load the encoder to train."""
        check_processes(device)
        with weights_drawn(self.settings.seed):  # those that the base lacks
            encoder = load_encoder(
                self.base,
                pooling=self.settings.pooling,
                max_length=self.settings.max_length,
                dropout=self.dropout,
                device=device,
            )
        if not any(parameter.requires_grad for parameter in encoder.parameters()):
            raise InputError(
                f"base {self.base!r} has no weights to train: give a transformer encoder"
            )
        return encoder

    def train(
        self,
        encoder: SentenceTransformer,
        pairs: TrainingPairs,
        out: str | Path | None,
        *,
        overwrite: bool,
        quiet: bool,
    ) -> SentenceTransformer:
        """Train an encoder in place, or resume its run; return the best checkpoint.

        Without a run folder, `out`, nothing is kept on disk.
        """
        if out is None:
            with tempfile.TemporaryDirectory(prefix="tilth-") as folder, disk_errors(Path(folder)):
                fit_encoder(encoder, pairs, self, Path(folder), resumable=False, quiet=quiet)
            return encoder.eval()
        recorded = asdict(self.settings)
        columns = {key: recorded.pop(key) for key in ("text", "label")}  # rows have fingerprints
        run = Run.open(
            out,
            command=self.command,
            settings={"base": self.base, **recorded, **self.more},
            fingerprints={
                "train": fingerprint(pairs.train, pairs.train.column_names),
                "validation": fingerprint(pairs.validation, pairs.validation.column_names),
                "base": fingerprint_encoder(encoder),
            },
            parts=1,
            outputs=(MODEL, CHECKPOINTS, SCORES, RESULTS),
            overwrite=overwrite,
        )
        device = str(encoder.device)
        with run:
            for name, place in {**self.sources, "columns": columns}.items():
                run.resolve(name, lambda place=place: place)  # type: ignore[misc]
            complete_training(
                run,
                lambda folder: fit_encoder(encoder, pairs, self, folder, quiet=quiet),
                lambda folder: save_encoder(encoder, folder),
            )
        return load_encoder(str(run.path / MODEL), device=device)


def read_curve(run: str | Path) -> dict[str, Any]:
    """Read the learning curve of a finished run.

    Returns:
        best (the step whose weights were kept), step, the metric x 100 on the held-out pairs (NaN
        without such pairs) and loss (the mean since the previous checkpoint).
    """
    curve = pq.read_table(Path(run) / "parts" / "part-00000.parquet").to_pydict()
    (values,) = (curve[name] for name in curve if name not in ("step", "loss"))
    best = values.index(max(values)) if np.isfinite(values).all() else -1
    return {"best": curve["step"][best], **curve}


def save_encoder(encoder: SentenceTransformer, folder: Path) -> None:
    """Save an encoder as a folder that sentence-transformers loads."""
    reset_padding(encoder.tokenizer)
    with silence_transformers():
        encoder.save(str(folder), create_model_card=False)


@in_every_process
def fit_encoder(
    encoder: SentenceTransformer,
    pairs: TrainingPairs,
    training: EncoderTraining,
    folder: Path,
    *,
    resumable: bool = True,
    quiet: bool,
) -> pa.Table:
    """Train the encoder in place; return step, metric x 100 and loss at each checkpoint.

    Without held-out pairs the metric is NaN; if the training need not be `resumable` either,
    no checkpoint is written to `folder`.
    """
    settings, steps = training.settings, training_steps(pairs, training.settings)
    with (
        silence_transformers(),
        seeded(settings.seed),
        Progress(steps, quiet=quiet, what="steps") as progress,
    ):
        if training.head is not None:
            encoder.append(training.head(encoder).to(encoder.device))
        trainer = make_encoder_trainer(
            encoder, pairs, training.objective, settings, folder, progress, resumable=resumable
        )
        history = run_trainer(
            trainer,
            too_large=f"{settings.batch} pairs at once do not fit into the memory of "
            f"{encoder.device}: lower --batch or --max-length",
        )
    if training.head is not None:
        del encoder[-1]
    vars(encoder).pop("forward", None)  # the trainer's, which casts to bfloat16
    encoder.eval()
    if not all_finite(encoder):
        raise TilthError("training gave NaN or infinite weights: lower --learning-rate")
    objective = training.objective
    losses = {entry["step"]: entry["loss"] for entry in history if "loss" in entry}
    name = f"eval_{objective.metric}"
    found = {entry["step"]: float(entry[name]) for entry in history if name in entry}
    curve = sorted(found if len(pairs.validation) else losses)
    return pa.table({
        "step": curve,
        objective.column: [found.get(step, torch.nan) for step in curve],
        "loss": [float(losses.get(step, torch.nan)) for step in curve],
    })  # fmt: skip


def training_steps(pairs: TrainingPairs, settings: Training) -> int:
    """Return the number of optimizer steps of a training."""
    return max(1, round(-(-len(pairs.train) // settings.batch) * settings.epochs))


class _Trainer(SentenceTransformerTrainer):
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Write no model card: the run folder says how the model was made."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        """Save a checkpoint's model without a card, which would take longer than the model."""
        self.model.save_pretrained(str(output_dir or self.args.output_dir), create_model_card=False)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Return the loss of a batch, or of this process's share of it."""
        rows = len(inputs[LABEL]) if LABEL in inputs else 1
        loss: Any = super().compute_loss(model, inputs, *args, **options)
        return weighted(loss, rows)


def make_encoder_trainer(
    encoder: SentenceTransformer,
    pairs: TrainingPairs,
    objective: Objective,
    settings: Training,
    folder: Path,
    progress: Progress,
    *,
    resumable: bool = True,
) -> SentenceTransformerTrainer:
    """Return a trainer that updates an encoder in place; checkpoints go to `folder`.

    They are needed for the best weights on held-out pairs, or to resume.
    """
    assert settings.learning_rate is not None  # set by `for_base`
    bfloat16 = choose_precision(settings.precision, encoder.device) is torch.bfloat16
    evaluated = len(pairs.validation) > 0
    arguments = training_arguments(
        SentenceTransformerTrainingArguments,
        folder,
        encoder.device,
        settings.seed,
        max_steps=training_steps(pairs, settings),
        per_device_train_batch_size=settings.batch,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        bf16=bfloat16,
        batch_sampler=LengthGrouped if objective.group_lengths else RandomBatches,
        eval_strategy="steps" if evaluated else "no",
        eval_steps=settings.evaluate_every,
        save_strategy="steps" if evaluated or resumable else "no",
        save_steps=settings.evaluate_every,
        metric_for_best_model=f"eval_{objective.metric}" if evaluated else None,
        greater_is_better=True,
        logging_strategy="no",  # `CheckpointCallback` decides when
    )
    with weights_drawn(settings.seed):  # such as those of a decoder
        loss = objective.loss(encoder)
    return _Trainer(
        model=encoder,
        args=arguments,
        train_dataset=pairs.train,
        loss=loss,
        data_collator=SentenceTransformerDataCollator(preprocess_fn=partial(_preprocess, encoder)),
        evaluator=objective.evaluator(pairs.validation, bfloat16=bfloat16) if evaluated else None,
        callbacks=[CheckpointCallback(progress)],
    )


def _preprocess(encoder: SentenceTransformer, texts: list[str], **options: Any) -> dict[str, Any]:
    """Tokenise texts, padded to one of few lengths."""
    # CPUs compile matrix products for each new shape, which takes longer than the product.
    if (encoder.max_seq_length or 0) % _MULTIPLE == 0:  # else padding would pass the limit
        options["processing_kwargs"] = {"text": {"pad_to_multiple_of": _MULTIPLE}}
    features: dict[str, Any] = encoder.preprocess(texts, **options)
    return features


def characters(pairs: Dataset) -> NDArray[np.int64]:
    """Return the characters of each pair's longer text, (pairs,)."""
    table = pairs.with_format("arrow")[:]
    columns = [pc.utf8_length(table[name]).to_numpy() for name in (TEXT_A, TEXT_B)]
    longer: NDArray[np.int64] = np.maximum(*columns).astype(np.int64)
    return longer


class LengthGrouped(DefaultBatchSampler):
    """The batches of `length_grouped` for sentence-transformers' trainer."""

    epoch = 0

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **rest: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, **rest)
        self._lengths, self._batch = characters(dataset), batch_size
        if processes() > 1:
            self.batch_size: Any = None  # shares may have one row more or less

    def __iter__(self) -> Iterator[list[int]]:
        for rows in length_grouped(self._lengths, self._batch, seed=self.seed, epoch=self.epoch):
            yield from shares(rows.tolist())

    def __len__(self) -> int:
        return -(-len(self._lengths) // self._batch) * processes()


class RandomBatches(DefaultBatchSampler):
    """Batches of random rows, in an order of seed and epoch alone, even when resumed."""

    epoch = 0

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **rest: Any) -> None:
        super().__init__(dataset, batch_size, drop_last, **rest)
        self._rows = len(dataset)

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self._rows)
        for start in range(0, self._rows, self.batch_size):
            yield order[start : start + self.batch_size].tolist()

    def __len__(self) -> int:
        return -(-self._rows // self.batch_size)


class UniqueTexts:
    """Two columns of texts, each distinct text encoded once.

    sentence-transformers' evaluators encode repeated texts again.
    """

    def __init__(self, first: list[str], second: list[str], *, bfloat16: bool) -> None:
        index = {text: i for i, text in enumerate(dict.fromkeys([*first, *second]))}
        self._texts = list(index)
        self._rows = [torch.tensor([index[text] for text in texts]) for texts in (first, second)]
        self._bfloat16 = bfloat16

    def encode(self, model: Any) -> tuple[Tensor, Tensor]:
        """Return unit vectors of both columns, (rows, width) each."""
        dtype = torch.bfloat16 if self._bfloat16 else torch.float32
        vectors = torch.from_numpy(unit(embed(model, self._texts, dtype=dtype)))  # (texts, width)
        return vectors[self._rows[0]], vectors[self._rows[1]]
