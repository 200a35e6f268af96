"""The run folder: what was asked, parts that are whole or absent, one writer at a time."""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import InputError, TilthError
from tilth.files import (
    atomic_write,
    check_input,
    disk_errors,
    is_temporary,
    remove_leftovers,
    sync_folder,
    try_lock,
)
from tilth.runs.progress import Progress

Work = Callable[[int, Progress], pa.Table]
"""Computes one part as a closed unit: the same index gives the same rows, anywhere."""


class Executor(Protocol):
    """Makes parts somewhere.

    A part is written where it is computed, so rows never pass through the process that asked.
    """

    def run(self, run: Run, work: Work, parts: Sequence[int], progress: Progress) -> None:
        """Compute and write the parts."""


class ThisProcess:
    """Makes parts here, one after another."""

    def run(self, run: Run, work: Work, parts: Sequence[int], progress: Progress) -> None:
        """Compute and write the parts in order."""
        for index in parts:
            with progress.attempt():
                run.write_part(index, work(index, progress))


def complete(run: Run, work: Work, *, progress: Progress, executor: Executor | None = None) -> None:
    """Make the parts of a run that are missing.

    An error or Ctrl-C leaves whole parts only; calling it again goes on from them.

    Raises:
        KeyboardInterrupt: as it came; where no part is there it says so.
    """
    missing = run.missing()
    if missing:
        try:
            (executor or ThisProcess()).run(run, work, missing, progress)
        except KeyboardInterrupt:
            if run.done():
                raise
            raise KeyboardInterrupt("no part was finished, the same command begins anew") from None


Json: TypeAlias = Any
RESULTS = "results.json"
# Runs begun when fingerprints of models were of a sample of their weights lack this in run.json.
WHOLE = "whole_models"
_MODELS = ("model", "base", "encoder", "teacher", "forward", "backward", "scorer")
_SAMPLED = (
    ", or it is: the run was begun by an earlier version, whose fingerprints of models were others"
)
COMPARED = ("command", "settings", "fingerprints", "parts")
_KINDS: dict[str, type] = {
    "command": str, "settings": dict, "fingerprints": dict, "parts": int, "resolved": dict,
    "versions": dict, "outputs": list,
}  # fmt: skip
_DEPTH = 32  # what is nested deeper was not asked by tilth, and cannot be compared or written
# Runs of earlier versions do not list what they have made.
_OPTIONAL: dict[str, Json] = {"outputs": [], "versions": {}}
_PACKAGES = ("tilth", "torch", "transformers", "datasets", "pyarrow", "numpy")


def read_run_json(path: Path) -> dict[str, Json]:
    """Return what a run folder's run.json holds.

    Raises:
        InputError: there is none, or it is a pipe.
        TilthError: it is damaged.
    """
    file = path / "run.json"
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no run.json: name a run folder") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise TilthError(f"{file}: cannot be read ({reason}): --overwrite starts anew") from error
    if _is_deep(found):
        raise TilthError(f"{file}: cannot be read (nested too deep): --overwrite starts anew")
    wrong = "no object" if not isinstance(found, dict) else _wrong(found)
    if wrong:
        raise TilthError(f"{file}: is not what tilth wrote ({wrong}): --overwrite starts anew")
    checked: dict[str, Json] = found
    return checked


def read_results(folder: Path, kinds: Mapping[str, type] = {}) -> dict[str, Json] | None:
    """Return what a folder's results.json holds; None: it is missing or damaged.

    Args:
        folder: of a run.
        kinds: name -> type of what it must hold.
    """
    file = folder / RESULTS
    if not file.is_file():  # a pipe would be waited for
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in kinds.items()
    )
    return found if right else None


def _is_deep(value: Json) -> bool:
    level = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _wrong(found: Mapping[str, Json]) -> str | None:
    """Return what is wrong with the fields of a run.json."""
    for name, kind in _KINDS.items():
        value = found.get(name, _OPTIONAL.get(name))
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} is {_short(value)}"
    if found["parts"] < 0:
        return f"parts is {found['parts']}"
    for name in found.get("outputs", ()):
        # A run removes what it lists: its own files, by name, and nothing outside its folder.
        if not isinstance(name, str) or name[:1] in ("", ".") or Path(name).name != name:
            return f"outputs holds {_short(name)}"
    return None


def outputs_of(found: Mapping[str, Json], default: Sequence[str]) -> list[str]:
    """Return what a run has made: what run.json lists, or `default` of an earlier version's."""
    return list(found.get("outputs", default))


def differences(found: Mapping[str, Json], asked: Mapping[str, Json]) -> list[str]:
    """Return a line for each thing that was asked for otherwise."""
    if found["command"] != asked["command"]:
        return [f"command is {found['command']} in the folder, {asked['command']} asked"]
    old, new = found["settings"], asked["settings"]
    lines = [
        f"{name} is {_short(old.get(name))} in the folder, {_short(new.get(name))} asked"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    old, new = found["fingerprints"], asked["fingerprints"]
    sampled = "" if found.get(WHOLE) else _SAMPLED
    lines += [
        f"the {name} {'are' if name.endswith('s') else 'is'} not the same"
        + (sampled if name in _MODELS else "")
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    if not lines and found["parts"] != asked["parts"]:
        lines.append(f"it has {found['parts']} parts, {asked['parts']} asked")
    return lines


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return settings as JSON gives them back, so that they compare equal later."""
    plain: dict[str, Json] = json.loads(json.dumps(settings))
    return plain


def versions() -> dict[str, str]:
    """Return the versions of Python and of what rows depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203 - a handful
            continue
    return found


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
    atomic_write(aside / _RUN, lambda file: file.write(content))


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
    atomic_write(folder / _RUN, lambda file: file.write(content))
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


log = logging.getLogger(__name__)

_PART = re.compile(r"part-(\d{5,})\.parquet")
_LOCK = ".tilth-lock"
_ABOUT = b"tilth"  # a key of a part's Parquet metadata


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
        self._replaces: bytes | None = None  # run.json of the run that this one overwrites

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        command: str,
        settings: Mapping[str, Json],
        fingerprints: Mapping[str, str],
        parts: int,
        outputs: Sequence[str] = (),
        overwrite: bool = False,
    ) -> Run:
        """Make a run folder, or return to one with the same settings.

        Args:
            path: the folder; made with its parents where needed.
            command: the tilth command, such as `generate`.
            settings: everything asked for that changes rows; JSON values.
            fingerprints: name -> hash, of inputs and models.
            parts: how many parts the finished run has.
            outputs: names of the files and folders that the run makes in its folder, beside
                `parts`, `report.html` and `curated`; run.json lists them.
            overwrite: replace an earlier run in this folder. What its run.json lists is set aside
                when this run is entered, and nothing else; it is removed with the first part, or
                when the `with` block ends without an error. It is put back if the block ends
                with an `InputError`, or before anything was made.

        Raises:
            RunMismatch: the folder holds another run; every difference is named.
            RunLocked: another process writes in it.
            InputError: the folder holds something else.
            TilthError: the folder cannot be written.
        """
        path = Path(path)
        _check_name(path)
        asked = {
            "command": command,
            "settings": plain(settings),
            "fingerprints": dict(fingerprints),
            "parts": parts,
            "outputs": ["parts", "report.html", "curated", *outputs],
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
            run._open(overwrite)
        return run

    def _open(self, overwrite: bool) -> None:
        refuse_foreign(self.path)  # again: it may have been filled before we had the lock
        file = self.path / "run.json"
        if not file.exists():
            self._begin()
            return
        with disk_errors(self.path):
            recover(self.path)
        if overwrite:
            refuse_other_command(self.path, self.command)
            self._replaces = file.read_bytes()
            return
        found = read_run_json(self.path)
        if self._is_aside() and differences(found, self._asked):
            before = read_run_json(self.path / ASIDE)
            if not differences(before, self._asked):
                self._restore()
                found = before
        self._compare(found)
        self._asked = found
        self._make_parts_folder()

    def _begin(self) -> None:
        self._asked["versions"] = versions()
        self._asked[WHOLE] = True
        self._asked["created"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        # A run begun anew within the same second is another run too.
        self._asked["start"] = secrets.token_hex(8)
        self._asked["resolved"] = {}
        # run.json comes first and is replaced last: what a killed process leaves is still a run.
        self._save()
        self._make_parts_folder()

    def _replace(self) -> None:
        """Set the earlier run aside and begin this one in its place."""
        file = self.path / "run.json"
        if not file.exists() or file.read_bytes() != self._replaces:
            raise self._changed()
        with disk_errors(self.path), ExitStack() as held:
            if self._is_aside():  # it has not been replaced yet by the run that now stands here
                self._restore()
            names = self._outputs()
            for name in names:
                if (self.path / name / _LOCK).is_file():  # a run of its own
                    held.enter_context(Run(self.path / name, {})._locked())
            set_aside(self.path, names)
            self._begin()
        self._replaces = None

    def _outputs(self) -> list[str]:
        """Return what the run in the folder may have made."""
        try:
            return outputs_of(read_run_json(self.path), self._asked["outputs"])
        except TilthError:  # damaged: of the same command, as far as anybody knows
            return list(self._asked["outputs"])

    def _is_aside(self) -> bool:
        return (self.path / ASIDE).is_dir()

    def _restore(self) -> None:
        with disk_errors(self.path):
            restore(self.path, self._outputs())

    def _settle(self, error: BaseException | None) -> None:
        """Remove the run that was set aside, or put it back."""
        if not self._is_aside():
            return
        if error is None:
            self._discard()
        elif isinstance(error, InputError) or not self._has_made_any():
            self._restore()
            log.info("%s: the earlier run is back in its place", self.path)
        else:
            log.warning(
                "%s: the earlier run is kept in %s until this one has its first part: go on "
                "without --overwrite", self.path, ASIDE,
            )  # fmt: skip

    def _has_made_any(self) -> bool:
        made = [self.path / name for name in self._asked["outputs"] if name != "parts"]
        parts = self.path / "parts"
        return any(item.exists() for item in made) or (parts.is_dir() and any(parts.iterdir()))

    def _discard(self) -> None:
        with disk_errors(self.path):
            discard(self.path)

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
            raise self._changed()
        self._asked = found

    def _changed(self) -> RunMismatch:
        return RunMismatch(
            f"{self.path}: another process has begun another run here meanwhile: wait for it, "
            "or choose another --out"
        )

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
            if self._replaces is None:
                self._check_unchanged()
            else:
                self._replace()
            with disk_errors(self.path):
                remove_leftovers(self.path)
                remove_leftovers(self.path / "parts")
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
        """Release the folder; settle what becomes of a run that this one overwrites."""
        try:
            self._settle(error)
        finally:
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
                free = try_lock(lock)
            except OSError:
                lock.close()
                raise
        if not free:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip() or "another process"
            lock.close()
            raise RunLocked(
                f"{self.path}: {holder} is writing here: wait for it, or choose another --out"
            )
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        lock.flush()
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    def part_path(self, index: int) -> Path:
        """Return where a part lies."""
        return self.path / "parts" / f"part-{index:05d}.parquet"

    def write_part(self, index: int, table: pa.Table) -> None:
        """Write a part: afterwards it is there whole, whatever happens meanwhile.

        Raises:
            TilthError: the disk is full, or the folder cannot be written.
        """
        self._must_be_locked()
        about = self._about(index, table.column_names, table.num_rows)
        marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _ABOUT: about})
        atomic_write(
            self.part_path(index),
            lambda file: pq.write_table(marked, file, compression="zstd", write_page_checksum=True),
        )
        self._discard()

    def _about(self, index: int, columns: Sequence[str], rows: int) -> bytes:
        """Return what a part says of itself: which part of which run it is, and what it holds."""
        asked = json.dumps([self._asked[name] for name in COMPARED], sort_keys=True)
        about = {
            "part": index,
            "run": blake2b(asked.encode(), digest_size=8).hexdigest(),
            "columns": columns,
            "rows": rows,
        }
        return json.dumps(about).encode()

    def read_part(self, index: int) -> pa.Table:
        """Return a part's rows.

        Raises:
            TilthError: the disk has damaged it, or it is another part than the run wrote; it is
                moved aside and counts as missing.
        """
        path = self.part_path(index)
        with disk_errors(path):
            try:
                self._check_part(index)
                table = pq.read_table(path, page_checksum_verification=True)
            except (pa.ArrowException, OSError) as error:
                if not _is_damage(error):
                    raise
                aside = _move_aside(path)
                raise TilthError(
                    f"{path}: is damaged, moved to {aside.name}: run the same command again"
                ) from error
        metadata = {k: v for k, v in (table.schema.metadata or {}).items() if k != _ABOUT}
        return table.replace_schema_metadata(metadata or None)

    def done(self) -> list[int]:
        """Return the numbers of the parts that are there and readable.

        A part that is damaged, or none that this run wrote there, is moved aside with a warning
        and will be made again.
        """
        found = []
        for path in sorted((self.path / "parts").glob("part-*.parquet")):
            match = _PART.fullmatch(path.name)
            if match and int(match[1]) < self.parts and self._readable(int(match[1])):
                found.append(int(match[1]))
        return found

    def _readable(self, index: int) -> bool:
        path = self.part_path(index)
        with disk_errors(path):
            try:
                self._check_part(index)
            except (pa.ArrowException, OSError) as error:
                if not _is_damage(error):
                    raise
                aside = _move_aside(path)
                log.warning("%s cannot be read (%s): moved to %s", path, error, aside.name)
                return False
        return True

    def _check_part(self, index: int) -> None:
        """Check that a part is whole, as far as its footer says, and the one that was written.

        Raises:
            pyarrow.ArrowInvalid: it is damaged, emptied, or of another place or run.
        """
        found = pq.read_metadata(self.part_path(index))
        about = (found.metadata or {}).get(_ABOUT)
        if about is None and "outputs" not in self._asked:
            return  # earlier versions left parts unmarked, and did not list outputs
        if about != self._about(index, found.schema.to_arrow_schema().names, found.num_rows):
            raise pa.ArrowInvalid("it is not what this run wrote there")

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
        # Half a character, of a name that is not UTF-8, becomes what JSON writes for it.
        data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        atomic_write(self.path / name, lambda file: file.write(data))

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
        if check_input(path / "run.json") or not path.exists():
            return
        # The lock, the run of first texts, which is made before the run that reads them, and what
        # a process that was killed while it wrote run.json left, make no foreign folder.
        others = [
            item.name
            for item in path.iterdir()
            if item.name not in (_LOCK, "x1") and not is_temporary(item.name)
        ]
    if others:
        raise InputError(
            f"{path}: the folder holds {min(others)!r} and is no run: choose another --out"
        )


def refuse_other_command(path: Path, command: str) -> None:
    """Refuse to replace the run of another command: it may be what this one reads.

    Raises:
        RunMismatch: the folder holds one.
    """
    try:
        found = read_run_json(path)["command"]
    except TilthError:  # none, or damaged and to be begun anew
        return
    if found != command:
        raise RunMismatch(
            f"{path}: holds a run of `tilth {found}`: choose another --out, or remove the folder"
        )


def check_place(path: Path, *, is_run: bool = True) -> None:
    """Refuse a path where no folder can be made, or no run; nothing is made.

    Args:
        path: the folder.
        is_run: whether it is to be a run's.

    Raises:
        InputError: a file is in the way, or the folder holds something else.
        TilthError: the path cannot be written, or its run.json is damaged.
    """
    _check_name(path)
    with disk_errors(path):
        if path.is_symlink() and not path.exists():
            raise InputError(f"{path} is a link that leads nowhere: choose another --out")
        nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
        if not nearest.is_dir():
            raise InputError(f"{nearest} is a file: choose another --out")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "Permission denied", str(nearest))
        if is_run:
            refuse_foreign(path)


def _check_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{str(path)!a}: the name is not UTF-8: choose another --out") from error


def refuse_inside(out: Path, *sources: str | None, named: Sequence[str | None] = ()) -> None:
    """Refuse a run folder that holds what is read, or that would be read as a part of it.

    Args:
        out: the run folder.
        sources: read as a whole, every file of a folder: `out` may not lie in one, unless it is
            a run, of which the data set alone is read.
        named: models and folders of which files are read by name: `out` may lie in one.

    Raises:
        InputError: it does.
    """
    place = Path(os.path.realpath(out))  # of a link to itself, too
    for name in (*sources, *named):
        path = Path(os.path.realpath(os.path.expanduser(name))) if name is not None else None
        if path is None or not os.path.exists(path):
            continue
        if place in (path, *path.parents):
            raise InputError(f"{out} holds {name} itself: choose another --out")
        if path in place.parents and name in sources and not os.path.exists(path / "run.json"):
            raise InputError(f"{out} lies in {name}, which is read: choose another --out")
