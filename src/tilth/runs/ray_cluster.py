"""Run work on a Ray cluster: parts of a run, or any stream of tasks.

Ray places the workers, finds out that one has died, and starts it again elsewhere. A task whose
worker died is given to the next free one.
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
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import ray
from ray import cloudpickle

from tilth.errors import InputError, TilthError
from tilth.files import remove_leftovers
from tilth.runs.cluster import Cluster
from tilth.runs.progress import Progress
from tilth.runs.run import Run
from tilth.runs.run_json import Json, versions

if TYPE_CHECKING:
    from tilth.runs.backends import PartJob

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Facts: TypeAlias = "dict[str, Json]"
Start: TypeAlias = "Callable[[Facts | None], tuple[Callable[[Any], Any], Facts]]"
"""Loads what is heavy in a worker; takes the facts that the first worker has chosen, None for that
one; returns the work on a task, and the facts."""

_MOST_LOSSES = 5  # of workers by one task: more are its own fault
_MOST_STARTS = 3
_SECONDS_TO_WAIT = 60.0
_REMEDY = "give each more memory (fewer --workers, or larger hosts), or read Ray's logs"


class _Worker:
    """A process of the cluster."""

    def __init__(self) -> None:
        if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks: GPUs are others'
        self._work: Callable[[Any], Any] | None = None

    def greet(self, asked: dict[str, str], folder: str, run: Run) -> None:
        """Check that this host can take part; go to the folder of the process that asks."""
        check_versions(asked)
        with suppress(OSError):  # paths that are not relative need none
            os.chdir(folder)
        run.check_shared()

    def start(self, pickled: bytes, facts: Facts | None) -> Facts:
        """Load what is heavy; return the facts that it chose, or was given."""
        start: Start = pickle.loads(pickled)
        self._work, chosen = start(facts)
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
    """A call of a worker that is not answered yet; one with a task is work on it."""

    worker: Any
    task: _Task[T] | None = None
    is_start: bool = False


class Workers(Generic[T]):
    """Workers of a cluster, each with one task at a time.

    Args:
        start: what each worker begins with.
        run: of `Run.as_worker`; every worker must see its folder.
        facts: those that were chosen earlier; None: the first worker chooses them, and the others
            wait until `agree` was called with them.
        most: number of tasks; None: not known.
    """

    def __init__(
        self,
        cluster: Cluster,
        start: Start,
        run: Run,
        *,
        facts: Facts | None = None,
        agree: Callable[[Facts], object] = lambda _: None,
        most: int | None = None,
    ) -> None:
        self.lost = 0  # workers that died
        self._run, self._facts, self._agree = run, facts, agree
        self._calls: dict[Any, _Call[T]] = {}
        self._free: deque[Any] = deque()
        self._held: list[Any] = []  # wait for the facts
        self._is_choosing = False
        self._all: set[Any] = set()
        self._starts = Counter[Any]()  # that a worker died of, in a row
        self._joined = _connect(cluster)
        try:
            self._start = ray.put(cloudpickle.dumps(start))
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
                worker = self._free.popleft()
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

    def _answered(self) -> list[Any]:
        """Wait for answers; return their references."""
        references = list(self._calls)
        found, _ = ray.wait(references, num_returns=len(references), timeout=0)
        while not found:
            found, _ = ray.wait(references, timeout=_SECONDS_TO_WAIT)
            if not found and all(call.task is None for call in self._calls.values()):
                log.warning("the cluster has had no place for a worker for a minute: still waiting")
        return list(found)

    def _greet(self, worker: Any) -> None:
        greet = worker.greet.options(max_task_retries=_MOST_STARTS)
        self._calls[greet.remote(versions(), os.getcwd(), self._run)] = _Call(worker)

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
        said = " ".join(str(error).split())
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


def _connect(cluster: Cluster) -> bool:
    """Join the cluster, or start one on this machine; False: this process is in one already."""
    if ray.is_initialized():
        return False
    cluster.check_head()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address=None if cluster.on == "ray" else cluster.on,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ray.exceptions.RayError, RuntimeError, ValueError, OSError) as error:
        said = " ".join(str(error).split())
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


def complete_on_ray(run: Run, job: PartJob, cluster: Cluster, *, quiet: bool) -> None:
    """Let workers make the missing parts of a run, which they write themselves."""
    done = set(run.done())
    missing = [index for index in range(run.parts) if index not in done]
    before = sum(job.sizes[part] for part in done)
    with Progress(sum(job.sizes), done=before, quiet=quiet, what=job.what) as progress:
        if not missing:
            return

        def agree(facts: Facts) -> None:
            for name, value in facts.items():
                run.resolve(name, lambda value=value: value)  # type: ignore[misc]

        worker_run = run.as_worker()
        with Workers[Any](
            cluster, partial(_start_parts, job.start, worker_run), worker_run,
            facts=run.resolved if done else None, agree=agree, most=len(missing),
        ) as workers:  # fmt: skip
            tasks = ((index, job.given(index)) for index in missing)
            for (index, _), (kept, dropped) in workers.run(tasks):
                if not run.has_part(index):
                    raise TilthError(
                        f"{run.part_path(index)}: was written by a worker and is not seen here: "
                        "run the same command again, with --out on storage that all hosts share"
                    )
                run.drop_replaced()
                progress.workers = str(workers)
                progress.advance(done=job.sizes[index], kept=kept, dropped=dropped)
        remove_leftovers(run.path / "parts")  # of workers that died


def _start_parts(
    start: Callable[[Run], Any], run: Run, facts: Facts | None
) -> tuple[Callable[[Any], Any], Facts]:
    """Load what parts need; return the work on one, and the facts; runs in a worker."""
    for name, value in (facts or {}).items():
        run.resolve(name, lambda value=value: value)  # type: ignore[misc]
    make = start(run)

    def work(task: tuple[int, Any]) -> tuple[int, int]:
        index, given = task
        progress = Progress(0, quiet=True)
        run.write_part(index, make(index, given, progress))
        return progress.kept, progress.dropped

    return work, run.resolved


def on_ray(
    cluster: Cluster, run: Run, work: Callable[..., R], tasks: Iterator[Any], *common: Any
) -> Iterator[R]:
    """Yield `work(task, *common)` of each task, as they complete, from workers that see a run."""
    with Workers[Any](cluster, partial(_start_work, work, common), run, facts={}) as workers:
        for _, result in workers.run(tasks):
            yield result


def _start_work(
    work: Callable[..., R], common: tuple[Any, ...], _: Facts | None
) -> tuple[Callable[[Any], R], Facts]:
    return lambda task: work(task, *common), {}
