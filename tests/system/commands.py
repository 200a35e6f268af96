"""Runs `tilth` as a user does."""

from __future__ import annotations

import os
import subprocess
import sys


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
