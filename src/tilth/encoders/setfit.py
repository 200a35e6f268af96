"""Trains a sentence encoder on pairs of a few labelled texts, as SetFit does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilth.encoders.bi_encoder import cosine_objective
from tilth.encoders.graded_pairs import LABEL, TEXT_A, TEXT_B, TrainingPairs
from tilth.encoders.settings import Training
from tilth.encoders.train import EncoderTraining

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

MOST_PAIRS = 4_000  # those of 100 rows; more rows have fewer rounds
_ROUNDS = 20
_BATCH = 16


def train_setfit(
    texts: Sequence[str],
    targets: NDArray[np.float32],
    base: str,
    *,
    seed: int = 0,
    device: str = "auto",
) -> SentenceTransformer:
    """Train an encoder so that texts of one label are similar, and texts of two labels are not.

    Logistic regression on its vectors is then the classifier.

    Args:
        texts: of two labels at least.
        targets: whether each text has each label, 0 or 1. # (texts, labels)
        base: an encoder with weights to train.

    Reference:
        Tunstall et al. 2022, arXiv 2209.11055, section 3; 20 rounds of a pair of each kind for each
        text and one epoch, as in their library. At most 4,000 pairs are ours.
    """
    from datasets import Dataset

    pairs = contrastive_pairs(texts, targets, seed)
    settings = Training(batch=_BATCH, evaluate_every=MOST_PAIRS, seed=seed).for_base(base)
    training = EncoderTraining("setfit", base, settings, cosine_objective())
    parts = TrainingPairs(pairs, Dataset.from_dict({name: [] for name in pairs.column_names}))
    return training.train(training.load_base(device), parts, None, overwrite=False, quiet=True)


def contrastive_pairs(
    texts: Sequence[str], targets: NDArray[np.float32], seed: int, most: int = MOST_PAIRS
) -> Dataset:
    """Draw pairs of texts that share a label (1) and that share none (0), of each text alike.

    Where there are too many texts for a pair of each kind, those of the first texts are drawn, in
    random order. A text whose label no other one has, or whose label all have, is in pairs of one
    kind only.

    Returns:
        text_a, text_b and label, at most `most` rows.
    """
    from datasets import Dataset

    rng = np.random.default_rng((seed, 0))
    has = targets > 0.5  # (texts, labels)
    columns: dict[str, list[Any]] = {TEXT_A: [], TEXT_B: [], LABEL: []}
    for _ in range(_ROUNDS):
        for row in rng.permutation(len(texts)).tolist():
            shares = (has & has[row]).any(axis=1)  # (texts,)
            for label in (1.0, 0.0):
                others = np.flatnonzero(shares == bool(label))
                others = others[others != row]
                if len(others) and len(columns[LABEL]) < most:
                    columns[TEXT_A].append(texts[row])
                    columns[TEXT_B].append(texts[int(rng.choice(others))])
                    columns[LABEL].append(label)
        if len(columns[LABEL]) >= most:
            break
    return Dataset.from_dict(columns)
