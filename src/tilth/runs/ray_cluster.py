"""Run a stream of tasks on workers of a Ray cluster.

Ray places the workers, detects that one has died, and restarts it elsewhere. A task whose worker
died is given to the next free one.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import ray
from ray import cloudpickle

from tilth.errors import InputError, TilthError, one_line
from tilth.runs.cluster import Cluster
from tilth.runs.run_json import Json, versions

log = logging.getLogger(__name__)

T = TypeVar("T")

Facts: TypeAlias = "dict[str, Json]"
Start: TypeAlias = "Callable[[Facts | None], tuple[Callable[[Any], Any], Facts]]"
"""Loads models and data in a worker. Takes the facts that the first worker returned, None in that
one; returns the function that does a task, and the facts."""

_MOST_LOSSES = 5  # workers that may die of one task before the run fails
_MOST_STARTS = 3
_FEW = 8  # up to so many calls are waited for one at a time
_SECONDS_TO_WAIT = 60.0
_REMEDY = "give each more memory (fewer --workers, or larger hosts), or read Ray's logs"


class Shared(Protocol):
    """What all hosts of the cluster must see, such as the folder of a run."""

    def check_shared(self) -> None:
        """Raise InputError unless this process sees it."""


class _Worker:
    """A process of the cluster."""

    def __init__(self) -> None:
        if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks: GPUs are others'
        self._work: Callable[[Any], Any] | None = None

    def greet(self, asked: dict[str, str], folder: str, shared: Shared) -> None:
        """Check that this host can take part; go to the folder of the process that asks."""
        check_versions(asked)
        with suppress(OSError):  # paths that are not relative need none
            os.chdir(folder)
        shared.check_shared()

    def start(self, pickled: bytes, facts: Facts | None) -> Facts:
        """Load what is heavy; return the facts that it chose, or was given."""
        start: Start = pickle.loads(pickled)
        try:
            self._work, chosen = start(facts)
        except InputError as error:
            host = f"host {socket.gethostname()}"
            if host in str(error):
                raise
            raise InputError(f"{host} of the cluster: {error}") from error
        return chosen

    def work(self, task: Any) -> Any:
        """Do a task."""
        assert self._work is not None  # `start` comes first
        return self._work(task)


def check_versions(asked: dict[str, str]) -> None:
    """Refuse a host whose versions are not those of the process that asks."""
    found = versions()
    unlike = [name for name in {**asked, **found} if asked.get(name) != found.get(name)]
    if unlike:
        theirs, ours = (
            ", ".join(f"{name} {which.get(name, '(none)')}" for name in unlike)
            for which in (found, asked)
        )
        raise InputError(
            f"host {socket.gethostname()} of the cluster has {theirs}; here it is {ours}: install "
            "the same versions on every host"
        )


@dataclass(slots=True)
class _Task(Generic[T]):
    value: T
    losses: int = 0


@dataclass(slots=True)
class _Call(Generic[T]):
    """A call of a worker without an answer yet: greeting, start, or work on `task`."""

    worker: Any
    task: _Task[T] | None = None
    is_start: bool = False


class Workers(Generic[T]):
    """Workers of a cluster, each with one task at a time.

    Args:
        start: what each worker begins with.
        shared: what every worker must see, such as the folder of a run (`Run.as_worker`).
        facts: those that were chosen earlier; None: the first worker chooses them, and the others
            wait until `agree` was called with them.
        most: number of tasks; None: not known.
        place: what a task reads; of the free workers, the one that read it last is asked. None:
            any worker.
    """

    def __init__(
        self,
        cluster: Cluster,
        start: Start,
        shared: Shared,
        *,
        facts: Facts | None = None,
        agree: Callable[[Facts], object] = lambda _: None,
        most: int | None = None,
        place: Callable[[T], Any] | None = None,
    ) -> None:
        self.lost = 0  # workers that died
        self._shared, self._facts, self._agree = shared, facts, agree
        self._place = place
        self._placed: dict[Any, Any] = {}  # place -> the worker that was there last
        self._calls: dict[Any, _Call[T]] = {}
        self._free: deque[Any] = deque()
        self._held: list[Any] = []  # wait for the facts
        self._is_choosing = False
        self._all: set[Any] = set()
        self._starts = Counter[Any]()  # that a worker died of, in a row
        self._joined = _connect(cluster)
        try:
            self._start = put(start)
            places = _places(cluster)
            count = cluster.workers or places
            options: dict[str, Any] = {
                "num_cpus": cluster.cpus_per_worker, "num_gpus": cluster.gpus_per_worker,
                "max_restarts": -1,
            }  # fmt: skip
            made = ray.remote(_Worker).options(**options)
            self._all = {made.remote() for _ in range(min(count, most or count))}
            for worker in self._all:
                self._greet(worker)
        except BaseException:
            self._leave()
            raise

    def __enter__(self) -> Workers[T]:
        """Return the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers; leave the cluster if it was joined for them."""
        self._leave()

    def _leave(self) -> None:
        if self._joined:
            ray.shutdown()
            return
        for worker in self._all:
            with suppress(Exception):  # the cluster may be gone, which is being reported
                ray.kill(worker)

    def __len__(self) -> int:
        """Return the number of workers."""
        return len(self._all)

    def __str__(self) -> str:
        """Return how many workers are ready, and how many died."""
        busy = sum(call.task is not None for call in self._calls.values())
        died = f", {self.lost} died" if self.lost else ""
        return f"{len(self._free) + busy} of {len(self._all)} workers{died}"

    def run(self, tasks: Iterator[T]) -> Iterator[tuple[T, Any]]:
        """Yield each task and its result, as they complete.

        Raises:
            TilthError: the work raised it, or workers die of one task, or while they start.
        """
        todo = deque(map(_Task[T], islice(tasks, 1)))
        while True:
            while self._free and todo:
                task = todo.popleft()
                worker = self._take_free(task.value)
                self._calls[worker.work.remote(task.value)] = _Call(worker, task)
                if not todo:  # the next is read while workers work
                    todo.extend(map(_Task[T], islice(tasks, 1)))
            if not todo and all(call.task is None for call in self._calls.values()):
                return
            for reference in self._answered():
                call = self._calls.pop(reference)
                try:
                    answer = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise _cause(error) from error
                except ray.exceptions.RayError as error:
                    self._lose(call, error)
                    if call.task is not None:
                        todo.append(call.task)
                    continue
                if call.task is not None:
                    self._free.append(call.worker)
                    yield call.task.value, answer
                else:
                    self._advance(call, answer)

    def _take_free(self, task: T) -> Any:
        if self._place is None:
            return self._free.popleft()
        place = self._place(task)
        worker = self._placed.get(place)
        worker = worker if worker in self._free else self._free[0]
        self._free.remove(worker)
        self._placed[place] = worker
        return worker

    def _answered(self) -> list[Any]:
        """Wait for answers; return their references."""
        references = list(self._calls)
        found: list[Any] = []
        while not found:
            found, rest = ray.wait(references, timeout=_SECONDS_TO_WAIT)
            if not found and all(call.task is None for call in self._calls.values()):
                log.warning("the cluster has had no place for a worker for a minute: still waiting")
        if len(rest) > _FEW:  # for few workers another wait costs more than it finds
            found += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return found

    def _greet(self, worker: Any) -> None:
        greet = worker.greet.options(max_task_retries=-1)  # until Ray has started it somewhere
        self._calls[greet.remote(versions(), os.getcwd(), self._shared)] = _Call(worker)

    def _advance(self, call: _Call[T], answer: Any) -> None:
        """Let a worker start that was greeted, or work once it has started."""
        if not call.is_start:
            self._held.append(call.worker)
        else:
            self._free.append(call.worker)
            self._starts[call.worker] = 0
            if self._facts is None:
                self._agree(answer)
                self._facts = answer
        self._start_held()

    def _start_held(self) -> None:
        while self._held and (self._facts is not None or not self._is_choosing):
            self._is_choosing = self._facts is None
            worker = self._held.pop()
            reference = worker.start.remote(self._start, self._facts)
            self._calls[reference] = _Call(worker, is_start=True)

    def _lose(self, call: _Call[T], error: Exception) -> None:
        """Greet a worker again that Ray starts again; give up one that dies while it starts."""
        self.lost += 1
        said = one_line(error)
        log.info("a worker of the cluster died: %s", said)
        if call.task is not None:
            call.task.losses += 1
            if call.task.losses == _MOST_LOSSES:
                raise TilthError(
                    f"{_MOST_LOSSES} workers of the cluster died of the same work: {_REMEDY}"
                ) from error
        elif call.is_start and self._facts is None:
            self._is_choosing = False
            self._start_held()
        self._starts[call.worker] += call.task is None
        if self._starts[call.worker] < _MOST_STARTS:
            self._greet(call.worker)
            return
        self._all.discard(call.worker)
        ray.kill(call.worker)
        if not self._all:
            raise TilthError(
                f"every worker of the cluster died while it started ({said[:300]}): {_REMEDY}"
            ) from error


def put(value: Any) -> Any:
    """Pickle a value for workers; return a reference to it, which tasks may hold."""
    return ray.put(cloudpickle.dumps(value))


def get(reference: Any) -> Any:
    """Return the value that was `put`; runs in a worker."""
    return pickle.loads(ray.get(reference))


def _connect(cluster: Cluster) -> bool:
    """Join the cluster, or start one on this machine; False: this process is in one already."""
    if ray.is_initialized():
        return False
    cluster.check_head()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(
        "RAY_worker_niceness", "0"
    )  # of a cluster that is started here; Ray's: 15
    try:
        ray.init(
            address=None if cluster.on == "ray" else cluster.on,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
        said = one_line(error)
        raise InputError(
            f"--on {cluster.on}: the cluster cannot be joined ({said[:300]}): check that it runs, "
            "with this version of Ray and of Python"
        ) from error
    return True


def _places(cluster: Cluster) -> int:
    """Return how many workers fit on the hosts of the cluster."""
    wanted = {"CPU": cluster.cpus_per_worker, "GPU": cluster.gpus_per_worker}
    hosts = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(
        int(min(host.get(name, 0) / number for name, number in wanted.items() if number))
        for host in hosts
    )
    if not places:
        found = ", ".join(
            f"{max((host.get(name, 0) for host in hosts), default=0):g} {name}s" for name in wanted
        )
        raise InputError(
            f"no host of the cluster has room for a worker of {cluster.cpus_per_worker:g} CPUs and "
            f"{cluster.gpus_per_worker:g} GPUs (the most on one: {found}): lower "
            "--cpus-per-worker or --gpus-per-worker"
        )
    return places


def _cause(error: Any) -> Exception:
    """Return the error that a worker raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TilthError):
        return cause
    said = str(error).strip().splitlines()[-1]
    return TilthError(f"a worker of the cluster failed: {said}")
