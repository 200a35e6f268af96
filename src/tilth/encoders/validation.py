"""Chooses the checkpoint: Spearman's correlation of cosines with the labels of held-out pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sentence_transformers.base.evaluation import BaseEvaluator

from tilth.encoders.pairs import LABEL, TEXT_A, TEXT_B

if TYPE_CHECKING:
    from datasets import Dataset

METRIC = "spearman_cosine"


class Validation(BaseEvaluator):
    """Measures an encoder on graded pairs by the cosine alone; each text is encoded once.

    The original's evaluator took the best of four similarities; this takes the one that is
    trained and reported.
    """

    primary_metric = METRIC

    def __init__(self, pairs: Dataset, *, batch: int, bfloat16: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        columns = [pairs[TEXT_A][:], pairs[TEXT_B][:]]
        places = {text: i for i, text in enumerate(dict.fromkeys([*columns[0], *columns[1]]))}
        self._texts = list(places)
        self._rows = [np.array([places[text] for text in column]) for column in columns]
        self._ranks = rankdata(pairs[LABEL][:])  # (pairs,)
        self._batch, self._bfloat16 = batch, bfloat16

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return Spearman's correlation x 100; 0 when the encoder tells no texts apart."""
        with torch.autocast(model.device.type, torch.bfloat16, enabled=self._bfloat16):
            encoded = model.encode(
                self._texts, batch_size=self._batch, convert_to_tensor=True, show_progress_bar=False
            )  # (texts, width)
        vectors = torch.nn.functional.normalize(encoded.float(), dim=1).cpu().numpy()
        left, right = (vectors[rows] for rows in self._rows)  # (pairs, width)
        return {METRIC: 100 * _correlation(self._ranks, rankdata((left * right).sum(1)))}


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length else 0.0
