"""Shares of batches between processes; tests/system/test_distributed.py trains in two."""

from typing import Any

import numpy as np
import pytest
import torch

from tilth.classifiers.finetune import fine_tune
from tilth.encoders.train import fit_encoder
from tilth.errors import InputError
from tilth.models import distributed, trainer
from tilth.models.distributed import every_process, from_every, from_first, shares, weighted
from tilth.models.trainer import LengthBatchSampler, check_processes


def together(patch: pytest.MonkeyPatch, processes: int, *, rank: int = 0) -> None:
    for module in (distributed, trainer):
        patch.setattr(module, "processes", lambda: processes)
        patch.setattr(module, "rank", lambda: rank)


def test_shares_are_all_rows_once_or_all_rows_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares([4, 5, 6]) == [[4, 5, 6]]
    together(monkeypatch, 3)
    assert shares(range(7)) == [[0, 3, 6], [1, 4], [2, 5]]
    assert shares([8, 9]) == [[8, 9]] * 3


def test_a_sampler_yields_each_batch_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.arange(50, 0, -1)
    whole = list(LengthBatchSampler(lengths, 8, seed=3))
    together(monkeypatch, 2)
    sampler = LengthBatchSampler(lengths, 8, seed=3)
    parts = list(sampler)
    assert len(parts) == len(sampler) == 2 * len(whole)
    assert [sorted(one + two) for one, two in zip(parts[::2], parts[1::2], strict=True)] == [
        sorted(rows) for rows in whole
    ]


def test_losses_are_weighted_by_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert weighted(torch.tensor(6.0), 3) == 6
    together(monkeypatch, 2)
    monkeypatch.setattr("torch.distributed.all_reduce", lambda total: total.add_(1))
    means = [weighted(torch.tensor(6.0), 3), torch.tensor(2.0) * (1 * 2 / 4)]  # of 3 rows and 1
    assert sum(means) / 2 == (3 * 6 + 2) / 4


def test_one_process_joins_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with every_process() as leads:
        assert leads
        assert from_first(lambda: 5) == 5
        assert from_every(5) == [5]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="runs in one process: start it without torchrun"):
        check_processes("cpu")
    together(monkeypatch, 2)
    check_processes("cpu")


@pytest.mark.parametrize("training", [fine_tune, fit_encoder])
def test_trainings_run_in_every_process(monkeypatch: pytest.MonkeyPatch, training: Any) -> None:
    told: list[Any] = []
    monkeypatch.setattr(distributed, "processes", lambda: 2)
    monkeypatch.setattr(distributed, "rank", lambda: 0)
    monkeypatch.setattr(distributed, "_from_first", told.append)
    with pytest.raises(TypeError):  # of the training itself, which is given nothing
        training()
    assert told == [(training, (), {})]
