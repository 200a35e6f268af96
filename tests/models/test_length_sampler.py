import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import graded_pairs
from tilth.encoders.train import LengthGrouped, characters
from tilth.models.trainer import length_grouped


@given(st.lists(st.integers(1, 60), min_size=1, max_size=400), st.integers(1, 9), st.integers(0, 3))
def test_each_pair_once_and_one_short_batch_at_most(
    lengths: list[int], batch: int, epoch: int
) -> None:
    batches = length_grouped(np.array(lengths), batch, seed=0, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // batch)
    assert sum(len(rows) < batch for rows in batches) <= 1


def test_padding_shrinks() -> None:
    lengths = np.random.default_rng(0).integers(5, 60, 4096)
    grouped = length_grouped(lengths, 32, seed=0, epoch=0)
    drawn = np.random.default_rng(1).permutation(4096).reshape(-1, 32)
    padded = sum(len(rows) * lengths[rows].max() for rows in grouped)
    at_random = sum(32 * lengths[rows].max() for rows in drawn)
    assert padded < 1.05 * lengths.sum() < 0.7 * at_random


def test_order_follows_seed_and_epoch_and_lengths_are_mixed() -> None:
    lengths = np.random.default_rng(0).integers(5, 60, 2048)

    def first(seed: int, epoch: int) -> list[int]:
        batches = length_grouped(lengths, 32, seed=seed, epoch=epoch)
        return np.concatenate(batches).tolist()

    assert first(0, 0) == first(0, 0)
    assert first(0, 0) != first(1, 0)
    assert first(0, 0) != first(0, 1)
    means = [lengths[rows].mean() for rows in length_grouped(lengths, 32, seed=0, epoch=0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.4


def test_the_longer_text_counts() -> None:
    pairs = Dataset.from_dict({"text_a": ["ab", "ä"], "text_b": ["abcd", "éèê"], "label": [0, 1]})
    assert characters(pairs).tolist() == [4, 3]


def test_the_sampler_gives_the_trainer_these_batches() -> None:
    pairs = Dataset.from_dict(graded_pairs(100))
    sampler = LengthGrouped(pairs, 8, False, seed=5)
    expected = length_grouped(characters(pairs), 8, seed=5, epoch=2)
    sampler.set_epoch(2)
    assert list(sampler) == [rows.tolist() for rows in expected]
    assert len(sampler) == len(expected) == 13


def test_a_batch_larger_than_the_set() -> None:
    (only,) = length_grouped(np.array([3, 1, 2]), 32, seed=0, epoch=0)
    assert sorted(only.tolist()) == [0, 1, 2]
    with pytest.raises(ValueError, match="range"):
        length_grouped(np.array([3]), 0, seed=0, epoch=0)
