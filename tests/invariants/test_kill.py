"""kill -9 at any moment, then the same call: the parts equal those of a run left in peace."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from tilth.runs import Progress, Run, complete

PARTS = 30


def open_run(path: Path) -> Run:
    return Run.open(path, command="count", settings={}, fingerprints={}, parts=PARTS)


def work(index: int, progress: Progress) -> pa.Table:
    time.sleep(0.01)
    progress.advance(done=1, kept=50)
    return pa.table({"item": [index * 50 + n for n in range(50)], "text": [f"row {index}"] * 50})


def run_all(path: Path) -> None:
    with open_run(path) as run:
        complete(run, work, progress=Progress(PARTS, quiet=True))


def test_killed_at_random_moments_the_parts_are_the_same(tmp_path: Path) -> None:
    run_all(tmp_path / "calm")
    moments = random.Random(5)
    code = "import sys; from pathlib import Path; from tests.invariants.test_kill import run_all\n"
    code += "print('begun', flush=True); run_all(Path(sys.argv[1]))"
    kills = 0
    for _ in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "killed")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(timeout=moments.uniform(0.1, 0.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
        process.stdout.close()
        if not open_run(tmp_path / "killed").missing():
            break
    assert kills >= 2, "the run was never caught in the middle"
    calm, killed = open_run(tmp_path / "calm"), open_run(tmp_path / "killed")
    assert killed.done() == list(range(PARTS))
    for index in range(PARTS):
        assert killed.part_path(index).read_bytes() == calm.part_path(index).read_bytes()
