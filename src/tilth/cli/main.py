"""The command `tilth`: its subcommands, and how errors and interruptions end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from itertools import pairwise, takewhile
from typing import Annotated, Any

import typer
import typer.core

from tilth.cli import (
    augment,
    bank,
    curate,
    evaluate,
    export,
    fewshot,
    generate,
    grow,
    paraphrase,
    predict,
    quickstart,
    recipe,
    report,
    train,
)
from tilth.cli.app import App
from tilth.cli.screen import end, escaped, ignore_interruptions
from tilth.errors import InputError


class _Commands(typer.core.TyperGroup):
    """Ends every command alike: one line per error, no traceback."""

    def main(self, args: Sequence[str] | None = None, *_: Any, **options: Any) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        own = args is None  # else it is called by a process that goes on
        try:
            _check_words(words)
            with self.make_context("tilth", words.copy(), **_context(options)) as context:
                self.invoke(context)
            sys.stdout.flush()
            if own:
                ignore_interruptions()
            code = 0
        except BaseException as error:
            if own:
                ignore_interruptions()
            code = end(error, debug="--debug" in takewhile(_is_option, words))
        sys.exit(code)


def _is_option(word: str) -> bool:
    return word.startswith("-")


def _context(options: dict[str, Any]) -> dict[str, Any]:
    """Return the context options among those that typer passes to a group's main."""
    return {name: value for name, value in options.items() if name in ("color", "obj")}


def _check_words(words: Sequence[str]) -> None:
    """Refuse arguments that no file or setting of tilth can hold."""
    for before, word in pairwise(("tilth", *words)):
        if not word:
            raise InputError(f"{before} is followed by an empty value: give one, or leave it out")
        if "\0" in word or (not word.isascii() and _has_halves(word)):
            raise InputError(f"{word}: is not UTF-8: rename the file, or give another text")


def _has_halves(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


app = App(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Make the training data a small language model is missing.",
    epilog="Start with: tilth quickstart",
)
app.command("quickstart")(quickstart.quickstart)
app.command("generate")(generate.generate)
app.command("curate")(curate.curate)
app.command("report")(report.report)
app.add_typer(paraphrase.app, name="paraphrase")
app.add_typer(bank.app, name="bank")
app.command("augment")(augment.augment)
app.command("fewshot")(fewshot.fewshot)
app.command("grow")(grow.grow)
app.add_typer(train.app, name="train")
app.add_typer(evaluate.app, name="evaluate")
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.add_typer(recipe.app, name="recipe")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(version("tilth"))
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    logging.basicConfig(level=logging.INFO if debug else logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Once())
        handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    for noisy in ("transformers", "datasets", "huggingface_hub", "httpx", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


class _OneLine(logging.Formatter):
    """Formats a message on one line without terminal control characters."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escaped(super().formatMessage(record))


class _Once(logging.Filter):
    """Passes each message once: a recipe reads the same files many times."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in self._said
        self._said.add(message)
        return new


# Spins of a waiting thread before it sleeps. libgomp's default of 300,000 holds a core for
# milliseconds that the awaited thread needs when other work runs: `benchmarks/threads.py`.
_SPINS = "1000"


def set_environment() -> None:
    """Set the environment variables that libraries read on import; keep the user's values."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
        os.environ.setdefault("KMP_BLOCKTIME", "0")  # the same, of Intel's and LLVM's OpenMP
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # tilth shows its own progress


def main() -> None:
    """Run the command line."""
    set_environment()
    for stream in (sys.stdout, sys.stderr):  # what they cannot show is escaped
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app()
