"""Workers of a cluster put their parts to a URL themselves: the files are those of one process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import test_same_rows as jobs
from tests.cluster.conftest import ROOT
from tests.storage.server import Server
from tests.storage.test_jobs import compare
from tests.tiny import small_parts
from tilth.runs.cluster import Cluster
from tilth.storage import as_path


@pytest.fixture(scope="module")
def ray(_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a cluster of two places whose workers reach the server, in a folder of their own."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'tilth[cluster]'")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _server.environment.items():
            patch.setenv(name, value)
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("TILTH_CACHE", str(tmp_path_factory.mktemp("workers")))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        import ray

        ray.init(num_cpus=2, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        yield ray
        ray.shutdown()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("job", [jobs.generate, jobs.bank])
def test_files_of_workers_are_those_of_one_process(
    job: Callable[[Path], jobs.Job],
    ray: Any,
    s3: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_parts(monkeypatch)
    make = job(tmp_path)
    make(tmp_path / "local", Cluster())
    make(as_path(f"s3://bucket/{tmp_path.name}"), Cluster("ray", workers=2))
    compare(tmp_path / "local", s3.objects(tmp_path.name))
