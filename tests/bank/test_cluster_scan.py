"""Searches that workers do, here in this process; tests/cluster has real ones."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.tiny import salads, small_parts, tiny_bank
from tilth.bank import Bank
from tilth.bank.search import cluster_scan
from tilth.errors import InputError
from tilth.runs.cluster import Cluster

TEXTS = salads(900, seed=4)


class Workers:
    """Does tasks in this process, the last first."""

    made: list[Any] = []  # noqa: RUF012

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __init__(self, cluster: Cluster, start: Any, shared: Any, **options: Any) -> None:
        shared.check_shared()
        self.count, self.options, self.ended = min(cluster.workers or 2, options["most"]), {}, False
        self._work, _ = pickle.loads(pickle.dumps(start))(None)
        self.tasks: list[Any] = []
        self.made.append(self)

    def __len__(self) -> int:
        return self.count

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def run(self, tasks: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
        for task in reversed(list(tasks)):
            self.tasks.append(task)
            yield task, self._work(pickle.loads(pickle.dumps(task)))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    module = ModuleType("tilth.runs.ray_cluster")
    monkeypatch.setattr(Workers, "made", [])
    monkeypatch.setattr(module, "Workers", Workers, raising=False)
    monkeypatch.setitem(sys.modules, "tilth.runs.ray_cluster", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    return Workers.made


@pytest.fixture(params=["int8", "compact"])
def bank(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    small_parts(monkeypatch)
    return tiny_bank(tmp_path, TEXTS, near=False, format=request.param)


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_hits_are_those_of_one_process(
    bank: Bank, queries: int, count: int, workers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(bank.shards) > 3
    monkeypatch.setattr(cluster_scan, "_CANDIDATES_AT_ONCE", 500)  # several answers of many queries
    how: dict[str, Any] = {
        "k": 60, "without": {"test": TEXTS[:200]}, "own": False, "sources": ["*raw*"],
        "min_similarity": 0.2,
    }  # fmt: skip
    asked = TEXTS[300 : 300 + queries]
    local = bank.search(asked, **how)
    found = bank.search(asked, **how, cluster=Cluster("ray", workers=count))
    np.testing.assert_array_equal(found.ids, local.ids)
    np.testing.assert_array_equal(found.similarity, local.similarity)
    assert found.removed == local.removed
    (made,) = workers
    assert made.ended
    assert {task.share for task in made.tasks} == set(range(min(count, len(bank.shards))))
    assert {task.threads for task in made.tasks} == {1}


def test_workers_stay_for_several_searches(bank: Bank, workers: list[Any]) -> None:
    cluster = Cluster("ray", workers=2, cpus_per_worker=3)
    with bank.on_cluster(cluster):
        bank.search(TEXTS[:1], k=3)
        bank.search(TEXTS[:2], k=3, cluster=cluster, threads=5)
        (made,) = workers
        assert not made.ended
    assert made.ended
    assert {task.threads for task in made.tasks} == {3, 5}
    bank.search(TEXTS[:1], k=3)
    assert len(workers) == 1


def test_what_a_cluster_does_not_do(bank: Bank, workers: list[Any]) -> None:
    with pytest.raises(InputError, match=r"an index is searched in this process: leave --on or"):
        bank.search(TEXTS[:1], k=3, index=True, cluster=Cluster("ray"))
    bank.path.rename(bank.path.with_name("elsewhere"))
    with pytest.raises(InputError, match=r"bank: host \S+ does not see this bank: put it on"):
        bank.search(TEXTS[:1], k=3, cluster=Cluster("ray"))
    assert not workers
