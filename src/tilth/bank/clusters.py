"""Groups of like directions among vectors."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

_STARTS = 4


def cluster(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], count: int, seed: int
) -> NDArray[np.int64]:
    """Group vectors of length 1 by k-means, the best of four starts.

    The result does not depend on the number of threads.

    Args:
        vectors: to group. # (rows, dimension)
        weights: how often each counts, above 0. # (rows,)
        count: of clusters, 1 or more; as many as there are distinct vectors (to four digits)
            if those are fewer.
        seed: of the first centres, 0 to 2**32 - 1.

    Returns:
        The cluster of each row: 0 is the heaviest; of equal ones, the one whose first row comes
        first. # (rows,)
    """
    # Equal sentences padded to other lengths differ in the last digits.
    count = min(count, len(np.unique(np.round(vectors, 4), axis=0)))
    if count == 1:
        return np.zeros(len(vectors), np.int64)

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    means = KMeans(count, n_init=_STARTS, random_state=seed)
    # Threads add up in their own order, and rounding then moves vectors on the border.
    with threadpool_limits(1), warnings.catch_warnings():
        # Vectors that differ in the last digit only; what it finds is good.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = means.fit_predict(vectors, sample_weight=weights)  # (rows,)
    first, codes = np.unique(found, return_index=True, return_inverse=True)[1:]
    sums = np.bincount(codes, weights)  # (clusters,)
    places = np.empty(len(sums), np.int64)
    places[np.lexsort((first, -sums))] = np.arange(len(sums))
    ordered: NDArray[np.int64] = places[codes]
    return ordered  # (rows,)
