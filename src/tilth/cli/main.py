"""The command `tilth`: its subcommands, and how errors and interruptions end."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import Annotated, Any

import typer
import typer.core

from tilth.cli import (
    augment,
    bank,
    curate,
    evaluate,
    generate,
    paraphrase,
    quickstart,
    recipe,
    report,
    train,
)
from tilth.cli.screen import errors_to
from tilth.errors import TilthError

INTERRUPTED = 130  # what shells answer after Ctrl-C


class _Commands(typer.core.TyperGroup):
    """Ends every command alike: one line for what is foreseen, no traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TilthError as error:
            _say(f"error: {error}")
            code: int = error.exit_code
            reason: BaseException = error
        except KeyboardInterrupt as error:
            _say("stopped: finished parts are kept, the same command goes on from there")
            code, reason = INTERRUPTED, error
        if ctx.params.get("debug"):
            traceback.print_exception(reason)
        raise typer.Exit(code)


app = typer.Typer(
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
app.add_typer(train.app, name="train")
app.add_typer(evaluate.app, name="evaluate")
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
    logging.basicConfig(
        level=logging.INFO if debug else logging.WARNING, format="%(levelname)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Once())
    for noisy in ("transformers", "datasets", "huggingface_hub", "httpx", "httpx2", "openai"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


class _Once(logging.Filter):
    """Lets the same message through once: a recipe reads the same files many times."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in self._said
        self._said.add(message)
        return new


def _say(line: str) -> None:
    errors_to().print(line, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # tilth shows its own progress
    try:
        app()
    except BrokenPipeError:  # the reader of a pipe went away
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
