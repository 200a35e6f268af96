"""The run folder: what was asked, parts that are whole or absent, one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import InputError, TilthError
from tilth.runs.asked import COMPARED, Json, differences, plain, read_run_json, versions
from tilth.runs.files import TEMPORARY, disk_errors, write_whole

log = logging.getLogger(__name__)

_PART = re.compile(r"part-(\d{5,})\.parquet")
# All that `--overwrite` may remove beside run.json, which it replaces; the rest is the user's.
_OWNED = (
    "parts", "dataset", "curated", "model", "checkpoints", "results.json", "results.md",
    "report.html", "bank.json", "codec.safetensors", "shards", "adding", "index",
    "encoder",
)  # fmt: skip
_LOCK = ".tilth-lock"
_STALE = re.compile(rf"{re.escape(TEMPORARY)}\d+-.+")
# What a folder may hold that is no run yet: our lock, the nested run of first texts, and what a
# process that was killed while it wrote run.json left.
_BEFORE_START = re.compile(rf"{re.escape(_LOCK)}|x1|{re.escape(TEMPORARY)}\d+-run\.json")


class RunMismatch(InputError):  # noqa: N818 - named for what it is
    """The folder holds a run with other settings."""


class RunLocked(TilthError):  # noqa: N818
    """Another process writes in the folder."""


class Run:
    """One long job's folder.

    `run.json` says what was asked, `parts/` holds what is done. There is no second record of
    what is done that could disagree. Use it as a context manager: only then it is locked and may
    be written.
    """

    def __init__(self, path: Path, asked: dict[str, Json]) -> None:
        self.path, self._asked = path, asked
        self._lock: BinaryIO | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        command: str,
        settings: Mapping[str, Json],
        fingerprints: Mapping[str, str],
        parts: int,
        overwrite: bool = False,
        nested: Sequence[str] = (),
    ) -> Run:
        """Make a run folder, or return to one with the same settings.

        Args:
            path: the folder; made with its parents where needed.
            command: the tilth command, such as `generate`.
            settings: everything asked for that changes rows; JSON values.
            fingerprints: name -> hash, of inputs and models.
            parts: how many parts the finished run has.
            overwrite: remove an earlier run in this folder first, never other files.
            nested: names of runs inside this folder that `overwrite` removes as well.

        Raises:
            RunMismatch: the folder holds another run; every difference is named.
            RunLocked: another process writes in it, or in a nested run that would be removed.
            InputError: the folder holds something else.
            TilthError: the folder cannot be written.
        """
        path = Path(path)
        asked = {
            "command": command,
            "settings": plain(settings),
            "fingerprints": dict(fingerprints),
            "parts": parts,
        }
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            # What is refused is left as it is: these checks come before the lock, which is a file.
            refuse_foreign(path)
            if not overwrite and (path / "run.json").exists():
                read_run_json(path)
            if not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied", str(path))
        run = cls(path, asked)
        with run._locked():  # two that start together must not both make it
            run._open(overwrite, nested)
        return run

    def _open(self, overwrite: bool, nested: Sequence[str]) -> None:
        is_run = (self.path / "run.json").exists()
        if is_run and not overwrite:
            found = read_run_json(self.path)
            self._compare(found)
            self._asked = found
            self._make_parts_folder()
            return
        refuse_foreign(self.path)  # again: it may have been filled before we had the lock
        if overwrite:
            for name in nested:
                _remove_run(self.path / name)
        if is_run:
            self._refuse_other_command()
            self._remove_owned()
        self._asked["versions"] = versions()
        self._asked["created"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        # A run begun anew within the same second is another run too.
        self._asked["start"] = secrets.token_hex(8)
        self._asked["resolved"] = {}
        # run.json comes first and is replaced last: what a killed process leaves is still a run.
        self._save()
        self._make_parts_folder()

    def _refuse_other_command(self) -> None:
        """Refuse to remove the run of another command: it may be what this one reads."""
        try:
            command = read_run_json(self.path).get("command")
        except TilthError:  # damaged, and to be begun anew
            return
        if command != self._asked["command"]:
            raise RunMismatch(
                f"{self.path}: holds a run of `tilth {command}`: choose another --out, or remove "
                "the folder"
            )

    def _make_parts_folder(self) -> None:
        with disk_errors(self.path):
            (self.path / "parts").mkdir(exist_ok=True)

    def _compare(self, found: Mapping[str, Json]) -> None:
        changes = list(differences(found, self._asked))
        if changes:
            raise RunMismatch(
                f"{self.path}: holds another run: {'; '.join(changes)}: --overwrite starts "
                "anew, or choose another --out"
            )
        for name, now in versions().items():
            then = found.get("versions", {}).get(name)
            if then != now:
                log.warning("%s was begun with %s %s, this is %s", self.path, name, then, now)

    def _check_unchanged(self) -> None:
        """Check that the folder still holds the run that was opened, and take over what it says.

        The lock is free between `open` and `with`: what another process resolved meanwhile holds,
        what it overwrote is no longer ours to write into.
        """
        found = read_run_json(self.path) if (self.path / "run.json").exists() else {}
        same = (*COMPARED, "created", "start")
        if any(found.get(name) != self._asked.get(name) for name in same):
            raise RunMismatch(
                f"{self.path}: another process has begun another run here meanwhile: wait for it, "
                "or choose another --out"
            )
        self._asked = found

    def _remove_owned(self) -> None:
        with disk_errors(self.path):
            for name in _OWNED:
                item = self.path / name
                if item.is_dir() and not item.is_symlink():
                    shutil.rmtree(item)
                else:
                    item.unlink(missing_ok=True)

    def _save(self) -> None:
        text = json.dumps(self._asked, indent=2, ensure_ascii=False) + "\n"
        self.write_file("run.json", text)

    @property
    def command(self) -> str:
        """The tilth command that was asked for."""
        return str(self._asked["command"])

    @property
    def settings(self) -> dict[str, Json]:
        """What was asked for."""
        return dict(self._asked["settings"])

    @property
    def parts(self) -> int:
        """How many parts the finished run has."""
        return int(self._asked["parts"])

    def resolve(self, name: str, make: Callable[[], Json]) -> Json:
        """Return a fact that is chosen once, at the first start, and kept for every resume."""
        resolved = self._asked["resolved"]
        if name not in resolved:
            resolved[name] = make()
            self._save()
        return resolved[name]

    def __enter__(self) -> Run:
        """Lock the folder; clean up after a writer that was killed.

        Raises:
            RunLocked: another process holds it.
            RunMismatch: another process has begun another run here since this one was opened.
        """
        self._take()
        try:
            self._check_unchanged()
            self._clean()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the folder."""
        self._release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock without asking what the folder holds."""
        self._take()
        try:
            yield
        finally:
            self._release()

    def _take(self) -> None:
        with disk_errors(self.path):
            lock = open(self.path / _LOCK, "a+b")  # noqa: SIM115 - closed by _release()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "another process"
            lock.close()
            raise RunLocked(
                f"{self.path}: {holder} is writing here: wait for it, or choose another --out"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        lock.flush()
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def _clean(self) -> None:
        """Remove the temporary files of killed writers from the two folders a run writes."""
        with disk_errors(self.path):
            for folder in (self.path, self.path / "parts"):
                for item in folder.glob(f"{TEMPORARY}*"):
                    if _STALE.fullmatch(item.name) and item.is_file():
                        item.unlink(missing_ok=True)

    def part_path(self, index: int) -> Path:
        """Return where a part lies."""
        return self.path / "parts" / f"part-{index:05d}.parquet"

    def write_part(self, index: int, table: pa.Table) -> None:
        """Write a part: afterwards it is there whole, whatever happens meanwhile.

        Raises:
            TilthError: the disk is full, or the folder cannot be written.
        """
        self._must_be_locked()
        write_whole(
            self.part_path(index),
            lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True),
        )

    def read_part(self, index: int) -> pa.Table:
        """Return a part's rows.

        Raises:
            TilthError: the disk has damaged it; it is moved aside and counts as missing.
        """
        path = self.part_path(index)
        with disk_errors(path):
            try:
                return pq.read_table(path, page_checksum_verification=True)
            except (pa.ArrowException, OSError) as error:
                if not _is_damage(error):
                    raise
                aside = _move_aside(path)
                raise TilthError(
                    f"{path}: is damaged, moved to {aside.name}: run the same command again"
                ) from error

    def done(self) -> list[int]:
        """Return the numbers of the parts that are there and readable.

        A part that the disk has damaged is moved aside with a warning and will be made again.
        """
        found = []
        for path in sorted((self.path / "parts").glob("part-*.parquet")):
            match = _PART.fullmatch(path.name)
            if match and int(match[1]) < self.parts and self._readable(path):
                found.append(int(match[1]))
        return found

    def _readable(self, path: Path) -> bool:
        with disk_errors(path):
            try:
                pq.read_metadata(path)
            except (pa.ArrowException, OSError) as error:
                if not _is_damage(error):
                    raise
                aside = _move_aside(path)
                log.warning("%s cannot be read (%s): moved to %s", path, error, aside.name)
                return False
        return True

    def missing(self) -> list[int]:
        """Return the numbers of the parts still to be made."""
        done = set(self.done())
        return [index for index in range(self.parts) if index not in done]

    def rows_done(self) -> int:
        """Return how many rows the parts hold."""
        return sum(pq.read_metadata(self.part_path(index)).num_rows for index in self.done())

    def write_file(self, name: str, content: str | bytes) -> None:
        """Write a file of the run as a whole, such as its report."""
        self._must_be_locked()
        data = content.encode() if isinstance(content, str) else content
        write_whole(self.path / name, lambda file: file.write(data))

    def _must_be_locked(self) -> None:
        if self._lock is None:
            raise RuntimeError("a run is written inside its `with` block only")


def _is_damage(error: Exception) -> bool:
    """Say whether a file is at fault, and not permissions, open files or memory."""
    if isinstance(error, MemoryError):
        return False
    return not isinstance(error, OSError) or error.errno in (None, errno.EIO)


def _move_aside(path: Path) -> Path:
    return path.rename(path.with_suffix(".damaged"))


def refuse_foreign(path: Path) -> None:
    """Refuse a folder that is no run and holds something; nothing in it is touched.

    Raises:
        InputError: what it holds.
    """
    with disk_errors(path):
        if (path / "run.json").exists() or not path.exists():
            return
        others = [item.name for item in path.iterdir() if not _BEFORE_START.fullmatch(item.name)]
    if others:
        raise InputError(
            f"{path}: the folder holds {min(others)!r} and is no run: choose another --out"
        )


def refuse_inside(out: Path, *inputs: str | None) -> None:
    """Refuse a run folder that is, or holds, what is read: --overwrite would remove it.

    Raises:
        InputError: it does.
    """
    place = out.resolve()
    for name in inputs:
        path = Path(name).expanduser() if name is not None else None
        if (
            path is not None
            and path.exists()
            and place in (path.resolve(), *path.resolve().parents)
        ):
            raise InputError(f"{out} holds {name} itself: choose another --out")


def _remove_run(path: Path) -> None:
    """Remove a run, but not while it is written, and not what else its folder holds.

    Raises:
        RunLocked: another process writes in it.
    """
    if not (path / "run.json").is_file():
        return
    run = Run(path, {})
    with run._locked(), disk_errors(path):
        run._remove_owned()
        run._clean()
        (path / "run.json").unlink(missing_ok=True)
        (path / _LOCK).unlink()
        if not any(path.iterdir()):
            path.rmdir()
