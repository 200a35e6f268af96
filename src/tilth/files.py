"""Atomic writes, file locks, checks of paths and of the hub, and one-line errors of the disk."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

from tilth.errors import InputError, TilthError
from tilth.storage import publish

log = logging.getLogger(__name__)

TEMPORARY = ".tmp-"
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{8}}")
_NO_LOCKS = "the file system has no file locks: choose a folder on a disk that has them"
_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again",
    errno.EDQUOT: "the disk quota is used up: free some space and run the same command again",
    errno.EFBIG: "the file would be larger than allowed: raise the limit on file sizes",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "no permission to write: choose another folder or change the permissions",
    errno.EPERM: "no permission to write: choose another folder or change the permissions",
    errno.ENOTDIR: "a part of the path is a file: choose another folder",
    errno.EEXIST: "a file stands where a folder is needed: choose another folder",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.ELOOP: "symbolic links lead in a circle: choose another folder",
    **dict.fromkeys((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP), _NO_LOCKS),
}

_SECONDS_TO_REACH_HUB = 5.0
# What numpy and torch say when the disk is full.
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written|unexpected pos \d+ vs|file write failed")


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into one line that names the path and the remedy.

    Errors that a library raises with the system's message in its text count, too.
    """
    try:
        yield
    except TilthError:
        raise
    except OSError as error:
        remedy = _REMEDIES.get(_errno(error) or 0, error.strerror or str(error))
        raise TilthError(f"{error.filename or path}: {remedy}") from error
    except Exception as error:
        number = _errno(error)
        if number is None:
            raise
        raise TilthError(f"{path}: {_REMEDIES[number]}") from error


def check_writable(folder: Path) -> None:
    """Raise PermissionError, which `disk_errors` words, unless a folder can be written."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))


def is_damage(error: Exception) -> bool:
    """Tell whether an error of reading is the file's fault, not of memory or permissions."""
    if isinstance(error, MemoryError):
        return False
    return not isinstance(error, OSError) or error.errno in (None, errno.EIO)


def _errno(error: Exception) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    if _SHORT_WRITE.search(text):
        return errno.ENOSPC
    return next((number for number in _REMEDIES if os.strerror(number) in text), None)


def check_input(path: Path) -> bool:
    """Return whether a file or folder exists to read."""
    try:
        str(path).encode()
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: check the path") from error
    except ValueError as error:  # a surrogate, or NUL
        raise InputError(f"{str(path)!a}: the name is not UTF-8: rename the file") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{path}: is a pipe, a device or a socket: give a file")
    return True


def atomic_write(path: Path, write: Callable[[BinaryIO], object], *, sync: bool = True) -> None:
    """Write a file under a temporary name, sync it, rename it, sync its folder.

    The file of a URL's copy is put to the store before it is renamed.

    Args:
        sync: False: a crash of the machine, not of the process, may leave a damaged file.
    """
    with disk_errors(path):
        temporary, file = create_locked(lambda name: path.with_name(name))
        try:
            with file:
                write(file)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
                publish(path, temporary)
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if sync:
            sync_folder(path.parent)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically; surrogates, of a name that is not UTF-8, as JSON escapes them."""
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    atomic_write(path, lambda file: file.write(data))


def write_json(path: Path, value: Any) -> None:
    """Write an indented JSON file atomically."""
    write_file(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def create_locked(place: Callable[[str], Path]) -> tuple[Path, BinaryIO]:
    """Create a file of a new temporary name and lock it: `remove_leftovers` spares it.

    `place` returns the file's path for a temporary name; it is called again with another name if
    the file is removed before it is locked.
    """
    while True:
        path = place(f"{TEMPORARY}{secrets.token_hex(4)}")
        file = open(path, "xb")  # noqa: SIM115 - closed by the caller
        with suppress(OSError):  # without locks, leftovers are never removed
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return path, file
        file.close()


def try_lock(file: BinaryIO) -> bool:
    """Lock a file that is open for writing until it is closed; False: another process holds it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of killed writers from a folder, not those being written."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if is_temporary(path.name) and path.is_file():
            with suppress(OSError), open(path, "r+b") as file:
                if try_lock(file):
                    path.unlink()


def is_temporary(name: str) -> bool:
    """Say whether a file name is a temporary one of `create_locked`."""
    return _TEMPORARY.fullmatch(name) is not None


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a rename in it survives a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def in_local_folder(path: Path) -> bool:
    """Return whether a name such as `runs/x` begins with a local folder: then it is no hub name."""
    return len(path.parts) > 1 and Path(path.parts[0]).is_dir()


def hub_answers() -> bool:
    """Return whether the hub is reachable: otherwise its client would retry for a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_REACH_HUB)
    except Exception as error:  # the client's own errors, of whichever http library it uses
        log.info("the hub does not answer (%s): only its cache is read", error)
        return False
    return True


def suggestion(path: Path) -> str:
    """Return a hint at the file or folder whose name is nearest to a missing one's, if any."""
    try:
        names = [item.name for item in path.parent.iterdir()]
    except OSError:
        return ""
    near = get_close_matches(path.name, names, n=1)
    return f" (is it {path.parent / near[0]}?)" if near else ""
