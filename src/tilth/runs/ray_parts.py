"""Let the workers of a Ray cluster make the parts of a run, or do any stream of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from tilth.errors import TilthError
from tilth.files import remove_leftovers
from tilth.runs.cluster import Cluster
from tilth.runs.progress import Progress
from tilth.runs.ray_cluster import Facts, Workers, get, put
from tilth.runs.run import Run

if TYPE_CHECKING:
    from tilth.runs.backends import PartJob

R = TypeVar("R")


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


class TaskWorkers:
    """Workers that do streams of tasks one after the other, each with a function of its own.

    They are started by the first task.

    Args:
        run: what every worker must see.
    """

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster, self._run = cluster, run
        self._workers: Workers[Any] | None = None

    def __enter__(self) -> TaskWorkers:
        """Return the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.__exit__()

    def do(self, work: Callable[..., R], tasks: Iterator[Any], *common: Any) -> Iterator[R]:
        """Yield `work(task, *common)` of each task, as they complete."""
        for first in tasks:
            if self._workers is None:
                self._workers = Workers(self._cluster, _start_tasks, self._run, facts={})
            shared = put((work, common))
            for _, result in self._workers.run((shared, task) for task in chain([first], tasks)):
                yield result


def _start_tasks(_: Facts | None) -> tuple[Callable[[Any], Any], Facts]:
    """Return what does a task with a function that tasks share; runs in a worker."""
    known: dict[Any, Any] = {}

    def work(given: tuple[Any, Any]) -> Any:
        shared, task = given
        if shared not in known:
            known.clear()
            known[shared] = get(shared)
        function, common = known[shared]
        return function(task, *common)

    return work, {}
