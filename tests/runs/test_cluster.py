"""The settings of a cluster."""

import socket
from typing import Any

import pytest

from tests.tiny.calls import python
from tilth.errors import InputError
from tilth.runs import cluster
from tilth.runs.cluster import Cluster


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: object())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"on": "dask"}, r"--on 'dask' is unknown: use ray or ray://host:port"),
        ({"on": "ray://head"}, r"--on 'ray://head' is unknown"),
        ({"on": "ray", "gpus_per_worker": 1.5}, r"gpus_per_worker is 1.5: above 1, give a whole"),
        ({"on": "ray", "workers": 0}, "workers is 0"),
        ({"on": "ray", "cpus_per_worker": 0.0}, "cpus_per_worker is 0"),
        ({"workers": 2}, "and no cluster: add --on ray"),
        ({"cpus_per_worker": 2.0}, "and no cluster: add --on ray"),
        ({"gpus_per_worker": 1.0}, "and no cluster: add --on ray"),
    ],
)
def test_wrong_clusters_are_refused(asked: dict[str, Any], said: str, with_ray: None) -> None:
    with pytest.raises(InputError, match=said):
        Cluster(**asked)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"needs the package ray: pip install 'tilth\[cluster\]'"):
        Cluster("ray")
    Cluster()


def test_an_address_where_nothing_answers_is_refused_at_once(with_ray: None) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        asked = Cluster(f"ray://127.0.0.1:{port}")
        with pytest.raises(InputError, match=rf"127.0.0.1:{port}: no cluster answers there \("):
            asked.check_head()
        other.listen()
        asked.check_head()
    Cluster("ray").check_head()


def test_the_module_loads_nothing_heavy() -> None:
    code = "import sys, tilth.runs.cluster\nprint({'pyarrow', 'torch', 'ray'} & set(sys.modules))"
    assert python(code).stdout == "set()\n"
