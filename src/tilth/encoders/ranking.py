"""Chooses the checkpoint of a triplet training: the rank of the true partner among all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.evaluation import BaseEvaluator
from torch import Tensor

from tilth.encoders.hardest import sharing, sharing_with_negatives
from tilth.encoders.pairs import LABEL, NEGATIVE, TEXT_A, TEXT_B

if TYPE_CHECKING:
    from datasets import Dataset

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
