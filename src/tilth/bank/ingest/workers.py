"""Run functions over streams of tasks in several processes, here or on a cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tilth.bank.settings import BankSettings
from tilth.errors import TilthError
from tilth.runs import Run, read_run_json

T = TypeVar("T")
R = TypeVar("R")

# How often workers check that the process that started them is alive.
_SECONDS_ALONE = 0.2
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "RAYON", "POLARS")
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in _LIBRARIES}


Spread: TypeAlias = Callable[..., Iterator[Any]]
"""Yields `work(task, *common)` of each task, as they complete: `spread(work, tasks, *common)`."""


@contextmanager
def job_workers(bank: Path, settings: BankSettings) -> Iterator[Spread]:
    """Do tasks in the workers that the settings ask for, which stay for the whole job."""
    if settings.cluster.on is None:
        try:
            yield partial(in_processes, settings.processes)
        finally:
            end_processes()
        return
    from tilth.runs.ray_parts import TaskWorkers

    run = Run(bank, read_run_json(bank)).as_worker()
    with TaskWorkers(replace(settings.cluster, workers=settings.workers), run) as workers:
        yield workers.do


def in_processes(
    workers: int, work: Callable[..., R], tasks: Iterator[T], *common: Any
) -> Iterator[R]:
    """Yield `work(task, *common)` of each task, as they complete.

    Few tasks are taken ahead, so memory stays flat; one worker runs in this process, and no more
    run than there are tasks. Processes stay until `end_processes` and, unlike the standard
    library's, need no guard in scripts.

    Args:
        work: a function of a module, which can be pickled.
    """
    first = list(islice(tasks, workers))
    workers, tasks = min(workers, len(first)), chain(first, tasks)
    if workers <= 1:
        for task in tasks:
            yield work(task, *common)
        return
    from loky import get_reusable_executor
    from loky.process_executor import TerminatedWorkerError

    executor = get_reusable_executor(
        max_workers=workers, timeout=None, initializer=_start, initargs=(os.getpid(),),
        env=_ONE_THREAD,
    )  # fmt: skip
    pending: set[Future[R]] = set()
    try:
        for task in tasks:
            pending.add(executor.submit(work, task, *common))
            if len(pending) > workers:  # one is ready for the first that is free
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except TerminatedWorkerError as error:
        raise TilthError(
            "a worker process was killed, maybe for want of memory: run the same command again, "
            "with fewer --workers"
        ) from error
    except BaseException:
        executor.shutdown(kill_workers=True)
        raise


def end_processes() -> None:
    """End the idle worker processes."""
    if "loky" in sys.modules:
        from loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown()


def _start(parent: int) -> None:
    """Ignore Ctrl-C; exit soon after the parent, as another process may then write its folder."""
    from loky import process_executor

    # The token cache of a worker is no leak: the worker would be restarted, with a warning.
    process_executor._USE_PSUTIL = False
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_ALONE)
    os._exit(1)
