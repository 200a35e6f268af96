"""Trains a sentence encoder on positive pairs with the triplet loss, as SentAugment's SASE is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules.dense import Dense
from torch import Tensor
from torch.nn.functional import normalize, relu

from tilth.data.examples import Source
from tilth.encoders.forward import embed_by_length
from tilth.encoders.graded_pairs import LABEL, NEGATIVE, TEXT_A, TEXT_B, TrainingPairs
from tilth.encoders.parallel_pairs import places_of, read_parallel
from tilth.encoders.settings import TripletTraining
from tilth.encoders.train import EncoderTraining, Objective, UniqueTexts
from tilth.limits import settings_of
from tilth.models.names import name_of

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

METRIC = "reciprocal_rank"


def train_triplet(
    pairs: Source | Sequence[Source] | TrainingPairs,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    pivot: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> SentenceTransformer:
    """Train a sentence encoder so that texts of the same meaning have near vectors.

    The loss requires a positive to be nearer, by a margin, than the hardest negative of the batch,
    hard negatives of triples included. At every checkpoint the mean reciprocal rank of held-out
    positives is measured; the best checkpoint is kept.

    Args:
        pairs: a source that `read_parallel` reads, or its result.
        base: `starter-encoder`, `starter-mlm`, a folder or a hub id of an encoder: a masked
            language model, as in the paper, or an encoder already trained on similarity.
        out: the run folder; the same call resumes from the last checkpoint, and
            `load_encoder(out)` loads the result. None: nothing is kept on disk.
        pivot: a column whose equal texts mark paraphrases; it is not trained on.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; one GPU.
        training: fields of `TripletTraining`: dimension, margin, epochs, batch, learning_rate,
            warmup, weight_decay, evaluate_every, pooling, max_length, precision, seed, min_score;
            text and label name the columns of texts and of grades.

    Returns:
        The best encoder, in evaluation mode: the base, pooled, and a linear layer.

    Raises:
        InputError: the pairs, the base or a setting are wrong, or `out` holds another run.
        TilthError: training diverged, or the folder cannot be written.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.1 and 3.3. Its base is a multilingual masked
        language model; the batches of similar lengths and the held-out pairs are ours.
    """
    base = name_of(base, "base")
    settings = settings_of(TripletTraining, training).for_base(base)
    places: list[str] = []
    if isinstance(pairs, TrainingPairs):
        rows = pairs
    else:
        rows = read_parallel(
            pairs, pivot=pivot, min_score=settings.min_score, seed=settings.seed,
            names=settings.names,
        )  # fmt: skip
        places = places_of(pairs)
    job = EncoderTraining(
        "train triplet", base, settings, triplet_objective(settings.margin), {"pivot": pivot},
        {"sources": places},
    )  # fmt: skip
    encoder = job.load_base(device)
    encoder.append(_projection(encoder, settings).to(encoder.device))
    return job.train(encoder, rows, out, overwrite=overwrite, quiet=quiet)


def _projection(encoder: SentenceTransformer, settings: TripletTraining) -> torch.nn.Module:
    """Return the linear layer to `dimension`, initialised orthogonal."""
    width, dimension = encoder.get_embedding_dimension(), settings.dimension
    assert width is not None  # a pooled encoder has one
    rows = torch.empty(dimension, width)
    torch.nn.init.orthogonal_(rows, generator=torch.Generator().manual_seed(settings.seed))
    return Dense(
        width, dimension, activation_function=None, init_weight=rows,
        init_bias=torch.zeros(dimension),
    )  # fmt: skip


def triplet_objective(margin: float) -> Objective:
    """Return the objective of the triplet loss, evaluated by mean reciprocal rank."""
    return Objective(partial(TripletLoss, margin=margin), RankEvaluator, METRIC, column=METRIC)


def same_text_mask(ids: Tensor) -> Tensor:
    """Return which pairs share an id and so are no negatives of one another, (pairs, pairs).

    `ids` are those of each pair's texts and of its group, (pairs, ids).
    """
    equal = ids[:, None, :, None] == ids[None, :, None, :]  # (pairs, pairs, ids, ids)
    shared: Tensor = equal.flatten(2).any(2)
    return shared  # (pairs, pairs)


def same_text_mask_with_negatives(ids: Tensor) -> Tensor:
    """Return `same_text_mask`, followed by the mask of the hard negatives, (pairs, 2 pairs).

    `ids` end with that of the hard negative, 0: none, (pairs, ids + 1). A hard negative counts
    for every pair of the batch that does not hold it.
    """
    own, negatives = ids[:, :-1], ids[:, -1]
    held = (own[:, :, None] == negatives).any(1) | (negatives == 0)  # (pairs, negatives)
    return torch.cat([same_text_mask(own), held], 1)  # (pairs, 2 pairs)


def triplet_loss(x: Tensor, y: Tensor, shared: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, margin - cos(x, y) + cos(x, y_c)).

    y_c is the y of another pair, or the hard negative, that is nearest to x; a pair that shares a
    text with every other has none, and a loss of 0.

    Args:
        x: vectors of the pairs' first texts. # (pairs, width)
        y: of their second texts, then of hard negatives, if any. # (candidates, width)
        shared: mask of the candidates that are no negatives. # (pairs, candidates)
        margin: in cosines.

    Reference:
        Du et al. 2020, arXiv 2010.02194, section 2.1; the hardest in the batch: section 3.3.

    Example:
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        >>> float(triplet_loss(x, y, torch.eye(2, dtype=torch.bool), 0.4))  # 0.4 - 0.4, 0.4 - 0.8
        0.0
    """
    cosines = normalize(x, dim=1) @ normalize(y, dim=1).T  # (pairs, candidates)
    negative = cosines.masked_fill(shared, -torch.inf).amax(1)  # (pairs,)
    return relu(margin - cosines.diagonal() + negative).mean()


class TripletLoss(torch.nn.Module):
    """`triplet_loss` for sentence-transformers' trainer."""

    def __init__(self, model: SentenceTransformer, margin: float) -> None:
        super().__init__()
        self.model, self._margin = model, margin

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Features are tokens of the first and of the second texts, for triples then of the hard
        negatives; labels are the ids of each pair. # (pairs, ids)
        """
        x, *others = embed_by_length(self.model, list(sentence_features))  # each (pairs, width)
        mask = same_text_mask if len(others) == 1 else same_text_mask_with_negatives
        return triplet_loss(x.float(), torch.cat(others).float(), mask(labels), self._margin)


def reciprocal_rank(x: Tensor, y: Tensor, shared: Tensor) -> float:
    """Return the mean of 1 / rank of each pair's y among its negatives.

    Ties rank the positive last: an encoder that gives equal vectors has the lowest rank.

    Args:
        x: unit vectors. # (pairs, width)
        y: of the positives, then of hard negatives, if any. # (candidates, width)
        shared: mask of the candidates that are no negatives. # (pairs, candidates)
    """
    cosines = x @ y.T  # (pairs, candidates)
    nearer = (cosines >= cosines.diagonal()[:, None]) & ~shared
    return float((1 / (1 + nearer.sum(1))).double().mean())


class RankEvaluator(BaseEvaluator):
    """Measures the mean reciprocal rank of held-out positives."""

    primary_metric = METRIC

    def __init__(self, pairs: Dataset, *, bfloat16: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        ids = torch.tensor(pairs[LABEL][:])
        second, self._shared = pairs[TEXT_B][:], same_text_mask(ids)
        if NEGATIVE in pairs.column_names:
            second += pairs[NEGATIVE][:]
            self._shared = same_text_mask_with_negatives(ids)  # (pairs, 2 pairs)
        self._texts = UniqueTexts(pairs[TEXT_A][:], second, bfloat16=bfloat16)

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return the mean reciprocal rank x 100."""
        return {METRIC: 100 * reciprocal_rank(*self._texts.encode(model), self._shared)}
