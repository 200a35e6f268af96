"""Runs `tilth` as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tilth", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def tilth(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command; check its exit code and that no traceback is shown."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def stopped(*arguments: object, when: Callable[[], bool], stop: signal.Signals, code: int) -> str:
    """Run a command until something holds, send it a signal; return what it says."""
    started = subprocess.Popen(
        command(*arguments), env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not when():
        assert started.poll() is None, started.stderr
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(started.pid, stop)
    _, said = started.communicate(timeout=120)
    assert started.returncode == code, said
    assert "Traceback" not in said
    return said
