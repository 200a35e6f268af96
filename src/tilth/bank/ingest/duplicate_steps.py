"""Steps that find duplicates, each task of which reads a group of files or a range of keys.

`keys` of a group deal its keys out to the ranges; `dropped` of a range and the exact key names the
rows that repeat an earlier one; `shared` of a range names the rows that share a near key, `texts`
of a group deals out their texts, `dropped` of a range and a near key compares them; `reasons` of a
group gather for each row why it is dropped. A row is named by its group and its place there.
"""

from __future__ import annotations

import json
import resource
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.ingest.exchange import Batches, read_columns, write_batches
from tilth.bank.ingest.near import CANDIDATES, similar_ids
from tilth.bank.store import TEXT, read_table
from tilth.files import TEMPORARY
from tilth.storage import fetch

EXACT = "exact"
_OPEN_FILES = (1 << 16, 1 << 14, 1 << 12)  # limits, the first that is allowed
Rows = NDArray[np.int64]

_KEYS = pa.schema([("key", pa.uint64()), ("row", pa.uint32())])
_TEXTS = pa.schema([*_KEYS, ("text", pa.large_string())])
_ROWS = pa.schema([("row", pa.uint32())])
_REASONS = pa.schema([("reason", pa.uint8())])


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file with the keys of sentences, and the one with their texts: a part, or of a shard."""

    keys: Path
    texts: Path
    rows: int


@dataclass(frozen=True, slots=True)
class DuplicatePlan:
    """What all tasks share.

    Attributes:
        keys: columns of keys, the exact one first.
        starts: id of the first row of each group, and the end. # (groups + 1,)
        new: rows with lower ids are of the bank, and stay.
    """

    folder: Path
    keys: tuple[str, ...]
    ranges: int
    starts: Rows
    new: int

    @property
    def groups(self) -> range:
        """Return the numbers of the groups."""
        return range(len(self.starts) - 1)


@dataclass(frozen=True, slots=True)
class DuplicateTask:
    """A step for a range, or for a group: then with its files."""

    step: str
    number: int
    key: str = ""
    files: tuple[KeyFile, ...] = ()

    def path(self, plan: DuplicatePlan) -> Path:
        """Return the path of the file that the task makes."""
        return plan.folder / f"{self.step}-{self.key}-{self.number:05d}.arrow"


@dataclass(frozen=True, slots=True)
class PartDuplicates:
    """What was found in a file: rows that stay, a digest of which they are, rows by reason."""

    kept: int
    digest: str
    reasons: tuple[int, ...]


def do_task(task: DuplicateTask, plan: DuplicatePlan) -> None:
    """Make the file of a task; runs in a worker."""
    _allow_many_files()
    path = task.path(plan)
    if task.step == "keys":
        write_batches(path, _KEYS, _deal_keys(task, plan))
    elif task.step == "shared":
        write_batches(path, _ROWS, _by_group(_shared(task, plan), plan))
    elif task.step == "texts":
        write_batches(path, _TEXTS, _deal_texts(task, plan))
    elif task.step == "dropped":
        found = _repeated(task, plan) if task.key == EXACT else _similar(task, plan)
        write_batches(path, _ROWS, _by_group(found[found >= plan.new], plan))
    else:
        _write_reasons(task, plan)


def _allow_many_files() -> None:
    """Raise the limit of open files: each range of each key has one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for count in _OPEN_FILES if soft != resource.RLIM_INFINITY else ():
        if count <= soft:
            return
        with suppress(ValueError, OSError):  # more than the hard limit, or than the system allows
            resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
            return


def _deal_keys(task: DuplicateTask, plan: DuplicatePlan) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each key and range of it."""
    for name in plan.keys:
        keys = _column(task.files, name)
        # The high half of a key, which is a hash, times the ranges, over 2^32.
        part = (keys >> np.uint64(32)) * np.uint64(plan.ranges) >> np.uint64(32)
        order = np.argsort(part.astype(np.uint16), kind="stable")
        bounds = np.searchsorted(part[order], np.arange(plan.ranges + 1))
        for start, end in pairwise(bounds):
            rows = order[start:end]
            yield _batch(_KEYS, keys[rows], rows.astype(np.uint32))


def _column(files: Sequence[KeyFile], name: str) -> NDArray[np.uint64]:
    found = [read_columns(file.keys, [name])[name].to_numpy() for file in files]
    return np.concatenate(found)


def _batch(schema: pa.Schema, *columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [column if isinstance(column, pa.Array) else pa.array(column) for column in columns],
        schema=schema,
    )


def _by_group(ids: Rows, plan: DuplicatePlan) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each group, of its rows among sorted ids."""
    bounds = np.searchsorted(ids, plan.starts)
    for start, end, first in zip(bounds[:-1], bounds[1:], plan.starts[:-1], strict=True):
        yield _batch(_ROWS, (ids[start:end] - first).astype(np.uint32))


class _Dropped:
    """The rows that tasks have dropped by their keys."""

    def __init__(self, plan: DuplicatePlan, keys: Sequence[str]) -> None:
        self._sizes = np.diff(plan.starts)
        self._files = [
            (2 if at else 1, Batches(DuplicateTask("dropped", number, key).path(plan)))
            for at, key in enumerate(plan.keys)
            if key in keys
            for number in range(plan.ranges)
        ]

    def reasons(self, group: int) -> NDArray[np.uint8]:
        """Return for each row of a group: 0, 1 if it is an exact duplicate, 2 if a near one."""
        found = np.zeros(self._sizes[group], np.uint8)
        for reason, batches in self._files:
            found[batches[group]["row"].to_numpy()] = reason
        return found


def _keys_of_range(
    plan: DuplicatePlan, key: str, number: int, dropped: _Dropped
) -> tuple[NDArray[np.uint64], Rows, NDArray[np.bool_]]:
    """Return the keys of a range in order, the rows' ids, and which keys are those before them."""
    keys, ids = [], []
    for group in plan.groups:
        batch = Batches(DuplicateTask("keys", group).path(plan))[
            plan.keys.index(key) * plan.ranges + number
        ]
        rows = batch["row"].to_numpy()
        stays = dropped.reasons(group)[rows] == 0
        keys.append(batch["key"].to_numpy()[stays])
        ids.append(rows[stays] + plan.starts[group])
    every = np.concatenate(keys)
    order = np.argsort(every, kind="stable")  # ids of a key stay in order
    every = every[order]
    repeats = np.append(np.zeros(min(1, len(every)), np.bool_), every[1:] == every[:-1])
    return every, np.concatenate(ids)[order], repeats


def _repeated(task: DuplicateTask, plan: DuplicatePlan) -> Rows:
    """Return the ids of all rows but the first with each exact key."""
    _, ids, repeats = _keys_of_range(plan, task.key, task.number, _Dropped(plan, ()))
    return np.sort(ids[repeats])


def _shared(task: DuplicateTask, plan: DuplicatePlan) -> Rows:
    """Return the ids of rows that share a near key, if one that does is new."""
    dropped = _Dropped(plan, plan.keys[:1])
    _, ids, repeats = _keys_of_range(plan, task.key, task.number, dropped)
    lasts = np.append(~repeats[1:], np.ones(min(1, len(ids)), np.bool_))
    last_of = ids[lasts][np.cumsum(~repeats) - 1]
    return np.sort(ids[(repeats | ~lasts) & (last_of >= plan.new)])


def _deal_texts(task: DuplicateTask, plan: DuplicatePlan) -> Iterator[pa.RecordBatch]:
    """Yield a batch for each near key and range of it: keys and texts of the rows that share it."""
    texts: Any = None  # of the group, read if it is needed
    for key in plan.keys[1:]:
        keys = _column(task.files, key)
        for number in range(plan.ranges):
            rows = Batches(DuplicateTask("shared", number, key).path(plan))[task.number]["row"]
            if texts is None and len(rows):
                texts = pa.concat_arrays([_texts(file) for file in task.files])
            some = texts.take(rows) if len(rows) else pa.array([], pa.large_string())
            yield _batch(_TEXTS, keys[rows.to_numpy()], rows, some)


def _texts(file: KeyFile) -> pa.Array:
    if file.texts == file.keys:
        texts = read_columns(file.texts, [TEXT])[TEXT]
    else:
        fetch(file.texts)
        texts = read_table(file.texts)[TEXT]
    return texts.cast(pa.large_string()).combine_chunks()


def _similar(task: DuplicateTask, plan: DuplicatePlan) -> Rows:
    """Return the ids of rows similar to an earlier one with the same key; dropped ones are out."""
    at = plan.keys.index(task.key)
    dropped = _Dropped(plan, plan.keys[1:at])

    def candidates() -> Iterator[pa.RecordBatch]:
        for group in plan.groups:
            batch = Batches(DuplicateTask("texts", group).path(plan))[
                (at - 1) * plan.ranges + task.number
            ]
            if len(batch):
                rows = batch["row"].to_numpy()
                ids = pa.array(rows + plan.starts[group])
                found = _batch(CANDIDATES, batch["key"], ids, batch["text"])
                yield found.filter(pa.array(dropped.reasons(group)[rows] == 0))

    return similar_ids(candidates(), plan.folder / f"{TEMPORARY}{secrets.token_hex(4)}-spill")


def _write_reasons(task: DuplicateTask, plan: DuplicatePlan) -> None:
    reasons = _Dropped(plan, plan.keys).reasons(task.number)
    ends = np.cumsum([file.rows for file in task.files])
    files = np.split(reasons, ends[:-1])
    about = [
        (
            int((found == 0).sum()),
            blake2b((found == 0).tobytes(), digest_size=8).hexdigest(),
            np.bincount(found, minlength=3).tolist(),
        )
        for found in files
    ]
    write_batches(
        task.path(plan), _REASONS, (_batch(_REASONS, found) for found in files),
        json.dumps(about).encode(),
    )  # fmt: skip


def read_outcomes(path: Path) -> list[PartDuplicates]:
    """Return what was found in each file of a group."""
    about = json.loads(Batches(path).about)
    return [PartDuplicates(kept, digest, tuple(reasons)) for kept, digest, reasons in about]


def read_kept(path: Path, file: int) -> NDArray[np.bool_]:
    """Return whether each row of a file of a group stays."""  # (rows,)
    found: NDArray[np.bool_] = Batches(path)[file]["reason"].to_numpy() == 0
    return found
