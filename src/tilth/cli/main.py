"""The command `tilth`: its subcommands, and how errors and interruptions end."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise, takewhile
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from tilth.cli.app import App
from tilth.cli.screen import end, escaped, ignore_interruptions
from tilth.errors import InputError

_EMPTY = re.compile(r"--[a-z-]+=")
# Each command and the first paragraph of its help. A module of this folder holds the command, as a
# function of its name, or as an `app` of several; it is imported when the command is called.
COMMANDS = {
    "quickstart": "Write labelled sentence pairs for some hundred sentences with the shipped "
    "model.",
    "generate": "Write a labelled data set with a language model, from a task's instructions.",
    "curate": "Clean a generated set as the DINO paper does: duplicates, smoothing, sampled pairs, "
    "split.",
    "report": "Write RUN/report.html anew and print its figures: of a generate run, each label's "
    "quality.",
    "augment": "Add sentences of a bank to a labelled set: retrieve them, let a teacher label "
    "them, select.",
    "fewshot": "Measure few-shot learning on your own set: fine-tuned, and self-trained in two "
    "ways.",
    "grow": "Try what labelled rows, raw text, descriptions and a language model are worth; keep "
    "the best.",
    "view": "Open a page on this machine to browse runs, annotate rows and try models.",
    "predict": "Label, tag or encode new texts with a trained model; all their columns are kept.",
    "export": "Export a classifier or a tagger to ONNX, 8-bit, and compare its answers with the "
    "model's.",
    "paraphrase": "Rewrite texts at a chosen similarity of meaning and wording, or train such a "
    "rewriter.",
    "bank": "Keep raw sentences by the million, and search them.",
    "train": "Train encoders, classifiers, taggers and scorers.",
    "evaluate": "Measure encoders, classifiers and taggers.",
    "recipe": "Make a paper's table again, beside its figures.",
}


class Listed(typer.core.TyperCommand):
    """A command in the list of commands, before its module is imported."""

    @cached_property
    def command(self) -> Any:
        """Import the command, or the group of commands."""
        name = str(self.name)
        module = import_module(f"tilth.cli.{name}")
        made = getattr(module, "app", None)
        if made is None:
            made = App()
            made.command(name)(getattr(module, name))
        return typer.main.get_command(made)


class _Commands(typer.core.TyperGroup):
    """Imports a command when it is called; ends all alike: one line per error, no traceback."""

    def __init__(self, **options: Any) -> None:
        listed = {name: Listed(name, help=summary) for name, summary in COMMANDS.items()}
        super().__init__(**{**options, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed.command if isinstance(listed, Listed) else listed, rest

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
        if not word or _EMPTY.fullmatch(word):
            before = before if not word else word[:-1]
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
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Make the training data a small language model is missing.",
    epilog="Start with: tilth quickstart",
)


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
