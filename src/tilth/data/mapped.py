"""Temporary Arrow files, mapped into memory, that go when the last rows read from them go."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import socket
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tilth.data.leftovers import is_alive
from tilth.errors import TilthError

if TYPE_CHECKING:
    from datasets import Dataset


class _Mapping(mmap.mmap):
    """A mapping that can say when nobody holds it any more."""


def temporary_arrow() -> Path:
    """Return the path of an empty file in a new temporary folder of its own.

    Raises:
        TilthError: no temporary folder can be made.
    """
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    try:
        _remove_stale(Path(tempfile.gettempdir()), host)
        return Path(tempfile.mkdtemp(prefix=f"tilth-{host}-{os.getpid()}-")) / "rows.arrow"
    except OSError as error:
        raise TilthError(
            f"no temporary file can be made: {error}: set TMPDIR to a writable folder"
        ) from error


def _remove_stale(folder: Path, host: str) -> None:
    """Remove what killed processes of this machine left; elsewhere their numbers say nothing."""
    name = re.compile(rf"tilth-{re.escape(host)}-(\d+)-\w+")
    for item in folder.glob(f"tilth-{host}-*"):
        match = name.fullmatch(item.name)
        if match and int(match[1]) != os.getpid() and not is_alive(int(match[1])):
            shutil.rmtree(item, ignore_errors=True)


def open_arrow(path: Path) -> Dataset:
    """Return the rows of a file of `temporary_arrow` without reading them into memory.

    Whatever is made of the rows (`select`, `filter`, columns) keeps the file; with the last of
    it the file goes, at the latest with the process.
    """
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    with open(path, "rb") as file:
        mapping = _Mapping(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Tables hold their buffers, and these the mapping; workers of `map(num_proc=...)` open the
    # path instead, so the name has to stay as long as any table does.
    weakref.finalize(mapping, _remove_own, path, os.getpid())
    table = pa.ipc.open_stream(pa.py_buffer(mapping)).read_all()
    return Dataset(MemoryMappedTable(table, str(path)))


def remove_arrow(path: Path) -> None:
    """Remove a file of `temporary_arrow` and its folder."""
    path.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
    except FileNotFoundError:
        pass
    except OSError:  # `datasets` keeps what map() made beside its source, and it may be in use
        weakref.finalize(_Mapping, _remove_folder, path.parent, os.getpid())  # at exit


def _remove_folder(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_own(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked worker drops its copy, not the file
        remove_arrow(path)
