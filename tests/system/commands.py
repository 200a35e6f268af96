"""Runs `tilth` as a user does: in this process, or in one of its own where that is the point."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from typer.testing import CliRunner

from tilth.cli.main import app, main

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
    """Run a command until something holds, send it a signal; return what it says.

    The command is a fork of a process that has imported everything: a real process, which a
    signal meets at its work and not at its imports.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".stderr") as errors:
        words = [str(argument) for argument in arguments]
        started = _FORKS.Process(target=_run, args=(words, os.getcwd(), errors.name))
        started.start()
        deadline = time.monotonic() + 120
        while not when():
            assert started.is_alive(), errors.read()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        assert started.pid is not None
        os.kill(started.pid, stop)
        started.join(120)
        said = errors.read()
    assert started.exitcode == code, said
    assert "Traceback" not in said
    return said


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.system.commands",
        "tilth.recipes.augmenting",
        "tilth.generation.dataset",
        "tilth.paraphrase.dataset",
        "tilth.encoders.bi_encoder",
        "tilth.encoders.triplet",
        "transformers.trainer",
        "transformers.models.bart.modeling_bart",
        "transformers.models.bert.modeling_bert",
        "transformers.models.llama.modeling_llama",
    ]
)


def _run(words: list[str], folder: str, errors: str) -> None:
    """Be the process of a command."""
    for handle, path in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY), handle)
    os.environ.update(COLUMNS)
    os.chdir(folder)
    sys.argv = ["tilth", *words]
    main()
