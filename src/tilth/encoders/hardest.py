"""Triplet loss with the hardest negative of a batch: pure functions, and the module that trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from torch import Tensor
from torch.nn.functional import normalize, relu

if TYPE_CHECKING:
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
