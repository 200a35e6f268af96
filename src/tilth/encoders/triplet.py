"""Trains a sentence encoder on pairs that mean the same, as SentAugment's SASE, in a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilth.encoders.fitting import Aim, Order, open_base, train
from tilth.encoders.pairs import Pairs
from tilth.encoders.parallel import read_parallel
from tilth.encoders.settings import TripletTraining

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def train_triplet(
    pairs: str | Path | Dataset | Sequence[str | Path | Dataset] | Pairs,
    base: str = "starter-encoder",
    out: str | Path | None = None,
    *,
    pivot: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **training: Any,
) -> SentenceTransformer:
    """Train a sentence encoder so that texts that mean the same are near one another.

    The loss asks that a partner be nearer, by a margin, than the hardest negative of the batch,
    in which the negatives of triples are as well.
    At every checkpoint the encoder is measured on held-out pairs (the reciprocal rank of the
    partner among all others), and the best is kept. Pairs of like lengths share a batch.

    Args:
        pairs: what `read_parallel` reads, or what it returned.
        base: `starter-encoder`, `starter-mlm`, a folder or a hub id of an encoder; a masked
            language model, as in the paper, or one that was trained on similarity before.
        out: the run folder; the same call goes on from its last checkpoint, and
            `load_encoder(out)` loads the result. None: nothing is kept on disk.
        pivot: see `read_parallel`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; one GPU.
        overwrite: begin the run anew.
        quiet: no progress.
        training: see `TripletTraining`: dimension, margin, epochs, batch, learning_rate, warmup,
            weight_decay, evaluate_every, pooling, max_length, precision, seed, min_score.

    Returns:
        The best encoder, in evaluation mode: the base, pooled, and a linear map.

    Raises:
        InputError: the pairs, the base or a setting are wrong, or `out` holds another run.
        TilthError: training gave no numbers, or the folder cannot be written.

    Reference:
        Du et al. 2020, arXiv 2010.02194, sections 2.1 and 3.3. Its base is a multilingual masked
        language model; the batches of like lengths and the held-out pairs are ours.
    """
    from tilth.models.training import settings_of

    settings = settings_of(TripletTraining, training).for_base(base)
    order = Order("train triplet", base, settings, {"pivot": pivot}, {"sources": _names(pairs)})
    if not isinstance(pairs, Pairs):
        pairs = read_parallel(pairs, pivot=pivot, min_score=settings.min_score, seed=settings.seed)
    encoder = open_base(order, device)
    encoder.append(_projection(encoder, settings).to(encoder.device))
    aim = towards_partners(settings.margin)
    return train(encoder, pairs, aim, order, out, overwrite=overwrite, quiet=quiet)


@dataclass(frozen=True, slots=True)
class Learned:
    """How a triplet training went.

    Attributes:
        best: the step whose weights were kept.
        step: of each checkpoint.
        reciprocal_rank: x 100, of the partners of held-out texts.
        loss: mean since the checkpoint before.
    """

    best: int
    step: list[int]
    reciprocal_rank: list[float]
    loss: list[float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def learned(run: str | Path) -> Learned:
    """Return how the training of a finished run went."""
    import pyarrow.parquet as pq

    curve = pq.read_table(Path(run) / "parts" / "part-00000.parquet").to_pydict()
    ranks = curve["reciprocal_rank"]
    return Learned(curve["step"][ranks.index(max(ranks))], curve["step"], ranks, curve["loss"])


def towards_partners(margin: float) -> Aim:
    """Return the aim: partners nearer than the hardest negative, judged by their rank."""
    from tilth.encoders.hardest import HardestInBatch
    from tilth.encoders.ranking import METRIC, Ranking

    return Aim(partial(HardestInBatch, margin=margin), Ranking, METRIC, column=METRIC)


def _projection(encoder: SentenceTransformer, settings: TripletTraining) -> torch.nn.Module:
    """Return the linear map to the dimension asked for; cosines begin as the base has them."""
    from sentence_transformers.base.modules.dense import Dense

    width = encoder.get_embedding_dimension()
    assert width is not None  # an encoder that pools knows it
    rows = torch.empty(settings.dimension, width)
    torch.nn.init.orthogonal_(rows, generator=torch.Generator().manual_seed(settings.seed))
    zero = torch.zeros(settings.dimension)
    return Dense(
        width, settings.dimension, activation_function=None, init_weight=rows, init_bias=zero
    )


def _names(pairs: object) -> list[str]:
    """Return where pairs lie, as far as that is known."""
    given = pairs if isinstance(pairs, list | tuple) else [pairs]
    return [str(source) for source in given if isinstance(source, str | Path)]
