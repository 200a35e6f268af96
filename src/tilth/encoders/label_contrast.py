"""Trains a sentence encoder on a few labelled texts, so that those of one label are similar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.encoders.bi_encoder import METRIC, CorrelationEvaluator
from tilth.encoders.forward import embed_by_length
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TrainingPairs
from tilth.encoders.settings import Training
from tilth.encoders.train import EncoderTraining, Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer

BATCH = 32
_CHUNK = 8  # texts of similar lengths in a forward pass on a processor, where they are padded
# 40 passes over the rows, in 40 to 120 steps; five passes if these are more.
_PASSES, _FEWEST, _STEPS, _LEAST_PASSES = 40, 40, 120, 5
_PSEUDO_STEPS = 160  # at most, where a model gave the labels: more steps repeat its mistakes
_TEMPERATURE, _RATE = 0.1, 1e-4


def step_count(rows: int, *, are_pseudo: bool = False) -> int:
    """Return the number of training steps on so many rows, whose labels may be a model's."""
    usual = min(max(_PASSES * rows // BATCH, _FEWEST), _STEPS)
    steps = max(usual, _LEAST_PASSES * rows // BATCH)
    return min(steps, _PSEUDO_STEPS) if are_pseudo else steps


def train_label_contrast(
    texts: Sequence[str],
    targets: NDArray[np.float32],
    base: str = "starter-encoder",
    *,
    seed: int = 0,
    device: str = "auto",
    are_pseudo: bool = False,
) -> SentenceTransformer:
    """Train an encoder on all pairs of a batch: texts of one label attract, all others repel.

    Logistic regression on its vectors is then the classifier. The step of 32 texts teaches by 496
    pairs, where SetFit's 16 pairs need as many texts: six tenths of SetFit's time with 100 to 300
    rows, eight tenths with 30.

    Args:
        texts: of two labels at least.
        targets: whether each text has each label, of which it has one. # (texts, labels)
        base: an encoder with weights to train.
        are_pseudo: a model gave the labels: many texts take fewer steps.

    Reference:
        Khosla et al. 2020, "Supervised Contrastive Learning", arXiv 2004.11362, equation 2.
    """
    from datasets import Dataset

    labels = targets.argmax(axis=1)  # (texts,)
    steps = step_count(len(texts), are_pseudo=are_pseudo)
    drawn = _even_rows(labels, steps * BATCH, seed)
    rows = Dataset.from_dict({TEXT_A: [texts[row] for row in drawn], LABEL: labels[drawn]})
    settings = Training(epochs=1, batch=BATCH, learning_rate=_RATE, evaluate_every=steps, seed=seed)
    objective = Objective(
        LabelContrast, CorrelationEvaluator, METRIC, column="spearman", group_lengths=False
    )
    training = EncoderTraining("label contrast", base, settings, objective)
    parts = TrainingPairs(rows, rows.select([]))
    return training.train(training.load_base(device), parts, None, overwrite=False, quiet=True)


def _even_rows(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Draw rows, each label and each row of a label as often as any other."""
    rng = np.random.default_rng((seed, 0))
    names = np.unique(labels)
    drawn = []
    for label in names:
        own = np.flatnonzero(labels == label)
        times = -(-count // (len(names) * len(own)))
        drawn.append(np.concatenate([rng.permutation(own) for _ in range(times)]))
    return np.stack([rows[: -(-count // len(names))] for rows in drawn], axis=1).ravel()[:count]


class LabelContrast(torch.nn.Module):
    """The loss of `train_label_contrast`."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Sequence[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean over texts that have a positive of its log-share among all others."""
        (vectors,) = embed_by_length(
            self.model, list(features), processor_chunk=_CHUNK
        )  # (texts, width)
        return contrast(vectors, labels)


def contrast(vectors: Tensor, labels: Tensor) -> Tensor:
    """Return the supervised contrastive loss of vectors, (texts, width), and labels, (texts,)."""
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    logits = (unit @ unit.T / _TEMPERATURE).masked_fill(itself, -1e9)  # (texts, texts)
    positive = (labels[:, None] == labels) & ~itself
    log_share = torch.log_softmax(logits, dim=1)
    count = positive.sum(dim=1)
    mean = (log_share * positive).sum(dim=1)[count > 0] / count[count > 0]
    return -mean.mean() if len(mean) else logits.sum() * 0.0
