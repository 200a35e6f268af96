"""kill -9 of a command at any moment, then the same command: its files equal those left in peace.

`TILTH_KILLS=20` kills each kind of job as often; the test says how many ended the same.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.invariants.trainings import KINDS, content, training
from tests.tiny import salads, tiny_lm

KILLS = int(os.environ.get("TILTH_KILLS", "3"))
Job = Callable[[Path], object]


def job(kind: str, folder: Path) -> Job:
    """Return what does one kind of job in a folder; its inputs lie in another."""
    if kind in KINDS:
        return training(kind, folder)
    from tilth.generation.dataset import generate

    texts, lm = salads(60), tiny_lm("llama")
    return lambda out: generate(
        "sts-x2", lm, texts, out=out, per_input=1, max_new_tokens=20, part_size=16
    )


def drive(kind: str, folder: Path, kills: int) -> dict[str, int]:
    """Kill a job once in each of many folders, let it end, count the folders that are the same.

    Every job runs in a fork of this process, which has imported everything and has no threads: so
    a kill meets the work. Moments lie anywhere in a job's time, most of them in its middle.
    """

    def begin(out: Path) -> int:
        child = os.fork()
        if child == 0:
            try:
                job(kind, folder)(out)
            except BaseException as error:
                sys.stderr.write(f"{out}: {error!r}\n")
                os._exit(1)
            os._exit(0)
        return child

    def code(child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert code(begin(folder / "whole")) == 0
    began = time.monotonic()
    assert code(begin(folder / "again")) == 0
    seconds = time.monotonic() - began
    expected = content(folder / "whole")
    assert content(folder / "again") == expected
    moments, counted = random.Random(kills), {"killed": 0, "equal": 0, "all": kills}
    for number in range(kills):
        out = folder / f"killed-{number}"
        child = begin(out)
        time.sleep(seconds * (number + moments.random()) / kills)
        os.kill(child, signal.SIGKILL)
        counted["killed"] += code(child) == -signal.SIGKILL
        ended = code(begin(out))
        counted["equal"] += ended == 0 and content(out) == expected
    return counted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", [*KINDS, "generate"])
def test_killed_at_random_moments_the_files_are_the_same(kind: str, tmp_path: Path) -> None:
    words = "import json, sys; from pathlib import Path\n"
    words += "from tests.invariants.test_training_kill import drive\n"
    words += "print(json.dumps(drive(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))"
    done = subprocess.run(
        [sys.executable, "-c", words, kind, str(tmp_path), str(KILLS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout.splitlines()[-1])
    sys.stdout.write(f"{kind}: {counted}\n")  # `pytest -s` shows it
    assert counted["equal"] == counted["all"], done.stderr
    assert counted["killed"]
