"""Files that are there whole or not at all, and errors of the disk in one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tilth.errors import TilthError

TEMPORARY = ".tmp-"

_MENDS = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again",
    errno.EFBIG: "the file would be larger than allowed: raise the limit on file sizes",
    errno.EROFS: "the file system is read-only: choose another --out",
    errno.EACCES: "no permission to write: choose another --out or change the permissions",
    errno.EPERM: "no permission to write: choose another --out or change the permissions",
    errno.ENOTDIR: "a part of the path is a file: choose another --out",
    errno.EEXIST: "a file stands where a folder is needed: choose another --out",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter --out",
}


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into one line that names the path and the mend."""
    try:
        yield
    except OSError as error:
        mend = _MENDS.get(error.errno or 0, error.strerror or str(error))
        raise TilthError(f"{error.filename or path}: {mend}") from error


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name, sync it, rename it, sync its folder.

    Raises:
        TilthError: the disk is full, or the folder cannot be written.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    with disk_errors(path):
        try:
            with open(temporary, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder lasting."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
