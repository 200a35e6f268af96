"""Find duplicates among any number of sentences, by tasks that each see a range of the keys.

The number of ranges and of groups follows from that of the sentences, the result from the
sentences and their order alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilth.bank.ingest.duplicate_steps import (
    EXACT,
    DuplicatePlan,
    DuplicateTask,
    KeyFile,
    PartDuplicates,
    do_task,
    read_kept,
    read_outcomes,
)
from tilth.bank.ingest.exchange import FORM
from tilth.bank.ingest.workers import Spread
from tilth.data.near_duplicates import NEAR
from tilth.files import disk_errors
from tilth.runs import Progress
from tilth.storage import remove

EXACT_DUPLICATE = "exact duplicate"
NEAR_DUPLICATE = "near duplicate"
REASONS = ("", EXACT_DUPLICATE, NEAR_DUPLICATE)
# From this many on, a group takes no further file: its keys and texts fit into a worker's memory.
_GROUP_ROWS = 1 << 20
# Ranges are the root of rows over this: 88 for a billion, each with 11 million keys of a kind.
_RANGE_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Which rows of the parts stay.

    Attributes:
        places: file with the reasons of each part, and the part's number in it.
        found: what was found in each part.
    """

    places: list[tuple[Path, int]]
    found: list[PartDuplicates]

    def kept(self, part: int) -> NDArray[np.bool_]:
        """Return whether each row of a part stays."""  # (rows,)
        return read_kept(*self.places[part])

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of dropped rows by reason."""
        sums = [sum(one.reasons[at] for one in self.found) for at in range(len(REASONS))]
        return {reason: sums[at] for at, reason in enumerate(REASONS) if at and sums[at]}


def find_duplicates(
    parts: Sequence[KeyFile],
    *,
    stored: Sequence[KeyFile] = (),
    near: bool = True,
    folder: Path,
    spread: Spread,
    quiet: bool = True,
) -> Duplicates:
    """Find the sentences that repeat an earlier one, exactly or nearly.

    Exact duplicates are equal when normalized; the first stays. Near duplicates have a Jaccard
    similarity of 0.8 or more with an earlier sentence that shares a MinHash key with them and is
    not dropped yet. The keys find 95% of the pairs at 0.8 and nearly all at 0.9; where many
    dissimilar sentences share a key, as in text from templates, only the first 16 are compared.

    Args:
        parts: files with the columns of `tilth.bank.ingest.parts.SCHEMA`, in order; near-duplicate
            keys only with `near`.
        stored: those of the bank's sentences, which count as earlier.
        folder: for the steps' files; those that are there are not made again.
        spread: does tasks in workers.
    """
    files = (*stored, *parts)
    if not files:
        return Duplicates([], [])
    keys = (EXACT, *(NEAR if near else ()))
    rows = sum(file.rows for file in files)
    groups = _groups(files)
    ranges = max(1, math.ceil(math.sqrt(rows / _RANGE_ROWS)))
    starts = np.cumsum([0, *(sum(file.rows for file in group) for group in groups)])
    grouped = [[(file.keys.name, file.rows) for file in group] for group in groups]
    made_of = [FORM, keys, ranges, grouped]
    name = blake2b(json.dumps(made_of).encode(), digest_size=8).hexdigest()
    plan = DuplicatePlan(folder / name, keys, ranges, starts, sum(file.rows for file in stored))
    _remove_others(plan.folder)
    steps = _steps(plan, groups)
    with Progress(sum(map(len, steps)), quiet=quiet, what="tasks to find duplicates") as progress:
        for tasks in steps:
            missing = [task for task in tasks if not task.path(plan).exists()]
            progress.skip(len(tasks) - len(missing))
            for _ in spread(do_task, iter(missing), plan):
                progress.advance(1)
    places, found = [], []
    for task in steps[-1]:
        outcomes = read_outcomes(task.path(plan))
        places += [(task.path(plan), number) for number in range(len(outcomes))]
        found += outcomes
    return Duplicates(places[len(stored) :], found[len(stored) :])


def _groups(files: Sequence[KeyFile]) -> list[tuple[KeyFile, ...]]:
    """Divide files, in order, into groups of `_GROUP_ROWS` rows or little more."""
    groups, some, rows = [], list[KeyFile](), 0
    for file in files:
        some.append(file)
        rows += file.rows
        if rows >= _GROUP_ROWS:
            groups.append(tuple(some))
            some, rows = [], 0
    return [*groups, tuple(some)] if some else groups


def _remove_others(folder: Path) -> None:
    """Make a folder; remove what others beside it hold, and what killed workers left in it."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for item in (*folder.parent.iterdir(), *folder.glob(".*")):
            if item != folder:
                remove(item)


def _steps(plan: DuplicatePlan, groups: Sequence[tuple[KeyFile, ...]]) -> list[list[DuplicateTask]]:
    """Return the tasks of each step; those of a step need the files of all steps before."""

    def of_groups(step: str) -> list[DuplicateTask]:
        return [DuplicateTask(step, number, files=files) for number, files in enumerate(groups)]

    def of_ranges(step: str, *keys: str) -> list[DuplicateTask]:
        return [DuplicateTask(step, number, key) for key in keys for number in range(plan.ranges)]

    near = plan.keys[1:]
    steps = [of_groups("keys"), of_ranges("dropped", EXACT)]
    if near:
        steps += [of_ranges("shared", *near), of_groups("texts")]
        steps += [of_ranges("dropped", key) for key in near]
    return [*steps, of_groups("reasons")]
