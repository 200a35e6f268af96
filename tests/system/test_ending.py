"""How commands end: one line and an exit code, whatever is raised."""

import errno
import os
import subprocess
import sys

import pytest

from tests.system.commands import COLUMNS, tilth
from tests.tiny.calls import python
from tilth.cli.screen import end
from tilth.errors import InputError, TilthError


def _raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as raised:
        return raised


RECIPE_LIST = [sys.executable, "-m", "tilth", "recipe", "list"]
STOPPED = "stopped: finished parts are kept, the same command goes on from there"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TilthError("it failed"), 1, "error: it failed"),
        (InputError("it is wrong"), 2, "error: it is wrong"),
        (InputError("a\nb\x1b[3m\u2028\udcff"), 2, r"error: a\nb\x1b[3m\u2028\udcff"),
        (KeyboardInterrupt(), 130, STOPPED),
        (KeyboardInterrupt("no part was finished"), 130, "stopped: no part was finished"),
        (RuntimeError("Query interrupted"), 130, STOPPED),
        (_raised(ImportError("numpy"), KeyboardInterrupt()), 130, STOPPED),
        (_raised(InputError("does not load"), KeyboardInterrupt()), 130, STOPPED),
        (OSError(errno.ENOSPC, "full", "x"), 1, "error: x: the disk is full: free some space and"),
        (OSError(errno.ENOSPC, "full"), 1, "error: a file, or standard output: the disk is full"),
        (OSError(errno.ENAMETOOLONG, "long", "x"), 1, "error: x: the name is too long"),
        (OSError(errno.ELOOP, "loop", "x"), 1, "error: x: symbolic links lead in a circle"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x"), 1, "error: x: Is a directory"),
        (MemoryError(), 1, "error: not enough memory: "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "error: not enough memory"),
        (RecursionError("maximum"), 1, "error: the input is nested too deep"),
        (ValueError("a\nb"), 1, r"internal error: ValueError: a\nb; run again with tilth --debug"),
    ],
)  # fmt: skip
def test_one_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("tilth.recipes.catalog.find_recipe", lambda _: fails())
    (line,) = tilth("recipe", "show", "dino-table1", code=code).stderr.splitlines()
    assert line.startswith(said)


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert end(_raised(ValueError("odd")), debug=True) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "internal error: ValueError: odd; " in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["recipe", "show"], "error: Missing argument 'name': see tilth recipe show --help"),
        (["recipe", "list", "--no"], "error: No such option: --no"),
        (["nothing"], "error: No such command 'nothing': see tilth --help"),
        (["train", "classifier", "x", "--base", ""], "error: --base is followed by an empty value"),
        (["train", "classifier", "x", "--out="], "error: --out is followed by an empty value"),
        (["recipe", "show", "\udcff"], r"error: \udcff: is not UTF-8: rename the file, or"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    (line,) = tilth(*words, code=2).stderr.splitlines()
    assert line.startswith(said)


def test_a_group_without_a_command_shows_its_help() -> None:
    done = tilth("recipe", code=2)
    assert "Usage: tilth recipe" in done.stdout + done.stderr


def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            RECIPE_LIST, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, **COLUMNS},
        )  # fmt: skip
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line[:57]) == (
        1,
        "error: a file, or standard output: the disk is full: free",
    )


def test_ctrl_c_is_one_line_at_once() -> None:
    code = (
        "import builtins, os, signal, tilth.__main__ as m\n"
        "real = builtins.__import__\n"
        "def first(name, *more, **options):\n"
        "    if name == 'typer': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *more, **options)\n"
        "builtins.__import__ = first\n"
        "m.main()"
    )
    done = python(code, check=False)
    assert (done.returncode, done.stderr) == (130, "stopped: nothing was begun\n")


@pytest.mark.parametrize(
    ("words", "place", "code", "said"),
    [
        (["recipe", "list"], "sys.exit", 0, ""),
        (["recipe", "show", "no"], "tilth.cli.screen.say", 2, "error: "),
        (["recipe", "show", "no"], "sys.exit", 2, "error: "),
    ],
)
def test_ctrl_c_at_the_end_changes_nothing(
    words: list[str], place: str, code: int, said: str
) -> None:
    script = (
        "import os, signal, sys\n"
        "from unittest import mock\n"
        "from tilth.cli.main import main\n"
        "from pkgutil import resolve_name\n"
        f"real = resolve_name({place!r})\n"
        "def late(*given):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    real(*given)\n"
        f"sys.argv = ['tilth', *{words}]\n"
        f"mock.patch({place!r}, late).start()\n"
        "main()"
    )
    done = python(script, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (code, bool(said))
    assert done.stderr.startswith(said)


def test_what_is_not_utf_8_is_escaped() -> None:
    done = subprocess.run(
        RECIPE_LIST, capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"Sch\xfctze" in done.stdout
