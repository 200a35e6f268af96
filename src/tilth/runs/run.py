"""Manage a run folder: settings, parts that are whole or absent, one writer at a time."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import InputError, TilthError
from tilth.files import (
    atomic_write,
    check_writable,
    disk_errors,
    is_damage,
    remove_leftovers,
    write_file,
    write_json,
)
from tilth.runs.lock import Lease, lock_folder
from tilth.runs.out_folder import (
    ASIDE,
    LOCK,
    check_name,
    discard,
    is_aside,
    recover,
    refuse_changes,
    refuse_foreign,
    refuse_other_command,
    restore,
    set_aside,
)
from tilth.runs.progress import NOTHING_MADE, Progress
from tilth.runs.run_json import (
    COMPARED,
    Json,
    RunMismatch,
    differences,
    read_run_json,
    versions,
    write_results,
)
from tilth.storage import as_path, fetch, publish, pull, push, remove
from tilth.urls import cache_folder, keep_copies_in, url_of

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[int, Progress], pa.Table]
"""Computes one part as a closed unit: the same index gives the same rows, anywhere."""

_RUN = "run.json"
_BACK = "the earlier run is back in its place"
_PART = re.compile(r"part-(\d{5,})\.parquet")
_ABOUT = b"tilth"  # a key of a part's Parquet metadata


class _DamagedPartError(TilthError):
    """Raised when a damaged part has been moved aside."""


class Run:
    """Manage the folder of one long job.

    `run.json` records the settings, `parts/` the progress. The folder is locked, and may be
    written, only inside `with`.
    """

    def __init__(self, path: Path, asked: dict[str, Json]) -> None:
        self.path, self._asked = path, asked
        self._lock: ExitStack | None = None
        self._lease: Lease | None = None
        self._cache = cache_folder()  # a worker's copies lie where this process has them
        self._is_worker, self._is_remote = False, url_of(path) is not None
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
        """Make a run folder, or reopen one with the same settings.

        Args:
            command: the tilth command, such as `generate`.
            settings: all settings that change rows; JSON values.
            fingerprints: name -> hash, of inputs and models.
            parts: number of parts of the finished run.
            outputs: names of the files and folders that the run makes in its folder, beside
                `parts`, `report.html` and `curated`; run.json lists them.
            overwrite: replace an earlier run in this folder. What its run.json lists is set aside
                when this run is entered, and nothing else; it is removed with the first part, or
                when the `with` block ends without an error. It is put back if the block ends
                with an `InputError`, or before anything was made. Under a URL, where nothing
                can be set aside, it is removed when this run is entered.

        Raises:
            RunMismatch: the folder holds another run; every difference is named.
            RunLocked: another process writes in it.
            InputError: the folder holds something else.
            TilthError: the folder cannot be written.
        """
        path = as_path(path)
        check_name(path)
        asked = {
            "command": command,
            "settings": json.loads(json.dumps(settings)),  # as they will be read back
            "fingerprints": dict(fingerprints),
            "parts": parts,
            "outputs": ["parts", "report.html", "curated", *outputs],
        }
        run = cls(path, asked)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            # A refused folder stays as it is: these checks come before the lock, which is a file.
            refuse_foreign(path)
            if not overwrite and (path / _RUN).exists():
                read_run_json(path)
            check_writable(path)
            with lock_folder(path):  # two that start together must not both make it
                refuse_foreign(path)  # again: another process may have filled it meanwhile
                run._open(overwrite)
        return run

    def _open(self, overwrite: bool) -> None:
        file = self.path / _RUN
        if not file.exists():
            self._begin()
            return
        recover(self.path)
        if overwrite:
            refuse_other_command(self.path, self.command)
            self._replaces = file.read_bytes()
            return
        found = read_run_json(self.path)
        if is_aside(self.path) and differences(found, self._asked):
            before = read_run_json(self.path / ASIDE)
            if not differences(before, self._asked):
                restore(self.path, self._earlier_outputs())
                log.warning("%s: %s", self.path, _BACK)
                found = before
        self._compare(found)
        self._asked = found
        (self.path / "parts").mkdir(exist_ok=True)

    def _begin(self) -> None:
        self._asked |= {
            "versions": versions(),
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "start": secrets.token_hex(8),  # tells apart runs begun within the same second
            "resolved": {},
        }
        # run.json comes first and is replaced last: a killed process leaves a run, too.
        self._save()
        (self.path / "parts").mkdir(exist_ok=True)

    def _compare(self, found: Mapping[str, Json]) -> None:
        refuse_changes(self.path, differences(found, self._asked))
        for name, now in versions().items():
            then = found["versions"].get(name, now)  # earlier versions noted fewer packages
            if then != now:
                log.warning("%s was begun with %s %s, this is %s", self.path, name, then, now)

    def __enter__(self) -> Run:
        """Lock the folder; remove the leftovers of killed writers."""
        with disk_errors(self.path), ExitStack() as stack:
            self._lease = stack.enter_context(lock_folder(self.path))
            if self._replaces is None:
                self._reread()
            else:
                self._replace()
            remove_leftovers(self.path)
            remove_leftovers(self.path / "parts")
            self._lock = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Unlock the folder; remove the overwritten run, or put it back.

        Inputs that are refused before anything was made leave no run that holds the folder.
        """
        lock, self._lock = self._lock, None
        assert lock is not None
        with lock, disk_errors(self.path):
            if error is None:
                self.check_lease()
                push(self.path)
            if not is_aside(self.path):
                if isinstance(error, InputError) and not self.resolved and not self._has_output():
                    for name in (*self._asked["outputs"], _RUN):
                        remove(self.path / name)
                return
            if error is None:
                discard(self.path)
            elif isinstance(error, InputError) or not self._has_output():
                restore(self.path, self._earlier_outputs())
                log.info("%s: %s", self.path, _BACK)
            else:
                log.warning(
                    "%s: the earlier run is kept in %s for now: go on without --overwrite",
                    self.path, ASIDE,
                )  # fmt: skip

    def _reread(self) -> None:
        """Reload facts that another process resolved since `open`; refuse another run."""
        found = read_run_json(self.path) if (self.path / _RUN).exists() else {}
        if not self._is_begun_as(found):
            raise self._changed()
        self._asked = found

    def _is_begun_as(self, found: Mapping[str, Json]) -> bool:
        return all(found.get(name) == self._asked.get(name) for name in ("created", "start"))

    def _replace(self) -> None:
        """Set the earlier run aside and begin this one in its place."""
        file = self.path / _RUN
        if not file.exists() or file.read_bytes() != self._replaces:
            raise self._changed()
        with ExitStack() as held:
            if is_aside(self.path):  # it replaced another one and has made no part yet
                restore(self.path, self._earlier_outputs())
            names = self._earlier_outputs()
            for name in names:
                if (self.path / name / LOCK).is_file():  # a run of its own
                    held.enter_context(lock_folder(self.path / name))
            if url_of(self.path) is None:
                set_aside(self.path, names)
            else:  # a store renames nothing: the earlier run goes at once
                for name in names:
                    remove(self.path / name)
            self._begin()
        self._replaces = None

    def _changed(self) -> RunMismatch:
        return RunMismatch(
            f"{self.path}: another process has begun another run here meanwhile: wait for it, "
            "or choose another --out"
        )

    def _earlier_outputs(self) -> list[str]:
        """Return the outputs of the earlier run in the folder."""
        try:
            found = read_run_json(self.path)
        except TilthError:  # damaged: presumably of the same command
            found = self._asked
        return list(found["outputs"])

    def _has_output(self) -> bool:
        """Return whether anything was made; an empty folder, and a lock, are nothing."""
        made = [self.path / name for name in self._asked["outputs"]]
        files = (file for item in made for file in (item, *item.rglob("*")))
        return any(file.is_file() and file.name != LOCK for file in files)

    @property
    def command(self) -> str:
        """Return the tilth command of the run."""
        return str(self._asked["command"])

    @property
    def settings(self) -> dict[str, Json]:
        """Return the settings of the run."""
        return dict(self._asked["settings"])

    @property
    def parts(self) -> int:
        """Return the number of parts of the finished run."""
        return int(self._asked["parts"])

    @property
    def resolved(self) -> dict[str, Json]:
        """Return the facts that `resolve` has chosen so far."""
        return dict(self._asked["resolved"])

    def resolve(self, name: str, make: Callable[[], Json]) -> Json:
        """Return a fact that is chosen once, at the first start, and kept for every resume."""
        resolved = self._asked["resolved"]
        if name not in resolved:
            self._check_locked()
            resolved[name] = make()
            self._save()
        return resolved[name]

    def as_worker(self) -> Run:
        """Return the run as another process uses it, on any host: it writes parts alone.

        The facts that it resolves are its own; the process that holds the lock writes run.json.
        """
        worker = Run(self.path.absolute(), json.loads(json.dumps(self._asked)))
        worker._is_worker, worker._is_remote = True, self._is_remote
        return worker

    def check_shared(self) -> None:
        """Raise InputError unless this process sees the run's folder and can write its parts."""
        if self._is_remote:
            self._share_copies()
        try:
            found = read_run_json(self.path)
        except TilthError:
            found = {}
        if not self._is_begun_as(found):
            raise InputError(
                f"{self.path}: host {socket.gethostname()} does not see this run folder: choose an "
                "--out on storage that all hosts share, under the same path"
            )
        if not os.access(self.path / "parts", os.W_OK):
            raise InputError(
                f"{self.path}: host {socket.gethostname()} may not write there: run the workers as "
                "a user who may"
            )

    def _share_copies(self) -> None:
        """Keep copies where the process that asked has them, and fetch the run's beginning."""
        keep_copies_in(self._cache)
        host = socket.gethostname()
        try:
            (self.path / "parts").mkdir(parents=True, exist_ok=True)
            pull(self.path / _RUN, clean=True)
        except OSError as error:
            raise InputError(
                f"host {host}: {error.filename}: {error.strerror}: let TILTH_CACHE name a folder "
                "that every host can make"
            ) from error
        except TilthError as error:
            raise InputError(f"host {host}: {error}") from error

    def has_part(self, index: int) -> bool:
        """Return whether a part is seen here; what a store has taken, every host sees."""
        return self._is_remote or self.part_path(index).exists()

    def check_lease(self) -> None:
        """Raise `TilthError` if another machine may write this run by now."""
        if self._lease is not None:
            self._lease.check()

    def _save(self) -> None:
        if self._is_worker:
            return
        write_json(self.path / _RUN, self._asked)

    def write_file(self, name: str, content: str | bytes) -> None:
        """Write a file of the whole run, such as its report."""
        self._check_locked()
        write_file(self.path / name, content)

    def write_results(self, results: Mapping[str, Json]) -> None:
        """Write results.json."""
        self._check_locked()
        write_results(self.path, results)

    def part_path(self, index: int) -> Path:
        """Return the path of a part."""
        return self.path / "parts" / f"part-{index:05d}.parquet"

    def _fetch_part(self, index: int) -> None:
        """Copy a part from the store.

        The process that holds the lock has current copies of all but workers' parts; a worker may
        have one of an earlier run.
        """
        path = self.part_path(index)
        if self._is_worker or not path.exists():
            fetch(path)

    def write_part(self, index: int, table: pa.Table) -> None:
        """Write a part atomically."""
        self._check_locked()
        about = self._about(index, table.column_names, table.num_rows)
        marked = table.replace_schema_metadata({**(table.schema.metadata or {}), _ABOUT: about})
        atomic_write(
            self.part_path(index),
            lambda file: pq.write_table(marked, file, compression="zstd", write_page_checksum=True),
        )
        if not self._is_worker:
            self.drop_replaced()

    def drop_replaced(self) -> None:
        """Remove the overwritten run, if there is one: this run has a part."""
        with disk_errors(self.path):
            discard(self.path)

    def read_part(self, index: int) -> pa.Table:
        """Return a part's rows; move a damaged or foreign part aside and raise `TilthError`."""
        with self._moving_damage_aside(index) as path:
            self._check_part(index)
            table = pq.read_table(path, page_checksum_verification=True)
        metadata = {k: v for k, v in (table.schema.metadata or {}).items() if k != _ABOUT}
        return table.replace_schema_metadata(metadata or None)

    def done(self) -> list[int]:
        """Return the numbers of readable parts; move damaged or foreign ones aside and warn."""
        found = []
        for path in sorted((self.path / "parts").glob("part-*.parquet")):
            match = _PART.fullmatch(path.name)
            if match and int(match[1]) < self.parts:
                try:
                    with self._moving_damage_aside(int(match[1])):
                        self._check_part(int(match[1]))
                except _DamagedPartError as error:
                    reason, aside = error.__cause__, path.with_suffix(".damaged").name
                    log.warning("%s cannot be read (%s): moved to %s", path, reason, aside)
                    continue
                found.append(int(match[1]))
        return found

    def missing(self) -> list[int]:
        """Return the numbers of the parts still to be made."""
        done = set(self.done())
        return [index for index in range(self.parts) if index not in done]

    def rows_of_part(self, index: int) -> int:
        """Return the number of rows of a part."""
        self._fetch_part(index)
        return int(pq.read_metadata(self.part_path(index)).num_rows)

    def _about(self, index: int, columns: Sequence[str], rows: int) -> bytes:
        """Return a part's metadata: run, number and size."""
        asked = json.dumps([self._asked[name] for name in COMPARED], sort_keys=True)
        about = {
            "part": index,
            "run": blake2b(asked.encode(), digest_size=8).hexdigest(),
            "columns": columns,
            "rows": rows,
        }
        return json.dumps(about).encode()

    def _check_part(self, index: int) -> None:
        """Check that a part's footer is readable and that this run wrote the part there."""
        found = pq.read_metadata(self.part_path(index))
        about = (found.metadata or {}).get(_ABOUT)
        if about != self._about(index, found.schema.to_arrow_schema().names, found.num_rows):
            raise pa.ArrowInvalid("it is not what this run wrote there")

    @contextmanager
    def _moving_damage_aside(self, index: int) -> Iterator[Path]:
        path = self.part_path(index)
        self._fetch_part(index)
        with disk_errors(path):
            try:
                yield path
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                aside = path.rename(path.with_suffix(".damaged"))
                publish(aside)
                remove(path)
                raise _DamagedPartError(
                    f"{path}: is damaged, moved to {aside.name}: run the same command again"
                ) from error

    def _check_locked(self) -> None:
        if self._lock is None and not self._is_worker:
            raise RuntimeError("a run is written inside its `with` block only")
        self.check_lease()


def part_sizes(items: int, size: int) -> list[int]:
    """Return the number of items of each part, `size` but for the last."""
    return [min(size, items - start) for start in range(0, items, size)]


def complete(
    run: Run, work: Work, sizes: Sequence[int], *, quiet: bool = False, what: str = "inputs"
) -> None:
    """Make the missing parts of a run, in order, and show the progress.

    An error or Ctrl-C leaves whole parts only; calling it again resumes from them. Where no part
    is there, and the run is no step of a larger one, the `KeyboardInterrupt` says so.

    Args:
        sizes: items of each part, which `work` counts.
        what: the items' name.
    """
    done = run.done()
    try:
        with Progress(
            sum(sizes), done=sum(sizes[part] for part in done), quiet=quiet, what=what
        ) as progress:
            for index in sorted(set(range(run.parts)) - set(done)):
                with progress.attempt():
                    run.write_part(index, work(index, progress))
    except KeyboardInterrupt:
        if run.done() or (run.path.parent / _RUN).exists():  # a step of a larger run
            raise
        raise KeyboardInterrupt(NOTHING_MADE) from None
