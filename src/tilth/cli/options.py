"""Options that several commands share and no settings class holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from tilth.cli.checks import BANK, DATA, ENCODER, RUN_FOLDER

Out = Annotated[Path, RUN_FOLDER, "--out -o", "The run folder. The same command goes on in it."]
Json = Annotated[bool, "Print the result as JSON."]
Quiet = Annotated[bool, "--quiet -q", "No progress bar."]


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
    quiet: Annotated[bool, "--quiet -q", "No progress bar."] = False
    json: Annotated[bool, "Print the result as JSON."] = False

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
    "Labelled texts, or tokens with tags: a jsonl, csv, tsv, conll or parquet file (plain "
    "or gz), a folder of them, or a hub data set.",
]
Validation = Annotated[
    str | None, DATA, "A labelled set to choose with; default: a tenth of TRAIN."
]
# Of commands that print their results, and keep them when asked.
ResultFolder = Annotated[
    Path | None, RUN_FOLDER, "--out -o", "A run folder for the results; default: none is kept."
]
