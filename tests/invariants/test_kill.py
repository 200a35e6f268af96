"""kill -9 at any moment, then the same call: the parts equal those of a run left in peace."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from tilth.runs import Progress, Run, complete

PARTS = 30
KILLS = 25


def open_run(path: Path) -> Run:
    return Run.open(path, command="count", settings={}, fingerprints={}, parts=PARTS)


def work(index: int, progress: Progress) -> pa.Table:
    time.sleep(0.005)
    progress.advance(done=1, kept=50)
    return pa.table({"item": [index * 50 + n for n in range(50)], "text": [f"row {index}"] * 50})


def run_all(path: Path) -> None:
    with open_run(path) as run:
        complete(run, work, progress=Progress(PARTS, quiet=True))


def drive(path: Path) -> None:
    """Start writers and kill them, at random moments with a fixed seed; let the last one finish.

    Writers are forked, so that a kill meets their work and not the import of their modules.
    """
    moments, kills = random.Random(5), 0
    inodes: dict[str, int] = {}
    remade: list[str] = []
    for number in range(KILLS + 1):
        writer = os.fork()
        if writer == 0:
            run_all(path)
            os._exit(0)
        if number < KILLS:
            time.sleep(moments.uniform(0, 0.08))
            os.kill(writer, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
        now = {part.name: part.stat().st_ino for part in (path / "parts").glob("part-*.parquet")}
        remade += [name for name, inode in now.items() if inodes.get(name, inode) != inode]
        inodes |= now
        if len(inodes) == PARTS:
            break
    json.dump({"kills": kills, "remade": remade}, sys.stdout)


def test_killed_at_random_moments_the_parts_are_the_same(tmp_path: Path) -> None:
    run_all(tmp_path / "calm")
    code = "import sys; from pathlib import Path; from tests.invariants import test_kill\n"
    code += "test_kill.drive(Path(sys.argv[1]))"
    said = json.loads(
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "killed")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert said["kills"] >= 2, "the run was never caught in the middle"
    assert said["remade"] == [], "a part was made twice"
    calm, killed = open_run(tmp_path / "calm"), open_run(tmp_path / "killed")
    assert killed.done() == list(range(PARTS))
    for index in range(PARTS):
        assert killed.part_path(index).read_bytes() == calm.part_path(index).read_bytes()
    with killed:
        assert sorted(os.listdir(tmp_path / "killed")) == [".tilth-lock", "parts", "run.json"]
        assert len(os.listdir(tmp_path / "killed" / "parts")) == PARTS
