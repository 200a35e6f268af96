from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tilth.bank.queries import cluster


def directions(count: int, width: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def spread(vectors: NDArray[np.float32], weights: NDArray[np.float64], codes: list[int]) -> float:
    """Return the weighted squared distances to the clusters' means, by plain loops."""
    total = 0.0
    for code in set(codes):
        own = [place for place, other in enumerate(codes) if other == code]
        mean = sum(weights[place] * vectors[place] for place in own) / weights[own].sum()
        total += sum(weights[place] * float(((vectors[place] - mean) ** 2).sum()) for place in own)
    return total


def test_two_clusters_are_the_best_of_all_partitions() -> None:
    for seed in range(5):
        vectors = directions(9, 3, seed)
        weights = np.random.default_rng(seed).integers(1, 4, 9).astype(np.float64)
        found = cluster(vectors, weights, 2, seed)
        best = min(spread(vectors, weights, list(codes)) for codes in product((0, 1), repeat=9))
        assert spread(vectors, weights, found.tolist()) < best * 1.02


def test_clusters_come_by_weight_then_by_first_row() -> None:
    vectors = np.array([[1, 0], [0, 1], [-1, 0], [0.99, 0.01]], np.float32)
    assert cluster(vectors, np.array([1.0, 1, 1, 1]), 3, 0).tolist() == [0, 1, 2, 0]
    assert cluster(vectors, np.array([1.0, 5, 1, 1]), 3, 0).tolist() == [1, 0, 2, 1]


def test_equal_vectors_share_a_cluster() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    for count in (2, 3, 9):
        assert cluster(vectors, np.ones(3), count, 0).tolist() == [0, 0, 1]
    assert cluster(vectors[:2], np.ones(2), 5, 0).tolist() == [0, 0]


def test_seed_and_count_matter_and_threads_do_not() -> None:
    vectors = directions(3000, 16, 0)
    weights = np.ones(3000)
    found = cluster(vectors, weights, 6, 0)
    assert len(set(found.tolist())) == 6
    assert len(set(cluster(vectors, weights, 7, 0).tolist())) == 7
    assert not np.array_equal(found, cluster(vectors, weights, 6, 1))
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            np.testing.assert_array_equal(found, cluster(vectors, weights, 6, 0))
