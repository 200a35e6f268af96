"""A bank on a cluster: workers that die, and commands killed at any step, change nothing."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs
from tests.invariants.trainings import content
from tests.tiny import salads, small_parts, small_ranges, tiny_static, write_lines
from tests.tiny.calls import python, wait_until
from tilth.bank import Bank
from tilth.runs import Run
from tilth.runs.cluster import Cluster

LONG = "The old man and the dog sleeps under the red boat near the green river with {} and {}"


def two() -> dict[str, Any]:
    """Return the options of two workers, which need Ray."""
    return {"workers": 2, "cluster": Cluster("ray"), "quiet": True}


def sentences(folder: Path) -> list[Path]:
    """Write two sources with exact and near duplicates, within each and between them."""
    texts = salads(900, seed=2)
    near = [LONG.format(text.split()[0], number) for number, text in enumerate(texts[:200])]
    return [
        write_lines(folder / "one.txt", texts[:500] + near[:120]),
        write_lines(folder / "two.txt", texts[400:] + near[80:]),
    ]


def where(task: int, folder: Path, by: int) -> tuple[int, int]:
    if task % 4 == 1 and jobs.once(folder / f"died-{by}-{task}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), task * by


def test_workers_stay_for_the_next_function(ray: Any, tmp_path: Path) -> None:
    from tilth.runs.ray_parts import TaskWorkers  # needs Ray

    run: Run = jobs.numbers_run(tmp_path / "run")
    with run, TaskWorkers(Cluster("ray", workers=2), run.as_worker()) as workers:
        assert list(workers.do(where, iter(()), tmp_path, 2)) == []
        for by in (2, 3):
            found = list(workers.do(where, iter(range(8)), tmp_path, by))
            assert sorted(number for _, number in found) == [by * task for task in range(8)]
        earlier = {process for process, _ in found}
        assert {
            process for process, _ in workers.do(where, iter(range(0, 16, 4)), tmp_path, 0)
        } <= (earlier)


ALONE = """
import os, sys
from tests.cluster import jobs
from tilth.runs.cluster import Cluster
from tilth.runs.ray_parts import TaskWorkers

run = jobs.numbers_run(sys.argv[1])
with run, TaskWorkers(Cluster("ray", workers=1), run.as_worker()) as workers:
    print(*workers.do(lambda _: os.nice(0), iter([0])), os.nice(0))
"""


@pytest.mark.slow
def test_workers_of_a_cluster_for_one_command_have_its_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    for name in ("RAY_ADDRESS", "RAY_worker_niceness"):
        monkeypatch.delenv(name, raising=False)
    worker, own = python(ALONE, tmp_path / "run").stdout.split()
    assert worker == own


BUILD = """
import sys
import pytest
from tests.cluster.test_bank import two
from tests.tiny import small_parts, small_ranges, tiny_static
from tilth.bank import Bank

with pytest.MonkeyPatch.context() as patch:
    small_parts(patch)
    small_ranges(patch)
    Bank.build(sys.argv[1], sys.argv[2:], encoder=tiny_static(), device="cpu", **two())
"""


def _is_there(out: Path, pattern: str, driver: subprocess.Popen[str]) -> bool:
    return any(out.glob(pattern)) or driver.poll() is not None


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_build_that_is_killed_at_any_step_goes_on(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    small_ranges(monkeypatch)
    sources = sentences(tmp_path)
    how: dict[str, Any] = {"encoder": tiny_static(), "device": "cpu"}
    local = Bank.build(tmp_path / "local", sources, workers=1, quiet=True, **how)
    assert set(local.manifest.dropped) >= {"exact duplicate", "near duplicate"}
    out = tmp_path / "ray"
    command = [sys.executable, "-c", BUILD, str(out), *map(str, sources)]
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    for pattern in (
        "adding/parts/*.parquet", "dropped-exact-*", "texts-*", "dropped-near_3-*",
        "shards/*/shard.json",
    ):  # fmt: skip
        found = pattern if "/" in pattern else f"adding/duplicates/*/{pattern}"
        driver = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        wait_until(partial(_is_there, out, found, driver), seconds=300)
        assert driver.poll() is None, driver.communicate()[1]
        driver.kill()
        driver.communicate()
        made = {path: path.stat().st_ino for path in out.glob("adding/duplicates/*/*.arrow")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert made
    assert content(out) == content(tmp_path / "local")
