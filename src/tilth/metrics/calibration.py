"""Whether a model is right as often as its probabilities say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15


def calibration(
    probability: NDArray[np.floating[Any]], right: NDArray[np.bool_], *, bins: int = BINS
) -> dict[str, Any]:
    """Compare probabilities with how often what they stand for holds.

    Args:
        probability: 0 to 1, (decisions,).
        right: whether the decision was right, or the label holds, (decisions,).
        bins: of equal width between 0 and 1.

    Returns:
        error: expected calibration error, 0 to 1: the mean over decisions of how far the mean
        probability of their bin is from the share that is right; bins: low, high, n, probability
        (mean), right (share) of each that holds any.

    Reference:
        Guo et al. 2017, arXiv:1706.04599, section 2; 15 bins as there.
    """
    probability = np.asarray(probability, float)
    places = np.clip(np.ceil(probability * bins).astype(int) - 1, 0, bins - 1)  # (low, high]
    held = np.bincount(places, minlength=bins)  # (bins,)
    filled = np.flatnonzero(held)
    means = np.bincount(places, weights=probability, minlength=bins)[filled] / held[filled]
    shares = np.bincount(places, weights=right, minlength=bins)[filled] / held[filled]
    error = float(np.abs(means - shares) @ held[filled] / len(probability))
    return {
        "error": error,
        "bins": [
            {"low": at / bins, "high": (at + 1) / bins, "n": int(held[at]),
             "probability": float(mean), "right": float(share)}
            for at, mean, share in zip(filled.tolist(), means, shares, strict=True)
        ],
    }  # fmt: skip
