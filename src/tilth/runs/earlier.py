"""An earlier run that `overwrite` sets aside until the new one has something to show.

A process may be killed between any two steps; the next one that opens the folder calls `recover`.

1. `set_aside` moves what the earlier run has made into a hidden folder, one rename for each name,
   and copies run.json there last. Killed here: `recover` moves all of it back.
2. The new run replaces run.json. From now on the folder holds the new run, and the same command
   without `overwrite` goes on with it.
3. `discard` renames the hidden folder, which cannot be undone, and then removes it; `restore`
   removes what the new run has made, puts the old run.json back, which takes the folder to step 1,
   and moves the rest back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tilth.files import is_temporary, sync_folder, write_whole

ASIDE = ".tilth-old"
_GOING = ".tilth-going"
_RUN = "run.json"


def set_aside(folder: Path, names: Iterable[str]) -> None:
    """Move what a run has made out of the way; its run.json stays and is to be replaced next."""
    aside = folder / ASIDE
    aside.mkdir()
    for name in names:
        item = folder / name
        if item.is_symlink() or item.exists():
            item.rename(aside / name)
    sync_folder(folder)
    content = (folder / _RUN).read_bytes()
    write_whole(aside / _RUN, lambda file: file.write(content))


def discard(folder: Path) -> None:
    """Remove what was set aside."""
    if (folder / ASIDE).is_dir():
        (folder / ASIDE).rename(folder / _GOING)
        sync_folder(folder)
        shutil.rmtree(folder / _GOING)


def restore(folder: Path, made: Iterable[str]) -> None:
    """Put back what was set aside, in the place of what the new run has made."""
    for name in made:
        item = folder / name
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink(missing_ok=True)
    content = (folder / ASIDE / _RUN).read_bytes()
    write_whole(folder / _RUN, lambda file: file.write(content))
    _move_back(folder)


def recover(folder: Path) -> None:
    """Finish what a process was killed in; afterwards an earlier run is aside as a whole or not."""
    if (folder / _GOING).is_dir():
        shutil.rmtree(folder / _GOING)
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
