"""Trains a sentence encoder on pairs that mean the same, as SentAugment's SASE, in a run folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor
from torch.nn.functional import normalize, relu

from tilth.encoders.graded_pairs import LABEL, NEGATIVE, TEXT_A, TEXT_B, Pairs
from tilth.encoders.parallel_pairs import read_parallel
from tilth.encoders.settings import TripletTraining
from tilth.encoders.train import Aim, Order, open_base, train

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer


def sharing(names: Tensor) -> Tensor:
    """Tell which pairs of a batch have a name in common: they are no negatives of one another.

    Args:
        names: of each pair's texts, and of what else it belongs to; the same number is the same
            text or group. # (pairs, names)

    Returns:
        Symmetric, true on the diagonal. # (pairs, pairs)
    """
    equal = names[:, None, :, None] == names[None, :, None, :]  # (pairs, pairs, names, names)
    shared: Tensor = equal.flatten(2).any(2)
    return shared  # (pairs, pairs)


def sharing_with_negatives(names: Tensor) -> Tensor:
    """Tell what `sharing` tells of the pairs, and after that of the hard negatives of a batch.

    A text that a pair of the batch rejects is a negative of every pair that does not hold it.

    Args:
        names: as of `sharing`; the last number of a pair names its hard negative, 0: it has none.
            # (pairs, names + 1)

    Returns:
        True where a second text, or then a hard negative, is no negative of a pair.
        # (pairs, 2 pairs)
    """
    own, negatives = names[:, :-1], names[:, -1]
    held = (own[:, :, None] == negatives).any(1) | (negatives == 0)  # (pairs, negatives)
    return torch.cat([sharing(own), held], 1)  # (pairs, 2 pairs)


def triplet_loss(x: Tensor, y: Tensor, shared: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, margin - cos(x, y) + cos(x, y_c)).

    y_c is the y of another pair, or the hard negative, that is nearest to x; a pair that shares a
    text with every other has none, and a loss of 0.

    Args:
        x: vectors of the pairs' first texts. # (pairs, width)
        y: of their second texts, then of hard negatives, if there are any. # (candidates, width)
        shared: as of `sharing` or `sharing_with_negatives`. # (pairs, candidates)
        margin: by how much y should be nearer than y_c, in cosines.

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


class HardestInBatch(torch.nn.Module):
    """Gives sentence-transformers' trainer the triplet loss.

    Args:
        model: the encoder.
        margin: see `triplet_loss`.
    """

    def __init__(self, model: SentenceTransformer, margin: float) -> None:
        super().__init__()
        self.model, self._margin = model, margin

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: the tokens of its first and of its second texts; of triples then
                those of its hard negatives.
            labels: the names of each pair, see `sharing`, of triples `sharing_with_negatives`.
                # (pairs, names)
        """
        x, *others = embed_columns(self.model, sentence_features)  # each (pairs, width)
        shared = sharing(labels) if len(others) == 1 else sharing_with_negatives(labels)
        return triplet_loss(x.float(), torch.cat(others).float(), shared, self._margin)


METRIC = "reciprocal_rank"


def reciprocal_rank(x: Tensor, y: Tensor, shared: Tensor) -> float:
    """Return the mean of 1 / rank of each pair's y among those y that are negatives of it.

    Of equals, the partner comes last: an encoder that tells nothing apart is at the bottom.

    Args:
        x: unit vectors. # (pairs, width)
        y: their partners', then those of hard negatives, if there are any. # (candidates, width)
        shared: as of `sharing` or `sharing_with_negatives`. # (pairs, candidates)
    """
    cosines = x @ y.T  # (pairs, candidates)
    nearer = (cosines >= cosines.diagonal()[:, None]) & ~shared
    return float((1 / (1 + nearer.sum(1))).double().mean())


class Ranking(BaseEvaluator):
    """Measures an encoder on held-out pairs; each text is encoded once."""

    primary_metric = METRIC

    def __init__(self, pairs: Dataset, *, batch: int, bfloat16: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        names = torch.tensor(pairs[LABEL][:])
        second, self._shared = pairs[TEXT_B][:], sharing(names)
        if NEGATIVE in pairs.column_names:
            second += pairs[NEGATIVE][:]
            self._shared = sharing_with_negatives(names)  # (pairs, 2 pairs)
        columns = [pairs[TEXT_A][:], second]
        places = {text: i for i, text in enumerate(dict.fromkeys([*columns[0], *columns[1]]))}
        self._texts = list(places)
        self._rows = [torch.tensor([places[text] for text in column]) for column in columns]
        self._batch, self._bfloat16 = batch, bfloat16

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return the mean reciprocal rank x 100."""
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self._bfloat16):
            encoded = model.encode(
                self._texts, batch_size=self._batch, convert_to_tensor=True, show_progress_bar=False
            )  # (texts, width)
        vectors = torch.nn.functional.normalize(encoded.float(), dim=1).cpu()
        x, y = (vectors[rows] for rows in self._rows)  # (pairs, width), (candidates, width)
        return {METRIC: 100 * reciprocal_rank(x, y, self._shared)}


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
    from tilth.models.trainer import settings_of

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
