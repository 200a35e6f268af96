"""Trains a sentence encoder by contrast with the other texts of a batch, as SimCSE does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor

from tilth.data.examples import Source
from tilth.encoders.bi_encoder import METRIC, CorrelationEvaluator
from tilth.encoders.contrastive_sets import read_contrastive
from tilth.encoders.forward import embed_by_length
from tilth.encoders.graded_pairs import (
    ANY,
    NEGATIVE,
    TEXT_A,
    TEXT_B,
    TrainingPairs,
    read_dev_pairs,
)
from tilth.encoders.parallel_pairs import places_of
from tilth.encoders.settings import SINGLE_TEXTS_DROPOUT, SimcseTraining
from tilth.encoders.train import EncoderTraining, Objective
from tilth.errors import InputError
from tilth.limits import settings_of
from tilth.models.encoder import load_encoder
from tilth.models.names import name_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

_SHIPPED = "starter-encoder"
_INITIAL = 0.02  # standard deviation of the projection's weights, as of BERT's


def train_simcse(
    sources: Source | Sequence[Source],
    base: str = "starter-mlm",
    out: str | Path | None = None,
    *,
    validation: Source | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> SentenceTransformer:
    """Train a sentence encoder so that a text is nearer to its positive than to other texts.

    The positive of a single text is the text itself under another dropout mask. Every
    `evaluate_every` steps Spearman's correlation on `validation` is measured; the best checkpoint
    is kept.

    Args:
        sources: texts, pairs or triples, as `read_contrastive` reads them.
        base: `starter-mlm`, a folder or a hub id of an encoder.
        out: the run folder; the same call resumes from the last checkpoint. None: nothing is kept
            on disk.
        validation: graded pairs that choose the checkpoint, such as STS Benchmark's dev part. None:
            the last checkpoint is kept.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; one GPU.
        training: fields of `SimcseTraining`.

    Returns:
        The best encoder, in evaluation mode, without the layer that is used in training only.

    Raises:
        InputError: the data, the base or a setting are wrong, or `out` holds another run.
        TilthError: training diverged, or the folder cannot be written.

    Reference:
        Gao, Yao and Chen 2021, arXiv 2104.08821; with paraphrases as positives or as more triples:
        Ogasa, Kajiwara and Arase, section 5. Forward passes over texts of similar lengths are ours;
        the loss of a batch is the same. SimCSE keeps the layer where it trains on triples; here it
        is left out there, too.
    """
    base = name_of(base, "base")
    settings = settings_of(SimcseTraining, training)
    rows = read_contrastive(sources, settings.variant, settings.text)
    held_out = rows.select([]) if validation is None else read_dev_pairs(validation, highest=ANY)
    single = NEGATIVE not in rows.column_names and rows[TEXT_A][:] == rows[TEXT_B][:]
    dropout = {} if settings.dropout is None else {"dropout": settings.dropout}
    job = EncoderTraining(
        "train simcse",
        base,
        settings.training(base, triples=NEGATIVE in rows.column_names),
        simcse_objective(settings),
        {
            "temperature": settings.temperature, "rows": settings.rows,
            "group_lengths": settings.group_lengths, "variant": settings.variant,
        } | dropout,
        {"sources": places_of(sources)},
        partial(_projection, seed=settings.seed),
        SINGLE_TEXTS_DROPOUT if single and not dropout else settings.dropout,
    )  # fmt: skip
    parts, encoder = TrainingPairs(rows, held_out), job.load_base(device)
    if single and not has_dropout(encoder):
        log.warning(
            "base %r has no dropout: a text's positive has the very vector of the text, which is "
            "less than SimCSE's contrast; rewrites (tilth paraphrase) are other positives", base,
        )  # fmt: skip
    return job.train(encoder, parts, out, overwrite=overwrite, quiet=quiet)


def score_untrained(validation: Source, base: str, device: str) -> dict[str, float]:
    """Return Spearman's correlation x 100 on graded pairs: of a base, and of the shipped encoder.

    The latter is left out where it is not installed.
    """
    measure = CorrelationEvaluator(read_dev_pairs(validation, highest=ANY), bfloat16=False)
    found = {base: measure(load_encoder(base, device=device))[METRIC]}
    if base != _SHIPPED:
        with suppress(InputError):
            found[_SHIPPED] = measure(load_encoder(_SHIPPED, device=device))[METRIC]
    return found


def simcse_objective(settings: SimcseTraining) -> Objective:
    """Return the contrastive objective, evaluated by Spearman's correlation on graded pairs."""
    loss: Callable[[SentenceTransformer], torch.nn.Module]
    if settings.rows is None:
        loss = partial(SimcseLoss, temperature=settings.temperature)
    else:
        loss = partial(CachedSimcseLoss, temperature=settings.temperature, rows=settings.rows)
    return Objective(loss, CorrelationEvaluator, METRIC, "spearman", settings.group_lengths)


class SimcseLoss(MultipleNegativesRankingLoss):
    """Cross-entropy of each text's positive among the positives and hard negatives of the batch.

    Cosines over a temperature, in float32.
    """

    def __init__(self, model: SentenceTransformer, temperature: float) -> None:
        super().__init__(model, scale=1 / temperature)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch: tokens of texts, positives and, of triples, negatives."""
        embeddings = embed_by_length(self.model, list(sentence_features))  # each (rows, width)
        with torch.autocast(embeddings[0].device.type, enabled=False):
            return self.compute_loss_from_embeddings([one.float() for one in embeddings], labels)


class CachedSimcseLoss(CachedMultipleNegativesRankingLoss):
    """`SimcseLoss` in passes of few rows, whose gradients are cached (Gao et al. 2021)."""

    def __init__(self, model: SentenceTransformer, temperature: float, rows: int) -> None:
        super().__init__(model, scale=1 / temperature, mini_batch_size=rows)
        self.repeats_dropout = has_dropout(model)

    def calculate_loss(self, reps: list[list[Tensor]], *args: Any, **options: Any) -> Tensor:
        """Return the loss of all passes' vectors, in float32."""
        exact = [[one.float() for one in column] for column in reps]
        with torch.autocast(reps[0][0].device.type, enabled=False):
            return super().calculate_loss(exact, *args, **options)


def has_dropout(encoder: SentenceTransformer) -> bool:
    """Return whether an encoder draws dropout in training."""
    config = getattr(encoder[0], "auto_model", None)
    settings = {} if config is None else config.config.to_dict()
    return any(
        "drop" in name and "classif" not in name and isinstance(value, float) and value > 0
        for name, value in settings.items()
    )


class TrainingProjection(Dense):
    """A linear layer with tanh that evaluation leaves out ("MLP in training only")."""

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Project the sentence vectors, (texts, width), in training mode."""
        projected: dict[str, Any] = super().forward(features) if self.training else features
        return projected


def _projection(encoder: SentenceTransformer, seed: int) -> TrainingProjection:
    width = encoder.get_embedding_dimension()
    assert width is not None  # a pooled encoder has one
    generator = torch.Generator().manual_seed(seed)
    weight = torch.empty(width, width).normal_(std=_INITIAL, generator=generator)
    return TrainingProjection(width, width, init_weight=weight, init_bias=torch.zeros(width))
