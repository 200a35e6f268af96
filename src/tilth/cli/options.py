"""Options that several commands share; checks of what a command reads, before it runs.

The constants annotate parameters: `pairs: Annotated[str, DATA, "Labelled pairs."]`. Nothing heavy
is imported before all arguments are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tilth.errors import InputError, TilthError
from tilth.files import in_local_folder, suggestion
from tilth.limits import Limit

_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,3})?")


@dataclass(frozen=True, eq=False)
class Reads:
    """How a parameter's value is checked.

    Attributes:
        check: raises InputError for a value that cannot be read.
        named: whether values may be names of models or banks, not only files and folders.
    """

    check: Callable[[str], None]
    named: bool = False


def _data(name: str) -> None:
    from tilth.data.sources import locate

    found = locate(name)
    for file in found if isinstance(found, list) else []:
        if not os.access(file, os.R_OK):
            raise InputError(f"{file}: no permission to read: change it")


def _path(name: str) -> None:
    from tilth.data.formats import ending_of

    path = Path(name)
    is_path = name.count("/") != 1 or name[0] in "./~" or ending_of(path) is not None
    if name != "hub" and not path.exists() and (is_path or in_local_folder(path)):
        raise InputError(f"{name}: no such file or folder: check the path{suggestion(path)}")


def _local(name: str) -> None:
    path = Path(name)
    if not path.exists():
        raise InputError(f"{name}: no such file or folder: check the path{suggestion(path)}")
    if path.is_file():
        _data(name)


def _bank(name: str) -> None:
    from tilth.bank.manifest import read_manifest

    read_manifest(Path(name))


def _run(name: str) -> None:
    from tilth.runs import read_run_json
    from tilth.storage import pull

    pull(Path(name))
    read_run_json(Path(name))


def _model(kind: str) -> Callable[[str], None]:
    def check(name: str) -> None:
        from tilth.models import names

        names.check_name(name, getattr(names, kind.upper()))

    return check


def _task(name: str) -> None:
    from tilth.generation.task import load_task

    load_task(name)


def _model_or_task(kind: str) -> Callable[[str], None]:
    def check(name: str) -> None:
        from tilth.generation.task import is_task, load_task

        if is_task(name):
            load_task(name)
        else:
            _model(kind)(name)

    return check


DATA, PATH, LOCAL = Reads(_data), Reads(_path), Reads(_local)
TASK = Reads(_task, True)
BANK, RUN = Reads(_bank, True), Reads(_run, True)
PREDICTOR, MEASURED = (Reads(_model_or_task(kind), True) for kind in ("encoder", "classifier"))
LM, SEQ2SEQ, SCORER = (Reads(_model(kind), True) for kind in ("lm", "seq2seq", "scorer"))
CLASSIFIER, ENCODER = (Reads(_model(kind), True) for kind in ("classifier", "encoder"))
REWRITE = "rewrite"  # the command of `tilth paraphrase SOURCES`, which is recorded without it
# Written to: a run folder, or a folder that the command checks itself.
RUN_FOLDER, OTHER_FOLDER = Reads(lambda _: None), Reads(lambda _: None)

Out = Annotated[Path, RUN_FOLDER, "--out -o", "The run folder. The same command goes on in it."]
Json = Annotated[bool, "Print the result as JSON."]
Quiet = Annotated[bool, "--quiet -q", "No progress bar."]


# Parameters that name the set whose columns --text and --label name.
_LABELLED = ("source", "sources", "train", "data", "pairs", "texts")


class JobOptions(TypedDict):
    """What every function that makes a run takes."""

    device: str
    overwrite: bool
    quiet: bool


@dataclass(frozen=True, slots=True)
class Common:
    """Options of every command that makes a run."""

    device: Annotated[str, "auto, cpu, cuda or cuda:N."] = "auto"
    overwrite: Annotated[bool, "Start the run folder anew."] = False
    quiet: Quiet = False
    json: Json = False

    @property
    def job(self) -> JobOptions:
        """The options that the function behind the command takes."""
        return {"device": self.device, "overwrite": self.overwrite, "quiet": self.quiet}


# A bank, as an argument of its own commands and as an option of those that search it.
Bank = Annotated[Path, BANK, "The bank's folder."]
SearchedBank = Annotated[Path, BANK, "--bank", "The bank's folder."]
BankEncoder = Annotated[
    str | None,
    ENCODER,
    "--encoder",
    "The bank's encoder, where the name it was built with leads elsewhere now.",
]
# Labelled sets.
LabelledSet = Annotated[
    str,
    DATA,
    "Labelled texts, or tokens with tags: a jsonl, json, csv, tsv, conll or parquet file (plain "
    "or gz), a folder of them, or a hub data set.",
]
Validation = Annotated[
    str | None, DATA, "A labelled set to choose with; default: a tenth of TRAIN."
]
# Of commands that print their results, and keep them when asked.
ResultFolder = Annotated[
    Path | None, RUN_FOLDER, "--out -o", "A run folder for the results; default: none is kept."
]


def check_arguments(
    command: str,
    given: Mapping[str, Any],
    names: Mapping[str, str],
    limits: Mapping[str, Limit],
    reads: Mapping[str, Reads],
) -> None:
    """Check the arguments of a command.

    Args:
        command: its words, such as `train encoder`.
        given: parameter -> value.
        names: parameter -> its spelling on the command line.
        limits: parameter -> allowed values.
        reads: parameter -> how it is read, or that it is written to.
    """
    for name, limit in limits.items():
        if given.get(name) is not None:
            limit.check(names[name], given[name])
    if not _DEVICE.fullmatch(given.get("device", "auto")):
        raise InputError(f"--device {given['device']!r} is unknown: use auto, cpu, cuda or cuda:N")
    out = {name: one for name, one in reads.items() if one in (RUN_FOLDER, OTHER_FOLDER)}
    inputs = [
        (one, value)
        for name, one in reads.items() if name not in out
        for value in _each(given.get(name))
    ]  # fmt: skip
    value = ""
    try:
        for one, value in inputs:
            one.check(value)
    except OSError as error:
        raise InputError(f"{value}: cannot be read ({error.strerror}): check the path") from error
    _check_columns(given, reads)
    for name, one in out.items():
        if given[name] is not None:
            _check_out(given[name], inputs, command if one is RUN_FOLDER else None)


def _check_columns(given: Mapping[str, Any], reads: Mapping[str, Reads]) -> None:
    """Refuse a named column that a plain file lacks, before anything heavy is imported."""
    texts = [name.strip() for text in _each(given.get("text")) for name in text.split(",")]
    named = [*texts, *_each(given.get("label"))]
    sources = next((given[name] for name in _LABELLED if name in reads and given.get(name)), None)
    for path in map(Path, _each(sources) if named else ()):
        if not path.expanduser().is_file():
            continue
        from tilth.data.formats import check_column, columns_of_file, ending_of

        columns = columns_of_file(path.expanduser()) if ending_of(path) else None
        for column in named if columns else ():
            check_column(column, columns or (), f"{path}: ")


def _each(value: Any) -> Iterator[str]:
    if value is not None:
        yield from map(str, value if isinstance(value, list | tuple) else [value])


def _check_out(out: Path, inputs: list[tuple[Reads, str]], command: str | None) -> None:
    from tilth.runs import check_place, refuse_inside, refuse_other_command

    try:
        check_place(out, is_run=command is not None)
        # Commands of a bank go on with each other; a recipe is recorded with its name.
        if command is not None and not command.startswith(("bank ", "recipe ")):
            refuse_other_command(out, command.removesuffix(f" {REWRITE}"))
    except InputError:
        raise
    except TilthError as error:
        raise InputError(str(error)) from error
    sources = [value for one, value in inputs if not one.named]
    refuse_inside(out, *sources, named=[value for one, value in inputs if one.named])
