"""Find the runs and data sets below a folder, with their state; nothing is written into it."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from tilth.data.readers import read_rows
from tilth.data.sources import card_configs, folder_configs
from tilth.data.temp_arrow import process_folder
from tilth.errors import TilthError
from tilth.report.run_reader import part_files
from tilth.runs import RESULTS, read_results, read_run_json
from tilth.runs.out_folder import LOCK

DATA_SET = "data set"
FINISHED, RUNNING, STOPPED, DAMAGED = "finished", "running", "stopped", "damaged"
# Their parts hold a row for each attempt, the dropped ones included.
_ROWS_IN_PARTS = ("generate", "paraphrase")
_OWN = {"parts", "shards", "data", "dropped", "model", "checkpoints"}
_LAST = (RESULTS, "bank.json")
_LABELLING = ("ForSequenceClassification", "ForTokenClassification")
_SECONDS_SILENT = 24 * 3600.0
_HOLDER = re.compile(r"process (\d+) on (.+)")
_DEEPEST, _MOST_FOLDERS = 6, 20_000
_SECONDS_KEPT = 2.0


def stamps(files: Iterable[Path]) -> str:
    """Return names, times and sizes of files, by which it is seen that they were written again."""
    found = []
    for file in files:
        with suppress(OSError):  # it may be replaced right now
            about = file.stat()
            if stat.S_ISREG(about.st_mode):
                found.append(f"{file.name} {about.st_mtime_ns} {about.st_size}")
    return ", ".join(found)


@dataclass(frozen=True)
class RunEntry:
    """A run, or a data set without one.

    Attributes:
        name: its path below the folder that was opened.
        command: the tilth command, or `DATA_SET`.
        done, parts: finished parts, and all.
        note: why a run is damaged.
        copy: temporary Parquet file of the rows, where `folder` is a file that was opened.
    """

    name: str
    folder: Path
    command: str
    state: str
    done: int = 0
    parts: int = 0
    created: str = ""
    note: str = ""
    copy: Path | None = None

    @property
    def title(self) -> str:
        """Its name on pages: of the folder that was opened, that of the folder."""
        return self.folder.absolute().name if self.name == "." else self.name

    @property
    def is_in_parts(self) -> bool:
        """Whether its rows are read from its parts, which are never written again."""
        return self.copy is None and self.command in _ROWS_IN_PARTS

    @cached_property
    def row_files(self) -> list[tuple[str, Path]]:
        """The Parquet files of the rows when the entry was made, each with its config."""
        if self.copy is not None:
            return [("", self.copy)]
        if self.is_in_parts:
            return [("", file) for file in part_files(self.folder)]
        folder = self.folder if self.command == DATA_SET else self.folder / "dataset"
        try:
            configs = folder_configs(folder) if folder.is_dir() else {}
        except TilthError:
            return []
        many = sum(len(splits) for name, splits in configs.items() if name != "dropped") > 1
        return [
            (_config_name(name, split) if many else "", file)
            for name, splits in configs.items()
            for split, files in splits.items()
            for file in files
        ]

    @cached_property
    def is_bank(self) -> bool:
        """Whether it is a bank, which can be searched."""
        return (self.folder / "bank.json").is_file()

    @cached_property
    def classifier(self) -> Path | None:
        """The folder of a trained classifier or tagger; None: it has none."""
        for folder in (self.folder / "model", self.folder):
            if _is_classifier(folder / "config.json"):
                return folder
        return None

    @property
    def has_rows(self) -> bool:
        """Return whether there is something to read."""
        return bool(self.row_files)

    @property
    def no_rows(self) -> str:
        """Say that there is nothing to read."""
        return f"{self.title}: {self.command}, {self.state}: there are no rows to read"

    @cached_property
    def has_report(self) -> bool:
        """Whether the run has a report."""
        return (self.folder / "report.html").is_file()


class RunList:
    """The runs below a folder, looked for again every two seconds or more; or a file of rows.

    Raises:
        InputError: the file is wrong.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._found: dict[str, RunEntry] = {}
        self._until = 0.0
        if root.is_file():
            self._found, self._until = {root.name: _file_entry(root)}, math.inf

    def entries(self) -> list[RunEntry]:
        """Return the runs and data sets, by name."""
        if time.monotonic() > self._until:
            begun = time.monotonic()
            self._found = {entry.name: entry for entry in _find(self.root)}
            ended = time.monotonic()
            # Of a folder with very many others, at most a twentieth of the time is spent looking.
            self._until = ended + max(_SECONDS_KEPT, 20 * (ended - begun))
        return list(self._found.values())

    def entry(self, name: str) -> RunEntry | None:
        """Return the entry of a name; names that are not in the list lead nowhere."""
        self.entries()
        return self._found.get(name)


def _find(root: Path) -> Iterator[RunEntry]:
    for looked, (place, folders, _) in enumerate(os.walk(root)):
        folder = Path(place)
        depth = len(folder.relative_to(root).parts)
        entry = _entry(str(folder.relative_to(root)), folder)
        own: set[str] = set()  # folders of a run or a data set
        if entry is not None:
            yield entry
            own = _OWN if entry.command == DATA_SET else _OWN | {"dataset"}
        folders[:] = sorted(
            name for name in folders if name[0] != "." and name not in own and _is_text(name)
        )
        if depth >= _DEEPEST or looked > _MOST_FOLDERS:
            folders.clear()


def _entry(name: str, folder: Path) -> RunEntry | None:
    """Return the entry of a folder; None where it is neither a run nor a data set."""
    try:
        if (folder / "run.json").is_file():
            return _run_entry(name, folder)
        if card_configs(folder) and folder_configs(folder):
            return RunEntry(name, folder, DATA_SET, FINISHED)
    except (OSError, TilthError) as error:  # one damaged folder must not hide the others
        return RunEntry(name, folder, DATA_SET, DAMAGED, note=str(error))
    return None


def _file_entry(file: Path) -> RunEntry:
    """Return the entry of a file of rows, such as one that is to be annotated."""
    folder = tempfile.mkdtemp(dir=process_folder(tempfile.gettempdir(), os.getpid()))
    copy = Path(folder) / "rows.parquet"
    read_rows(file).to_parquet(copy)
    return RunEntry(file.name, file, DATA_SET, FINISHED, copy=copy)


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _run_entry(name: str, folder: Path) -> RunEntry:
    try:
        run = read_run_json(folder)
    except TilthError as error:
        return RunEntry(name, folder, "unknown", DAMAGED, note=str(error))
    done = len(part_files(folder))
    # Jobs whose parts are removed write one of these last; others that write results do so too.
    last = any((folder / one).is_file() for one in _LAST)
    if run["command"] == "grow":  # it writes its results after every round
        last = bool((read_results(folder) or {}).get("ended"))
    made = RESULTS not in run["outputs"] or (folder / "model").is_dir()  # of a training
    whole = last or (done >= run["parts"] > 0 and made)
    state = RUNNING if _is_locked(folder) else FINISHED if whole else STOPPED
    created = str(run.get("created", ""))
    return RunEntry(name, folder, str(run["command"]), state, done, run["parts"], created)


def _is_locked(folder: Path) -> bool:
    """Return whether the process that the lock file names is alive, as far as that is known.

    The lock itself is not tried: a run that starts at that moment would be refused. A process of
    another host counts as alive while the run's files change.
    """
    try:
        text, locked = (folder / LOCK).read_text(errors="replace"), (folder / LOCK).stat().st_mtime
    except OSError:
        return False
    match = _HOLDER.match(text)
    if match is None:
        return False
    if match[2] != socket.gethostname():
        places = (folder / LOCK, *(folder / name for name in ("run.json", "parts", "checkpoints")))
        changed = max((one.stat().st_mtime for one in places if one.exists()), default=0.0)
        return time.time() - changed < _SECONDS_SILENT
    try:  # a process that has begun since then has the number of one that was killed
        return bool(psutil.Process(int(match[1])).create_time() < locked + 1)
    except psutil.Error:
        return False


def _is_classifier(file: Path) -> bool:
    """Return whether a model's config is that of a classifier or a tagger."""
    try:
        kinds = json.loads(file.read_bytes()).get("architectures") or []
        return any(str(kind).endswith(_LABELLING) for kind in kinds)
    except (OSError, ValueError, AttributeError, TypeError):
        return False


def _config_name(config: str, split: str) -> str:
    return split if config == "default" else config


def instructions_of(entry: RunEntry) -> dict[str, str]:
    """Return label -> instruction of a generate run."""
    try:
        task: Any = read_run_json(entry.folder)["settings"].get("task")
        return {str(name): str(label["instruction"]) for name, label in task["labels"].items()}
    except (TilthError, AttributeError, KeyError, TypeError):
        return {}
