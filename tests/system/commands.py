"""Runs `tilth` as a user does: in this process, or in one of its own where that is the point."""

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

from tests.tiny.calls import python
from tilth.cli.main import app, main

COLUMNS = {"COLUMNS": "200"}  # as wide as a table of any command


def tilth(
    *arguments: object, code: int = 0, traceback: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which spares it the imports; check its exit code.

    Args:
        traceback: whether it shows one, which no error but those under `--debug` does.
    """
    words = [str(argument) for argument in arguments]
    with _own_state():
        done = CliRunner().invoke(app, words, env=COLUMNS, catch_exceptions=False)
    found = subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
    return _checked(found, code, traceback)


def error_of(*arguments: object, code: int = 2) -> str:
    """Return the one error line that a command ends with."""
    lines = tilth(*arguments, code=code).stderr.splitlines()
    (line,) = [line for line in lines if line.startswith("error: ")]
    assert line == lines[-1]
    return line


def imported_by(*arguments: object) -> set[str]:
    """Run a command in a process of its own; return the modules that it has imported."""
    code = "import atexit, sys\n"
    code += "atexit.register(lambda: sys.stderr.write(f'\\n{chr(10).join(sys.modules)}'))\n"
    code += "from tilth.__main__ import main; main()"
    return set(python(code, *arguments).stderr.split())


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
            if logger.level != level:  # setting one forgets what all loggers know
                logger.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        signal.signal(signal.SIGINT, interrupt)


def real_tilth(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tilth", *map(str, arguments)],
        capture_output=True, text=True, env={**os.environ, **COLUMNS}, check=False,
    )  # fmt: skip
    return _checked(done, code)


def _checked(
    done: subprocess.CompletedProcess[str], code: int, traceback: bool = False
) -> subprocess.CompletedProcess[str]:
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Traceback" in done.stderr) == traceback
    return done


def stopped(*arguments: object, when: Callable[[], bool], stop: signal.Signals, code: int) -> str:
    """Run a command until something holds, send it a signal; return what it says.

    The command is a fork of a process that has imported everything: a real process, which a
    signal meets at its work and not at its imports.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".stderr") as errors:
        words = [str(argument) for argument in arguments]
        given = (words, os.getcwd(), {**os.environ, **COLUMNS}, errors.name)
        started = _FORKS.Process(target=_run, args=given)
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
        "tilth.workflows.augment",
        "tilth.generation.generate",
        "tilth.paraphrase.paraphrase_set",
        "tilth.encoders.bi_encoder",
        "tilth.encoders.triplet",
        "transformers.trainer",
        "transformers.models.bart.modeling_bart",
        "transformers.models.bert.modeling_bert",
        "transformers.models.llama.modeling_llama",
    ]
)


def _run(words: list[str], folder: str, environment: dict[str, str], errors: str) -> None:
    """Be the process of a command."""
    for handle, path in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY), handle)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["tilth", *words]
    main()
