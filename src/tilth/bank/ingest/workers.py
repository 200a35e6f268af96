"""Work in several processes, some tasks at a time, from a stream of tasks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import chain, islice
from typing import Any, TypeVar

from tilth.errors import TilthError

T = TypeVar("T")
R = TypeVar("R")

# How often workers look whether the process that asked is still there.
_SECONDS_ALONE = 0.2
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "RAYON", "POLARS")
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in _LIBRARIES}


def in_processes(
    workers: int, work: Callable[..., R], tasks: Iterator[T], *common: Any
) -> Iterator[R]:
    """Yield `work(task, *common)` of each task, as they come to be done.

    Few tasks are taken ahead, so that memory stays flat. With one worker all is done here. The
    processes stay for the next call, until `end_processes`. Unlike those of the standard library,
    they need no guard in the user's script.

    Args:
        workers: processes, at least 1; never more are begun than there are tasks.
        work: a function of a module.
        tasks: what can be pickled.
        common: further arguments, the same for all.

    Raises:
        TilthError: a process was killed; what the work itself raises comes as it is.
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
        max_workers=workers, timeout=None, initializer=_begin, initargs=(os.getpid(),),
        env=_ONE_THREAD,
    )  # fmt: skip
    pending: set[Future[R]] = set()
    try:
        for task in tasks:
            pending.add(executor.submit(work, task, *common))
            if len(pending) > workers:  # one is ready for who is first
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except TerminatedWorkerError as error:
        raise TilthError(
            "a worker process was killed, maybe for want of memory: run the same command again, "
            "with fewer --workers"
        ) from error
    except BaseException:
        executor.shutdown(kill_workers=True)
        raise


def end_processes() -> None:
    """Let the processes go that wait for further work."""
    if "loky" in sys.modules:
        from loky import get_reusable_executor

        get_reusable_executor(reuse=True).shutdown()


def _begin(asker: int) -> None:
    """Leave Ctrl-C to the process that asked, and end with it: another may take over its folder."""
    from loky import process_executor

    # What a worker remembers of pieces is no leak: it would be begun anew, with a warning.
    process_executor._USE_PSUTIL = False
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(asker,), daemon=True).start()


def _end_with(asker: int) -> None:
    while os.getppid() == asker:
        time.sleep(_SECONDS_ALONE)
    os._exit(1)
