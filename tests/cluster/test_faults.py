"""Accidents on a cluster of three hosts, which are network namespaces: the rows end up the same.

Needs root and Ray; `pytest -m slow -s tests/cluster/test_faults.py` shows what happened.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import jobs
from tests.cluster.hosts import Hosts, can_make_hosts, cluster
from tests.tiny.calls import wait_until
from tilth.runs.backends import make_parts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root and ip"),
]
KILLS = int(os.environ.get("TILTH_KILLS", "20"))


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Return a head without workers, two hosts with room for two workers and for one, and one
    without Ray.
    """
    pytest.importorskip("ray")
    with cluster((0, 2, 1)) as found:
        yield found


def begin(
    hosts: Hosts, out: Path, parts: int, seconds: float, *, host: int = 0, on: str = "ray"
) -> subprocess.Popen[str]:
    words = ["-m", "tests.cluster.driver", str(out), str(parts), str(seconds), on]
    return hosts.popen(host, [sys.executable, *words])


def end(driver: subprocess.Popen[str]) -> str:
    """Wait for a driver; return what it said, which is one line where it failed."""
    _, said = driver.communicate(timeout=600)
    assert (driver.returncode, said) == (0, "") or said.count("\n") == 1, said
    return said


def parts_of(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in out.glob("parts/part-*")}


def expect(out: Path, parts: int) -> None:
    """Check that the files of a run are those of one made in this process."""
    local = out.with_name("local")
    with jobs.numbers_run(local, parts) as run:
        make_parts(run, jobs.numbers_job(parts), quiet=True)
    assert jobs.part_files(out) == jobs.part_files(local)


def has_parts(out: Path, number: int) -> Callable[[], bool]:
    return lambda: len(parts_of(out)) >= number


def say(*words: Any) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def test_workers_are_killed(hosts: Hosts, tmp_path: Path) -> None:
    out, moments, kills = tmp_path / "run", random.Random(0), 0
    driver = begin(hosts, out, 80, 0.7)
    wait_until(has_parts(out, 1), seconds=300)
    while driver.poll() is None and kills < KILLS:
        time.sleep(moments.uniform(0.5, 2))
        if found := hosts.workers():
            os.kill(moments.choice(found), signal.SIGKILL)
            kills += 1
    assert end(driver) == ""
    say(kills, "workers killed")
    assert kills == KILLS
    expect(out, 80)


def test_a_host_dies_and_comes_back(hosts: Hosts, tmp_path: Path) -> None:
    out = tmp_path / "run"
    driver = begin(hosts, out, 200, 0.5)
    wait_until(has_parts(out, 6), seconds=300)
    hosts.kill(1)
    dead, killed = len(parts_of(out)), time.monotonic()
    wait_until(has_parts(out, dead + 4), seconds=300)  # host 2 goes on alone
    assert not hosts.processes(1)
    hosts.start(1, cpus=2)
    wait_until(lambda: hosts.processes(1, "ray::_Worker"), seconds=300)
    back = time.monotonic() - killed
    say(f"host killed after {dead} parts, its workers are back {back:.0f} s later")
    assert end(driver) == ""
    expect(out, 200)


def test_a_raylet_dies(hosts: Hosts, tmp_path: Path) -> None:
    """The raylet holds the host's object store, and its workers end with it."""
    out = tmp_path / "run"
    driver = begin(hosts, out, 30, 0.5)
    wait_until(has_parts(out, 4), seconds=300)
    (raylet,) = (
        pid
        for pid in hosts.processes(1)
        if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(b"raylet")
    )
    os.kill(raylet, signal.SIGKILL)
    assert end(driver) == ""
    expect(out, 30)


def test_the_network_of_a_host_is_cut_for_half_a_minute(hosts: Hosts, tmp_path: Path) -> None:
    out = tmp_path / "run"
    driver = begin(hosts, out, 120, 0.7)
    wait_until(has_parts(out, 6), seconds=300)
    hosts.cut(1)
    before = len(parts_of(out))
    time.sleep(30)
    say(before, "parts when it was cut,", len(parts_of(out)), "when it was healed")
    assert len(parts_of(out)) > before + 2
    hosts.heal(1)
    assert end(driver) == ""
    expect(out, 120)


def test_the_command_is_killed_and_repeated(hosts: Hosts, tmp_path: Path) -> None:
    out, made = tmp_path / "run", [0]
    for number in (4, 12, 20):
        driver = begin(hosts, out, 30, 0.5)
        wait_until(has_parts(out, number), seconds=300)
        driver.kill()
        driver.communicate()
        before = parts_of(out)
        made.append(len(before))
    driver = begin(hosts, out, 30, 0.5)
    assert end(driver) == ""
    say("killed after", made[1:], "parts")
    assert before.items() <= parts_of(out).items()  # none is made twice
    expect(out, 30)


def test_everything_dies(hosts: Hosts, tmp_path: Path) -> None:
    out = tmp_path / "run"
    driver = begin(hosts, out, 20, 0.5)
    wait_until(has_parts(out, 5), seconds=300)
    for host in range(3):
        hosts.kill(host)
    driver.communicate()
    before = parts_of(out)
    for host, cpus in enumerate((0, 2, 1)):
        hosts.start(host, cpus=cpus)
    driver = begin(hosts, out, 20, 0.2)
    assert end(driver) == ""
    assert before.items() <= parts_of(out).items()
    expect(out, 20)


def test_the_disk_is_full_until_there_is_room(hosts: Hosts, tmp_path: Path) -> None:
    out, disk = tmp_path / "disk" / "run", tmp_path / "disk"
    disk.mkdir()
    try:
        for host in range(3):  # each host sees the disk: they have copies of the mounts
            hosts.kill(host)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", disk], check=True)
        for host, cpus in enumerate((0, 2, 1)):
            hosts.start(host, cpus=cpus)
        said = end(begin(hosts, out, 40, 0.1))
        assert "the disk is full: free some space and run the same command again" in said
        before = parts_of(out)
        say("full after", len(before), "parts")
        assert 0 < len(before) < 40
        subprocess.run(["mount", "-o", "remount,size=4M", disk], check=True)
        assert end(begin(hosts, out, 40, 0.1)) == ""
        assert before.items() <= parts_of(out).items()
        expect(out, 40)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_the_command_runs_beside_the_cluster(hosts: Hosts, tmp_path: Path) -> None:
    out, on = tmp_path / "run", f"ray://{hosts.address(0)}:10001"
    driver = begin(hosts, out, 30, 0.5, host=hosts.bare, on=on)
    wait_until(has_parts(out, 5), seconds=300)
    os.kill(hosts.workers()[0], signal.SIGKILL)
    assert end(driver) == ""
    expect(out, 30)
    said = end(begin(hosts, out, 30, 0.5, host=hosts.bare, on=f"ray://{hosts.address(0)}:9"))
    assert said == ""  # a finished run needs no cluster
    said = end(begin(hosts, tmp_path / "b", 3, 0.5, host=hosts.bare, on="ray://10.77.0.99:9"))
    assert said.startswith("error: --on ray://10.77.0.99:9: no cluster answers there (")


def test_a_host_does_not_share_the_folder(hosts: Hosts, tmp_path: Path) -> None:
    hosts.kill(2)
    hosts.start(2, cpus=1, first=f"mount -t tmpfs tmpfs {tmp_path}")
    said = end(begin(hosts, tmp_path / "run", 200, 0.5))
    assert said.startswith(f"error: {tmp_path}/run: host ")
    assert "does not see this run folder: choose an --out on storage that all hosts share" in said
