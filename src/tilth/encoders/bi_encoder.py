"""Trains a sentence encoder on graded pairs, as the DINO paper does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from torch import Tensor

from tilth.encoders.forward import embed_by_length
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, read_pairs
from tilth.encoders.settings import Training
from tilth.encoders.train import EncoderTraining, Objective, UniqueTexts
from tilth.limits import settings_of
from tilth.metrics.correlation import spearman
from tilth.models.names import name_of

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from tilth.data.examples import Source

METRIC = "spearman_cosine"


def train_encoder(
    pairs: Source,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> SentenceTransformer:
    """Train a sentence encoder so that cosines approximate the labels of pairs.

    The loss is the squared difference of cosine and label. Every `evaluate_every` steps Spearman's
    correlation on the validation part is measured; the best checkpoint is kept.

    Args:
        pairs: a data set, its splits, a list of rows, or their place, with text_a, text_b, label.
        base: `starter-encoder`, `starter-static`, `starter-mlm`, a folder or a hub id of an
            encoder.
        out: the run folder; the same call resumes from the last checkpoint. None: nothing is kept
            on disk.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; one GPU.
        training: fields of `Training`: epochs, batch, learning_rate, warmup, weight_decay,
            evaluate_every, pooling, max_length, precision, seed; text and label name the columns.

    Returns:
        The best encoder, in evaluation mode.

    Raises:
        InputError: the pairs, the base or a setting are wrong, or `out` holds another run.
        TilthError: training diverged, or the folder cannot be written.

    Reference:
        Schick and Schütze 2021, arXiv 2104.07540, section 4. Batches of similar lengths, which
        leave out most padding, are ours; the paper draws them at random.
    """
    base = name_of(base, "base")
    settings = settings_of(Training, training)
    job = cosine_training(pairs, base, settings)
    parts = read_pairs(pairs, seed=settings.seed, names=settings.names)
    return job.train(job.load_base(device), parts, out, overwrite=overwrite, quiet=quiet)


def cosine_training(pairs: Source, base: str, settings: Training) -> EncoderTraining:
    """Return the training of a base on graded pairs; `pairs` says where they come from."""
    is_path = isinstance(pairs, str | Path) and Path(pairs).exists()
    sources = {"pairs": str(Path(str(pairs)).resolve()) if is_path else None}
    how = settings.for_base(base)
    return EncoderTraining("train encoder", base, how, cosine_objective(), sources=sources)


def cosine_objective() -> Objective:
    """Return the objective that fits cosines to labels, evaluated by Spearman's correlation."""
    return Objective(CosineLoss, CorrelationEvaluator, METRIC, column="spearman")


class CosineLoss(CosineSimilarityLoss):
    """The mean squared difference of cosine and label, of pairs in passes by length."""

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch: tokens of the first and of the second texts."""
        vectors = embed_by_length(self.model, list(sentence_features))  # each (pairs, width)
        return self.compute_loss_from_embeddings(vectors, labels)


class CorrelationEvaluator(BaseEvaluator):
    """Measures Spearman's correlation of cosines with the labels of pairs.

    Cosine only, as trained; the original's evaluator took the best of four similarities.
    """

    primary_metric = METRIC

    def __init__(self, pairs: Dataset, *, bfloat16: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._texts = UniqueTexts(pairs[TEXT_A][:], pairs[TEXT_B][:], bfloat16=bfloat16)
        self._labels = np.array(pairs[LABEL][:], np.float64)  # (pairs,)

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return the correlation x 100; 0 when all cosines are equal."""
        first, second = (side.numpy() for side in self._texts.encode(model))  # (pairs, width)
        cosines = (first * second).sum(1).astype(np.float64)
        return {METRIC: 100 * float(np.nan_to_num(spearman(self._labels, cosines)))}
