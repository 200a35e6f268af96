"""kill -9 of whoever makes or extends a bank, at any moment: it is there whole, and goes on."""

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

from tests.bank.test_build import add, content, left, make
from tests.tiny import salads, small_parts, write_lines

TEXTS = salads(3000, seed=2)
KILLS = 10


def sources(folder: Path) -> list[Path]:
    return [
        write_lines(folder / "a.txt", TEXTS[:1500]),
        write_lines(folder / "b.txt", TEXTS[1400:2600]),
        write_lines(folder / "c.txt", TEXTS[2600:]),
    ]


def fork(work: Callable[[], object]) -> int:
    """Work in a fork of this process: a kill meets the work and not the import of its modules."""
    writer = os.fork()
    if writer == 0:
        work()
        os._exit(0)
    return writer


def wait(writer: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])


def killed_again_and_again(
    work: Callable[[], object], seconds: float, moments: random.Random, look: Callable[[], None]
) -> int:
    """Begin some work and kill it, at random moments; let the last one finish. Count the kills."""
    kills = 0
    for number in range(KILLS):
        writer = fork(work)
        # The first ones come early: what they have done is found again, so that work gets shorter.
        time.sleep(moments.uniform(0.1, 0.9) * seconds * (number + 1) / KILLS)
        os.kill(writer, signal.SIGKILL)
        kills += wait(writer) == -signal.SIGKILL
        look()
    assert wait(fork(work)) == 0
    return kills


def drive(folder: Path) -> None:
    """Make a bank and add to it, in peace and killed; runs in a process that has no threads."""
    small_parts(pytest.MonkeyPatch())
    a, b, c = sources(folder)
    calm, killed, workers = folder / "calm", folder / "killed", folder / "workers"
    began = time.monotonic()
    assert wait(fork(lambda: make(calm, [a, b]))) == 0
    seconds = time.monotonic() - began
    moments = random.Random(7)
    built = killed_again_and_again(lambda: make(killed, [a, b]), seconds, moments, lambda: None)
    before = content(killed)
    assert before == content(calm)

    began = time.monotonic()
    assert wait(fork(lambda: add(calm, [c]))) == 0
    seconds = time.monotonic() - began
    after = content(calm)
    assert after != before
    unchanged = 0

    def look() -> None:
        """Check all that the manifest names: the bank is the old one or the new one."""
        nonlocal unchanged
        files = content(killed)
        old = all(files[name] == data for name, data in before.items())
        unchanged += old
        assert old or all(files[name] == data for name, data in after.items())

    added = killed_again_and_again(lambda: add(killed, [c]), seconds, moments, look)
    assert content(killed) == after
    assert left(killed) == left(calm)

    # With workers, of which none may go on to write when the next process has begun.
    writer = fork(lambda: make(workers, [a, b], workers=2))
    while not list(workers.glob("adding/parts/part-*.parquet")):
        time.sleep(0.01)
    os.kill(writer, signal.SIGKILL)
    assert wait(writer) == -signal.SIGKILL
    assert wait(fork(lambda: make(workers, [a, b]))) == 0
    assert content(workers) == before
    json.dump({"built": built, "added": added, "unchanged": unchanged}, sys.stdout)


def test_killed_at_random_moments_the_bank_is_the_same(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.invariants import test_bank_kill\n"
    code += "test_bank_kill.drive(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["built"] >= 3, "the building was never caught in the middle"
    assert said["added"] >= 3, "the adding was never caught in the middle"
    assert said["unchanged"] >= 3
