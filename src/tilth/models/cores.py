"""Run a model in several threads, each on one core, which torch's own threads seldom fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from copy import deepcopy
from threading import Event
from typing import TypeVar

import torch

M = TypeVar("M", bound=torch.nn.Module)


def share_weights(model: M) -> M:
    """Return a copy of a model with a configuration and modules of its own, and the same memory."""
    tensors = [*model.parameters(), *model.buffers()]
    found = deepcopy(model, {id(tensor): tensor for tensor in tensors})
    vars(found).pop("forward", None)  # a trainer's, which leads to the model it trains
    return found


def on_cores(works: Sequence[Callable[[Event], object]]) -> None:
    """Do each work in a thread in which torch uses one core.

    An error or Ctrl-C is raised as soon as the other works have seen that the event is set.
    """
    threads, is_stopped = torch.get_num_threads(), Event()

    def alone(work: Callable[[Event], object]) -> None:
        torch.set_num_threads(1)  # of this thread, and of threads that have not used torch yet
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
