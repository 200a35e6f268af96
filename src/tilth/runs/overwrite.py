"""Setting a run aside while another one overwrites it, and putting it back.

A process may be killed between any two of these file operations: `recover` then finishes what it
had begun. The run.json of the earlier run is moved last and moved back last.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tilth.files import atomic_write, is_temporary, sync_folder

ASIDE = ".tilth-old"  # holds the run that is being overwritten
_REMOVED = ".tilth-going"
_RUN = "run.json"


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
    content = source.read_bytes()
    atomic_write(target, lambda file: file.write(content))
