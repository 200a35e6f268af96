"""Trains an encoder towards an aim, in a run folder: what all such trainings do alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from tilth.data import fingerprint
from tilth.encoders.pairs import LABEL, TEXT_A, TEXT_B, Pairs
from tilth.encoders.settings import Training
from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.models.checkpoints import CHECKPOINTS, MODEL, drop_limits
from tilth.models.device import choose_device, choose_precision
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.models.source import quietly
from tilth.runs import Progress, Run
from tilth.runs.asked import RESULTS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

SCORES = "sts"  # holds what the result was measured with: `tilth.recipes.training`


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
    from tilth.models.training import refuse_several

    refuse_several(device)
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
    from tilth.models.training import complete_training

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
    with quietly():
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
    from tilth.encoders.trainer import learning_curve, make_trainer
    from tilth.models.training import all_finite, run_trainer

    device = choose_device(str(encoder.device))
    bfloat16 = choose_precision(settings.precision, device) is torch.bfloat16
    steps = max(1, round(-(-len(parts.train) // settings.batch) * settings.epochs))
    with quietly(), Progress(steps, quiet=quiet, what="steps") as progress:
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
