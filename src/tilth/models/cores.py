"""Run a model in several threads of one core each: torch's own threads seldom use all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from copy import deepcopy
from functools import partial
from threading import Event, Lock
from typing import TypeVar

import torch

M = TypeVar("M", bound=torch.nn.Module)


class CoreStoppedError(Exception):
    """Raised in a thread to end it, after another thread has failed; the other's error is shown."""


def share_weights(model: M) -> M:
    """Return a copy of a model with a configuration and modules of its own, and the same memory."""
    tensors = [*model.parameters(), *model.buffers()]
    found = deepcopy(model, {id(tensor): tensor for tensor in tensors})
    vars(found).pop("forward", None)  # a trainer's, which leads to the model it trains
    return found


def take_turns(models: Sequence[M], count: int, work: Callable[[M, int], object]) -> None:
    """Call `work(model, number)` for each number below `count`, the highest first.

    Each model has a core, in a thread in the autocast of the caller, and takes the next number.
    """
    todo, lock = list(range(count)), Lock()
    # Autocast is set for each thread.
    dtype, is_cast = torch.get_autocast_dtype("cpu"), torch.is_autocast_enabled("cpu")

    def run(model: M, is_stopped: Event) -> None:
        with torch.autocast("cpu", dtype, enabled=is_cast):
            while not is_stopped.is_set():
                with lock:
                    if not todo:
                        return
                    number = todo.pop()
                work(model, number)

    on_cores([partial(run, model) for model in models])


def on_cores(works: Sequence[Callable[[Event], object]]) -> None:
    """Do each work in a thread in which torch uses one core.

    An error or Ctrl-C is raised as soon as the other works have seen that the event is set; they
    return or raise `CoreStoppedError`.
    """
    threads, is_stopped = torch.get_num_threads(), Event()

    def alone(work: Callable[[Event], object]) -> None:
        torch.set_num_threads(1)  # of this thread, and of threads that have not used torch yet
        with suppress(CoreStoppedError):
            work(is_stopped)

    with ThreadPoolExecutor(len(works)) as pool:
        try:
            futures = [pool.submit(alone, work) for work in works]
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            is_stopped.set()
            raise
        finally:
            torch.set_num_threads(threads)
