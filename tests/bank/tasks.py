"""Work for processes of a bank's build; its imports are light, as each process makes them anew."""

import os
import signal
import time
from pathlib import Path

from tilth.errors import InputError


def shift(task: int, by: int, times: int = 1) -> int:
    return task * times + by


def wait_for_seen(task: int, folder: Path) -> int:
    """Let the first task wait until a file is there."""
    while task == 0 and not (folder / "seen").exists():
        time.sleep(0.01)
    return task


def fail(task: int) -> int:
    if task == 3:
        raise InputError("talk.txt:7: is wrong: mend it")
    return task


def die(task: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return task


def where(task: int) -> tuple[int, str, bool]:
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return os.getpid(), os.environ.get("OMP_NUM_THREADS", ""), ignored


def nap(task: int, folder: Path) -> int:
    (folder / f"{os.getpid()}").touch()
    time.sleep(30)
    return task
