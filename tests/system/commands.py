"""Runs `tilth` as a user does: in this process, or in one of its own where that is the point."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from typer.testing import CliRunner

from tilth.cli.main import app

COLUMNS = {"COLUMNS": "200"}  # as wide as a table of any command


def tilth(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which spares it the imports; check its exit code."""
    words = [str(argument) for argument in arguments]
    with _own_state():
        done = CliRunner().invoke(app, words, env=COLUMNS, catch_exceptions=False)
    return _checked(
        subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr), code
    )


def error_of(*arguments: object, code: int = 2) -> str:
    """Return the one error line that a command ends with."""
    lines = tilth(*arguments, code=code).stderr.splitlines()
    (line,) = [line for line in lines if line.startswith("error: ")]
    assert line == lines[-1]
    return line


@contextmanager
def _own_state() -> Iterator[None]:
    """Take back what a command changes for the whole process.

    The log has no handler at first, as in a new process, so that the command writes to its own
    standard error.
    """
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    levels = {logger: logger.level for logger in loggers}
    handlers, environment = list(logging.root.handlers), dict(os.environ)
    threads, interrupt = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    logging.root.handlers.clear()
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        for logger, level in levels.items():
            logger.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        signal.signal(signal.SIGINT, interrupt)


def real_tilth(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), check=False
    )
    return _checked(done, code)


def _checked(done: subprocess.CompletedProcess[str], code: int) -> subprocess.CompletedProcess[str]:
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def command(*arguments: object) -> list[str]:
    """Return the words that start a command in a process of its own."""
    return [sys.executable, "-m", "tilth", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return what such a process finds in its environment."""
    return {**os.environ, **COLUMNS}


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
