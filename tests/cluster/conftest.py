"""A Ray cluster on this machine for the tests of a file; without Ray they are skipped."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Start a cluster of four places for workers, and join it."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'tilth[cluster]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # else other processes' tests starve it
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        ray.init(num_cpus=4, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        yield ray
        ray.shutdown()
