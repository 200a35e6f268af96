"""Trains a sentence encoder on graded pairs, as the DINO paper does, in a run folder."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from tilth.data import fingerprint
from tilth.encoders.pairs import LABEL, TEXT_A, TEXT_B, Pairs, read_pairs
from tilth.encoders.settings import Training
from tilth.errors import InputError, TilthError
from tilth.models.device import choose_device, choose_precision
from tilth.models.encoder import fingerprint_encoder, load_encoder, quietly
from tilth.runs import Progress, Run

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer

MODEL, CHECKPOINTS = "model", "checkpoints"


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
        device: `auto`, `cpu`, `cuda` or `cuda:N`; one GPU.
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
    from tilth.models.training import refuse_several, settings_of

    settings = settings_of(Training, training).for_base(base)
    refuse_several(device)
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
        run.resolve("pairs", lambda: str(Path(pairs).resolve()) if _is_path(pairs) else None)
        if run.missing() or not (run.path / MODEL / "modules.json").is_file():
            run.write_part(0, _train(encoder, parts, settings, run, quiet=quiet))
            shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
    return load_encoder(str(run.path / MODEL), device=device)


def _is_path(pairs: object) -> bool:
    return isinstance(pairs, str | Path) and Path(pairs).exists()


def _train(
    encoder: SentenceTransformer, parts: Pairs, settings: Training, run: Run, *, quiet: bool
) -> pa.Table:
    """Train in a run folder and return the learning curve; it is written after the model."""
    curve = _fit(encoder, parts, settings, run.path / CHECKPOINTS, quiet=quiet)
    unfinished, final = run.path / CHECKPOINTS / MODEL, run.path / MODEL
    with quietly():
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
    from tilth.encoders.trainer import learning_curve, make_trainer, resume
    from tilth.models.training import all_finite, begin, last_checkpoint

    device = choose_device(str(encoder.device))
    bfloat16 = choose_precision(settings.precision, device) is torch.bfloat16
    steps = max(1, round(-(-len(parts.train) // settings.batch) * settings.epochs))
    with quietly(), Progress(steps, quiet=quiet, what="steps") as progress:
        trainer = make_trainer(
            encoder, parts, settings, folder, bfloat16=bfloat16, steps=steps, progress=progress
        )
        checkpoint = last_checkpoint(folder)
        history = resume(trainer, checkpoint, steps) if checkpoint else begin(trainer)
    encoder.eval()
    if not all_finite(encoder):
        raise TilthError("training gave weights that are no numbers: lower --learning-rate")
    return pa.table(learning_curve(history))
