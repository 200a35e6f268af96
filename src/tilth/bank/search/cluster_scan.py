"""Scan the shards of a bank in the workers of a Ray cluster, each a share of them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilth.bank.manifest import Manifest, read_manifest
from tilth.bank.quantization import CodedQueries, Floats
from tilth.bank.search.exact import best_by_codes, is_few, merge_best, rescore
from tilth.bank.store import Ids, Selected, Store
from tilth.errors import InputError, TilthError
from tilth.runs.cluster import Cluster
from tilth.urls import cache_folder, keep_copies_in

# Candidates of an answer, so that it is some megabytes.
_CANDIDATES_AT_ONCE = 1 << 20


class ClusterScan:
    """Workers that each have opened a share of a bank's shards.

    A share stays with a worker as long as that one is free, so the shards that it has read are in
    the memory of its host.

    Args:
        store: of the bank; the hosts of the workers must see its folder.
    """

    def __init__(self, store: Store, cluster: Cluster) -> None:
        from tilth.runs.ray_cluster import Workers

        self._store = store
        self._threads = max(1, int(cluster.cpus_per_worker))
        path = store.path.absolute()
        self._workers = Workers[_Task](
            cluster, partial(_start, path), _SharedBank(path, store.manifest), facts={},
            most=len(store.shards), place=lambda task: task.share,
        )  # fmt: skip
        self._shares = len(self._workers)

    def __enter__(self) -> ClusterScan:
        """Return the scan."""
        return self

    def __exit__(self, *error: Any) -> None:
        """End the workers."""
        self._workers.__exit__(*error)

    def nearest(
        self, queries: Floats, best: int, *, threads: int | None, selected: Selected | None
    ) -> tuple[Ids, Floats | None]:
        """Return the best sentences of each query by their codes, and their similarities.

        Args:
            queries: L2-normalised. # (queries, dimension)
            threads: of each worker; None: one per core of it.

        Returns:
            Ids, -1 after the last; similarities by all bits, None of compact codes, whose
            sentences are to be encoded. # each (queries, best)
        """
        coded = self._store.quantizer.queries(queries)  # all at once, as one process does
        few = is_few(self._store.quantizer, len(queries))
        at_once = max(1, _CANDIDATES_AT_ONCE // best)
        threads = threads or self._threads

        def tasks() -> Iterator[_Task]:
            for start in range(0, len(coded), at_once):
                some = coded[start : start + at_once]
                for share in range(self._shares):
                    yield _Task(share, self._shares, start, some, best, few, threads, selected)

        found: dict[int, tuple[Any, ...]] = {}
        for task, answer in self._workers.run(tasks()):
            earlier = found.get(task.start)
            found[task.start] = answer if earlier is None else merge_best(earlier, answer, best)
        ids, _, *similarities = map(
            np.concatenate, zip(*(found[at] for at in sorted(found)), strict=True)
        )
        return ids, similarities[0] if similarities else None


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker scans, and for which queries: those from number `start` on."""

    share: int
    shares: int
    start: int
    queries: CodedQueries
    best: int
    few: bool
    threads: int
    selected: Selected | None


def _start(path: Path, _: object) -> tuple[Callable[[_Task], tuple[Any, ...]], dict[str, Any]]:
    """Open a bank; runs in a worker. Shards are opened when they are scanned."""
    store = Store.open(path)
    return partial(_scan, store), {}


def _scan(store: Store, task: _Task) -> tuple[Any, ...]:
    """Return ids, the values that order them and, of int8 codes, similarities."""
    shards = np.array_split(np.arange(len(store.shards)), task.shares)[task.share]
    own = [store.shards[number] for number in shards]
    best = min(task.best, sum(shard.sentences for shard in own))
    ids, values = best_by_codes(
        own, store.quantizer, task.queries, best, threads=task.threads, few=task.few,
        selected=task.selected,
    )  # fmt: skip
    if store.manifest.format != "int8":
        return ids, values
    return ids, values, rescore(own, store.quantizer, task.queries, ids, threads=task.threads)


@dataclass(frozen=True, slots=True)
class _SharedBank:
    """A bank that every worker must see as the process that asks sees it."""

    path: Path
    manifest: Manifest
    cache: Path = field(default_factory=cache_folder)

    def check_shared(self) -> None:
        """Raise InputError unless this process sees the same bank."""
        keep_copies_in(self.cache)
        try:
            same = read_manifest(self.path) == self.manifest
        except TilthError:
            same = False
        if not same:
            raise InputError(
                f"{self.path}: host {socket.gethostname()} does not see this bank: put it on "
                "storage that all hosts share, under the same path"
            )
