"""Check `--out` before anything is made; set a run aside while another one overwrites it.

A process may be killed between any two operations of setting aside and putting back: `recover`
then finishes what it had begun. The run.json of the earlier run is moved last and moved back last.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilth.errors import InputError
from tilth.files import (
    check_input,
    check_writable,
    disk_errors,
    is_temporary,
    sync_folder,
    try_lock,
    write_file,
)
from tilth.runs.run_json import (
    RESULTS,
    RunMismatch,
    command_of,
    differences,
    read_results,
    read_run_json,
)
from tilth.storage import as_path, names, pull
from tilth.urls import url_of

LOCK = ".tilth-lock"
LEASES = ".tilth-writers"  # under a URL: objects of those who write
ASIDE = ".tilth-old"  # holds the run that is being overwritten
_REMOVED = ".tilth-going"
_RUN = "run.json"
# Nested runs: first texts of `generate`, and the first set of a training.
_MADE_FIRST = ("x1", "first")


def refuse_foreign(path: Path) -> None:
    """Refuse a folder that is no run and holds something; nothing in it is touched."""
    with disk_errors(path):
        found = names(path)
        if check_input(path / _RUN) or _RUN in found:
            if not _is_written(path):
                pull(path)
            return
        # Allowed: the lock, leftovers of a killed writer, and runs made before the one that reads
        # them.
        others = [
            name
            for name in found
            if name not in (LOCK, LEASES, *_MADE_FIRST) and not is_temporary(name)
        ]
    if others:
        raise InputError(
            f"{path}: the folder holds {min(others)!r} and is no run: choose another --out"
        )


def _is_written(folder: Path) -> bool:
    """Return whether a process writes in a folder, and so has its copies as they should be."""
    with suppress(FileNotFoundError, PermissionError), open(folder / LOCK, "r+b") as file:
        return not try_lock(file)
    return False


def refuse_other_command(path: Path, command: str) -> None:
    """Refuse to replace the run of another command: this one may read it."""
    found = command_of(path)
    if found not in (None, command):  # a damaged one is begun anew
        raise RunMismatch(
            f"{path}: holds a run of `tilth {found}`: choose another --out, or remove the folder"
        )


def refuse_other_settings(
    path: Path, settings: Mapping[str, Any], command: str | None = None
) -> None:
    """Refuse a folder whose run has others than these settings, of which it may have more.

    What `Run.open` would refuse is so found before a model is loaded.

    Args:
        command: of the run; None: any.
    """
    if not (path / _RUN).is_file() or is_aside(path):  # which may be the run that is asked for
        return
    found = read_run_json(path)
    there = {name: value for name, value in found["settings"].items() if name in settings}
    asked = json.loads(json.dumps({name: settings[name] for name in there}))
    other = {**found, "command": command or found["command"], "settings": asked}
    refuse_changes(path, differences({**found, "settings": there}, other))


def refuse_without(path: Path, entry: str, option: str) -> None:
    """Refuse to write a finished run's results again without figures that they hold.

    Args:
        entry: of results.json.
        option: what measures them.
    """
    pull(path / RESULTS, clean=True)  # from a URL
    if (read_results(path) or {}).get(entry):
        raise InputError(
            f"{path}: its results hold figures of {option}: give it again, or --overwrite to "
            "train anew"
        )


def refuse_changes(path: Path, changes: Sequence[str]) -> None:
    """Refuse a folder whose run differs from the one that is asked for."""
    if changes:
        raise RunMismatch(
            f"{path}: holds another run: {'; '.join(changes)}: --overwrite starts anew, or choose "
            "another --out"
        )


def check_place(path: Path, *, is_run: bool = True) -> None:
    """Refuse a path where no folder, or no run, can be made; nothing is made."""
    check_name(path)
    with disk_errors(path):
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path} is a link that leads nowhere: choose another --out")
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir():
            raise InputError(f"{nearest} is a file: choose another --out")
        check_writable(nearest)
        if is_run:
            refuse_foreign(path)


def check_name(path: Path) -> None:
    """Refuse a path that is not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{str(path)!a}: the name is not UTF-8: choose another --out") from error


def refuse_inside(out: Path, *sources: str | None, named: Sequence[str | None] = ()) -> None:
    """Refuse a run folder that holds what is read, or that would be read as a part of it.

    All files of a folder in `sources` are read: `out` may lie in it only if it is a run, of which
    the data set alone is read. Of those in `named`, files are read by name: `out` may lie there.
    """
    place = Path(os.path.realpath(out))  # not resolve(), which raises on a link to itself
    for name in (*sources, *named):
        if name is None:
            continue
        place_read = as_path(name)
        path = Path(os.path.realpath(place_read.expanduser()))
        if url_of(place_read) is None and not os.path.exists(path):
            continue
        if place in (path, *path.parents):
            raise InputError(f"{out} holds {name} itself: choose another --out")
        if path in place.parents and name in sources and not os.path.exists(path / "run.json"):
            raise InputError(f"{out} lies in {name}, which is read: choose another --out")


def is_aside(folder: Path) -> bool:
    """Return whether a run of the folder is set aside."""
    return (folder / ASIDE).is_dir()


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Move what a run has made to ASIDE; its run.json stays and is to be replaced next."""
    aside = folder / ASIDE
    aside.mkdir()
    for name in names:
        item = folder / name
        if item.is_symlink() or item.exists():
            item.rename(aside / name)
    sync_folder(folder)
    _copy(folder / _RUN, aside / _RUN)


def discard(folder: Path) -> None:
    """Remove what was set aside."""
    if is_aside(folder):
        (folder / ASIDE).rename(folder / _REMOVED)
        sync_folder(folder)
        shutil.rmtree(folder / _REMOVED)


def restore(folder: Path, made: Iterable[str]) -> None:
    """Replace what the new run has made by what was set aside."""
    for name in made:
        item = folder / name
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink(missing_ok=True)
    _copy(folder / ASIDE / _RUN, folder / _RUN)
    _move_back(folder)


def recover(folder: Path) -> None:
    """Finish the operation a killed process was in; an earlier run is then aside whole or not."""
    if (folder / _REMOVED).is_dir():
        shutil.rmtree(folder / _REMOVED)
    kept = folder / ASIDE / _RUN
    if kept.is_file() and kept.read_bytes() != (folder / _RUN).read_bytes():
        return  # the new run has begun
    if kept.parent.is_dir():
        _move_back(folder)


def _move_back(folder: Path) -> None:
    aside = folder / ASIDE
    for item in aside.iterdir():
        if is_temporary(item.name):
            item.unlink()
        elif item.name != _RUN:
            item.rename(folder / item.name)
    sync_folder(folder)
    (aside / _RUN).unlink(missing_ok=True)
    aside.rmdir()


def _copy(source: Path, target: Path) -> None:
    write_file(target, source.read_bytes())
