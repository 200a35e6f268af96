"""The commands of `tilth` and their options, read from the app itself, each with a right line."""

import shlex
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from tilth.cli.main import app

# A right line of each command on the files of world.py; --out is added where there is one.
LINES = {
    "quickstart": "",
    "generate": "{w}/task.json --count 2 --model {w}/lm --per-input 1 --max-tries 2 "
    "--max-new-tokens 6 --rows 8",
    "curate": "{w}/graded.jsonl",
    "report": "{w}/runs/generate",
    "view": "{w}/runs",
    "augment": "{w}/labelled.jsonl --bank {w}/bank --teacher {w}/encoder --test {w}/test.jsonl "
    "--epochs 1 --batch 16 --count 6 --bootstrap 10 --device cpu",
    "fewshot": "{w}/labelled.jsonl --bank {w}/bank --test {w}/test.jsonl --base {w}/encoder "
    "--draws 1 --per-class 2 --seeds 1 --best 1 --epochs 1 --student-epochs 1 --labelled-per-row 2 "
    "--device cpu",
    # The plan loads and checks all inputs, too; a search takes too long here.
    "grow": "--train {w}/labelled.jsonl --raw {w}/bank --base {w}/encoder --no-paraphrase --plan "
    "--labels {w}/labels.json --test {w}/test.jsonl --bootstrap 10 --device cpu",
    "paraphrase candidates": "{w}/sentences.txt --forward {w}/rewriter --backward {w}/backward "
    "--scorer {w}/scorer --beams 2 --device cpu",
    "paraphrase corpus": "{w}/scored.jsonl {w}/parallel.jsonl --size 30 --validation 8 --test 8 "
    "--scorer {w}/scorer --device cpu",
    "paraphrase train": "{w}/corpus --base {w}/rewriter --max-epochs 1 --batch 16 --rows 16 "
    "--device cpu",
    "paraphrase rewrite": "{w}/labelled.jsonl --column text --model {w}/runs/paraphrase-train "
    "--scorer {w}/scorer --min-meaning 0 --beams 2 --device cpu",
    "bank search": "{w}/bank 'A dog runs near the river.' -k 3",
    "bank build": "{w}/sentences.txt --encoder {w}/static --workers 1 --min-words 1",
    "bank add": "{w}/copied {w}/more.txt --workers 1",
    "bank info": "{w}/bank",
    "bank index": "{w}/copied --centroids 2 --threads 1",
    "bank check": "{w}/bank",
    "train encoder": "{w}/graded.jsonl --base {w}/encoder --batch 16 --device cpu",
    "train triplet": "{w}/parallel.jsonl --base {w}/encoder --batch 16 --dimension 8 --device cpu",
    "train simcse": "{w}/sentences.txt --base {w}/encoder --batch 16 --device cpu",
    "train scorer": "{w}/graded.jsonl --base {w}/encoder --seeds 1 --epochs 1 --device cpu",
    "train classifier": "{w}/labelled.jsonl --base {w}/encoder --epochs 1 --test {w}/test.jsonl "
    "--bootstrap 10 --device cpu",
    "train tagger": "{w}/tagged.jsonl --base {w}/encoder --epochs 1 --device cpu",
    "train adapt": "{w}/sentences.txt --base {w}/masked --batch 16 --max-length 16 --device cpu",
    "evaluate classify": "{w}/runs/train-classifier --data {w}/test.jsonl --bootstrap 10 "
    "--device cpu",
    "evaluate tag": "{w}/runs/train-tagger --data {w}/tagged.jsonl --bootstrap 10 --device cpu",
    "evaluate glue": "rte={w}/runs/train-classifier --data {w}/empty",
    "evaluate sts": "{w}/encoder --data {w}/graded.jsonl --bootstrap 10 --device cpu",
    "predict": "{w}/runs/train-classifier {w}/sentences.txt --device cpu",
    "export": "{w}/runs/train-classifier --texts {w}/sentences.txt --tolerance 1",
    "recipe list": "",
    "recipe show": "dino-table1",
    "recipe run": "dino-table1 --data {w}/empty",
}
# What an option needs beside it to be looked at.
BESIDE = {
    "--inputs": "nli",
    "--from-x1": "nli",
    "--tries": "--check",
    "--kind": "--task {w}/labelled.jsonl",
    "--label": "--task {w}/labelled.jsonl",
    "--text": "--task {w}/labelled.jsonl",
    "--clusters": "--kind clusters --task {w}/labelled.jsonl",
    "--nprobe": "--index",
    "--no-near": "--without {w}/test.jsonl",
}
# Without work behind them, or with more than a campaign has time for.
NO_RUN = ("evaluate glue", "grow", "quickstart", "recipe list", "recipe show", "recipe run",
          "report", "view", "bank info", "bank add", "bank index", "bank check")  # fmt: skip
# Copied for each case, as the command writes into its input.
CHANGES_ITS_INPUT = ("bank add", "bank index", "report")


@dataclass(frozen=True)
class Option:
    """One option or argument: how it is written, and what it takes."""

    name: str
    written: str | None  # None: an argument
    kind: type
    several: bool
    required: bool
    help: str

    @property
    def is_path(self) -> bool:
        """Whether a file, a folder, a model or a set may be named."""
        words = ("file", "folder", "set", "run", "hub", "data", "bank", "encoder", "translates")
        return self.kind is Path or any(word in self.help.lower() for word in words)

    @property
    def is_model(self) -> bool:
        """Whether it names a model."""
        return self.name in {
            "model", "base", "scorer", "encoder", "teacher", "forward", "backward", "against"
        }  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One command of the app."""

    name: str
    options: tuple[Option, ...]

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def makes_run(self) -> bool:
        return any(option.written == "--out" for option in self.options)

    def has(self, written: str) -> bool:
        return any(option.written == written for option in self.options)

    def line(
        self, world: Path, option: Option | None = None, value: str = "", *, out: Path | None = None
    ) -> list[str]:
        """Return a right line, with a value given to one option."""
        words = shlex.split(LINES.get(self.name, "").format(w=world))
        first = [one for one in self.options if one.written is None]
        if self.name not in LINES:
            words = [str(world / "sentences.txt") for _ in first]
        if option is not None and option.written is None:
            words[first.index(option)] = value
        elif option is not None:
            beside = shlex.split(BESIDE.get(option.written or "", "").format(w=world))
            if beside and not beside[0].startswith("-"):
                words[0] = beside.pop()  # another first argument
            elif all(self.has(word) for word in beside if word.startswith("-")):
                words += beside
            words += [option.written or "", value]
        if out is not None and self.makes_run and (option is None or option.written != "--out"):
            words += ["--out", str(out)]
        # A value that begins with a dash is one for a parser only behind "--".
        dashed = option is not None and option.written is None and value.startswith("-")
        at = first.index(option) if dashed and option is not None else None
        if at is not None:
            words = [*words[len(first) :], "--", *words[: len(first)]]
        return [*self.name.split(), *words]


def commands() -> list[Command]:
    """Return all commands of the app; one added later is among them."""
    found: list[Command] = []
    _walk(typer.main.get_command(app), [], found)
    return found


def _walk(command: Any, path: Sequence[str], found: list[Command]) -> None:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            _walk(getattr(inner, "command", inner), [*path, name], found)
        return
    hints = typing.get_type_hints(command.callback)
    options = []
    for one in command.params:
        kinds = [kind for kind in _kinds(hints[one.name]) if kind is not type(None)]
        several = typing.get_origin(kinds[0]) is list
        kind = typing.get_args(kinds[0])[0] if several else kinds[0]
        written = None if one.param_type_name == "argument" else one.opts[0]
        help_text = str(getattr(one, "help", "") or "")
        options.append(Option(one.name, written, kind, several, one.required, help_text))
    found.append(Command(" ".join(path), tuple(options)))


def _kinds(hint: Any) -> tuple[Any, ...]:
    args = typing.get_args(hint)
    return args if args and typing.get_origin(hint) is not list else (hint,)
