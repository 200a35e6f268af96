"""Print results to standard output, all else to standard error; end a command with an exit code."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from tilth.errors import InputError, TilthError
from tilth.files import disk_errors
from tilth.urls import with_urls

# Escaped: control characters (terminal escape sequences included), line separators, surrogates and
# bidirectional controls.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FAILED, WRONG_ARGUMENTS = TilthError.exit_code, InputError.exit_code
INTERRUPTED = 130  # what shells answer after Ctrl-C
_WIDE = 200  # columns of tables in files and pipes
UsageError = typer.BadParameter.__mro__[1]  # typer exports no base class of these
_NO_MEMORY = "not enough memory: give smaller batches or parts, less data, or use a larger machine"
# DuckDB raises its own error on Ctrl-C.
_INTERRUPTIONS = ("Query interrupted",)
_NO_MEMORY_SAID = ("can't allocate memory", "out of memory")


def escaped(text: str) -> str:
    """Return a text on one line with terminal control characters escaped, copies by their URLs."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), with_urls(text))


def say(line: str) -> None:
    """Print a message to standard error."""
    print(escaped(line), file=sys.stderr)


def command_line(*words: Any) -> str:
    """Return a command of tilth as one types it."""
    return shlex.join(["tilth", *map(str, words)])


def print_json(value: Any) -> None:
    """Print a result as JSON."""
    is_utf8 = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    sys.stdout.write(with_urls(json.dumps(value, indent=2, ensure_ascii=not is_utf8)) + "\n")


def print_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1
) -> None:
    """Print a table; the first `texts` columns are texts, the others numbers."""
    from rich.console import Console  # not above: a wrong argument needs no table
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place < texts else "right", overflow="fold")
    for row in rows:
        cells = ("\n".join(map(escaped, cell.split("\n"))) for cell in row)
        table.add_row(*map(Text, cells))  # as they are: square brackets are no markup
    # Rich takes files and pipes for 80 columns, in which wide tables cannot be read.
    is_free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(width=_WIDE if is_free else None).print(table)


def end(error: BaseException, *, debug: bool) -> int:
    """Print why a command ended in one line (`debug`: and the traceback); return its exit code."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):  # the reader of a pipe went away
        _drop_output()
        return FAILED
    if type(error).__name__ == "NoArgsIsHelpError":  # the help was shown instead
        return WRONG_ARGUMENTS
    line, code = _line_of(error)
    say(line)
    if debug:
        traceback.print_exception(error)
    return code


def ignore_interruptions() -> None:
    """Ignore Ctrl-C while the process ends, so that its line and exit code stand."""
    with suppress(ValueError):  # another thread than the main one: a test's
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _line_of(error: BaseException) -> tuple[str, int]:
    if any(_is_interruption(one) for one in _chain(error)):
        said = "finished parts are kept, the same command goes on from there"
        if isinstance(error, KeyboardInterrupt):
            said = str(error) or said
        return f"stopped: {said}", INTERRUPTED
    if isinstance(error, TilthError):
        return f"error: {error}", error.exit_code
    if isinstance(error, UsageError):
        context = getattr(error, "ctx", None)
        of = "tilth" if context is None else context.command_path
        said = getattr(error, "format_message", error.__str__)().rstrip(".")
        return f"error: {said}: see {of} --help", WRONG_ARGUMENTS
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:
            _drop_output()  # it may be standard output, which is flushed once more at the exit
        return f"error: {_named(error)}", FAILED
    if isinstance(error, MemoryError) or any(said in str(error) for said in _NO_MEMORY_SAID):
        return f"error: {_NO_MEMORY}", FAILED
    if isinstance(error, RecursionError):
        return "error: the input is nested too deep: give a flatter one", FAILED
    kind = type(error).__name__
    remedy = "run again with tilth --debug for the traceback and report it"
    return f"internal error: {kind}: {error}; {remedy}", FAILED


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and its contexts."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def _is_interruption(error: BaseException) -> bool:
    return isinstance(error, KeyboardInterrupt) or str(error).startswith(_INTERRUPTIONS)


def _named(error: OSError) -> str:
    place = "a file, or standard output" if error.filename is None else str(error.filename)
    try:
        with disk_errors(Path(place)):
            raise error
    except TilthError as named:
        return str(named)


def _drop_output() -> None:
    """Redirect standard output to the null device: another flush would fail again."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
