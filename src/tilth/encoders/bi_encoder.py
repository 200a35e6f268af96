"""Trains a sentence encoder on graded pairs, as the DINO paper does, in a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.encoders.graded_pairs import read_pairs
from tilth.encoders.settings import Training
from tilth.encoders.train import Aim, Order, open_base, train

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict
    from sentence_transformers import SentenceTransformer


def train_encoder(
    pairs: str | Path | Dataset | DatasetDict,
    base: str = "starter-encoder",
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
        base: `starter-encoder`, `starter-static`, `starter-mlm`, a folder or a hub id of an
            encoder.
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
    from tilth.models.trainer import settings_of

    settings = settings_of(Training, training).for_base(base)
    place = {"pairs": str(Path(pairs).resolve()) if _is_path(pairs) else None}
    order = Order("train encoder", base, settings, more={}, sources=place)
    parts = read_pairs(pairs, seed=settings.seed)
    encoder = open_base(order, device)
    return train(encoder, parts, towards_labels(), order, out, overwrite=overwrite, quiet=quiet)


def towards_labels() -> Aim:
    """Return the aim: cosines near the labels, judged by Spearman's correlation with them."""
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    from tilth.encoders.train import METRIC, Validation

    return Aim(CosineSimilarityLoss, Validation, METRIC, column="spearman")


def _is_path(pairs: object) -> bool:
    return isinstance(pairs, str | Path) and Path(pairs).exists()
