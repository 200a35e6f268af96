"""Trains a sentence encoder on graded pairs, as the DINO paper does, in a run folder."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from tilth.data import fingerprint
from tilth.encoders.pairs import LABEL, TEXT_A, TEXT_B, Pairs, read_pairs
from tilth.errors import InputError, TilthError
from tilth.models.device import choose_device, choose_precision
from tilth.models.encoder import fingerprint_encoder, load_encoder
from tilth.runs import Progress, Run

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

MODEL, CHECKPOINTS = "model", "checkpoints"


@dataclass(frozen=True, slots=True)
class Training:
    """How an encoder is trained; the defaults are the DINO paper's.

    Attributes:
        epochs: passes over the pairs; the paper takes at most one.
        batch: pairs in a step.
        learning_rate: the highest; AdamW, falling linearly to 0.
        warmup: share of the steps in which the rate rises, 0 to below 1.
        weight_decay: of AdamW.
        evaluate_every: steps between two checkpoints, of which the best is kept.
        pooling: `mean`, `cls` or `max`; None: as the base was saved, else mean.
        max_length: tokens read of a text; None: as the base was saved.
        precision: `auto`, `float32` or `bfloat16` (autocast: weights stay in float32).
        seed: of the order of the pairs and of dropout.

    Reference:
        Schick and Schütze 2021, section 4, with the defaults of Reimers and Gurevych 2019.
    """

    epochs: float = 1.0
    batch: int = 32
    learning_rate: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    evaluate_every: int = 100
    pooling: str | None = None
    max_length: int | None = None
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, below in (
            ("epochs", 0, None), ("batch", 1, None), ("learning_rate", 0, None),
            ("warmup", 0, 1), ("weight_decay", 0, None), ("evaluate_every", 1, None),
        ):  # fmt: skip
            value = getattr(self, name)
            positive = name in ("epochs", "learning_rate")
            if value < low or (positive and value == 0) or (below is not None and value >= below):
                above = "above" if positive else "at least"
                until = f" and below {below}" if below is not None else ""
                raise InputError(f"{name} is {value}: it must be {above} {low}{until}")


def train_encoder(
    pairs: str | Path | Dataset | DatasetDict,
    base: str = "starter",
    out: str | Path | None = None,
    *,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> SentenceTransformer:
    """Train a sentence encoder so that cosines come near the labels of pairs.

    The loss is the squared difference of cosine and label. After every 100 steps the encoder is
    measured on the validation part (Spearman's correlation), and the best is kept. Pairs of like
    lengths share a batch, which leaves out most padding.

    Args:
        pairs: what `read_pairs` reads: a data set, its splits, or where they lie.
        base: `starter`, a folder or a hub id of an encoder.
        out: the run folder; the same call goes on from its last checkpoint. None: nothing is
            kept on disk.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; several GPUs under `accelerate launch`.
        overwrite: begin the run anew.
        quiet: no progress.
        training: see `Training`: epochs, batch, learning_rate, warmup, weight_decay,
            evaluate_every, pooling, max_length, precision, seed.

    Returns:
        The best encoder, in evaluation mode.

    Raises:
        InputError: the pairs, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Schick and Schütze 2021, arXiv 2104.07540, section 4. The batches of like lengths are
        ours; the paper draws them at random.
    """
    try:
        settings = Training(**training)
    except TypeError:
        known = Training.__dataclass_fields__
        wrong = next(name for name in training if name not in known)
        raise InputError(f"no setting {wrong!r}: there are {', '.join(known)}") from None
    parts = read_pairs(pairs, seed=settings.seed)
    encoder = load_encoder(
        base, pooling=settings.pooling, max_length=settings.max_length, device=device
    )
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise InputError(f"base {base!r} has no weights to train: give a transformer encoder")
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tilth-") as folder:
            _fit(encoder, parts, settings, Path(folder), quiet=quiet)
        return encoder.eval()
    run = Run.open(
        out,
        command="train encoder",
        settings={"base": base, **asdict(settings)},
        fingerprints={
            "train": fingerprint(parts.train, (TEXT_A, TEXT_B, LABEL)),
            "validation": fingerprint(parts.validation, (TEXT_A, TEXT_B, LABEL)),
            "base": fingerprint_encoder(encoder),
        },
        parts=1,
        overwrite=overwrite,
    )
    with run:
        if run.missing():
            run.write_part(0, _train(encoder, parts, settings, run, quiet=quiet))
            shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
    return load_encoder(str(run.path / MODEL), device=device)


def _train(
    encoder: SentenceTransformer, parts: Pairs, settings: Training, run: Run, *, quiet: bool
) -> pa.Table:
    """Train in a run folder and return the learning curve; it is written after the model."""
    curve = _fit(encoder, parts, settings, run.path / CHECKPOINTS, quiet=quiet)
    unfinished, final = run.path / CHECKPOINTS / MODEL, run.path / MODEL
    encoder.save(str(unfinished), create_model_card=False)
    shutil.rmtree(final, ignore_errors=True)
    unfinished.rename(final)
    return curve


def _fit(
    encoder: SentenceTransformer,
    parts: Pairs,
    settings: Training,
    folder: Path,
    *,
    quiet: bool,
) -> pa.Table:
    """Train the encoder in place; return step, Spearman x 100 and loss at each checkpoint."""
    from tilth.encoders.trainer import last_checkpoint, learning_curve, make_trainer

    device = choose_device(str(encoder.device))
    bfloat16 = choose_precision(settings.precision, device) is torch.bfloat16
    steps = max(1, round(-(-len(parts.train) // settings.batch) * settings.epochs))
    with Progress(steps, quiet=quiet, what="steps") as progress:
        trainer = make_trainer(
            encoder, parts, settings, folder, bfloat16=bfloat16, steps=steps, progress=progress
        )
        checkpoint = last_checkpoint(folder)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    encoder.eval()
    if not all(torch.isfinite(weight).all() for weight in encoder.parameters()):
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return pa.table(learning_curve(trainer.state.log_history))
