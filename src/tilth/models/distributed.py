"""Training in several processes, which torchrun or accelerate launch starts.

Rank 0 runs the command and alone opens the run folder. The others wait for the trainings that it
begins, and train with it: each takes its share of every batch, and gradients are averaged.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

_JOINED: ContextVar[bool] = ContextVar("joined", default=False)
_TIMEOUT = timedelta(days=30)  # the others wait while rank 0 reads, measures and writes


def started() -> int:
    """Return how many processes the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def processes() -> int:
    """Return how many processes train together."""
    return started() if _JOINED.get() else 1


def rank() -> int:
    """Return the number of this process among those that train together."""
    return int(os.environ["RANK"]) if _JOINED.get() else 0


@contextmanager
def every_process() -> Iterator[bool]:
    """Join the processes of the launcher; yield whether this one runs the command.

    The others have trained with it, and are done, when they get here.
    """
    if started() == 1:
        yield True
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # on how gradients are averaged
    import torch
    import torch.distributed as group

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    group.init_process_group(backend, timeout=_TIMEOUT)
    token = _JOINED.set(True)
    try:
        if rank():
            _follow()
            yield False
        else:
            yield True  # after an error the launcher ends the others
            _from_first(None)
        group.destroy_process_group()
    finally:
        _JOINED.reset(token)


def _follow() -> None:
    """Make the calls that rank 0 makes, until it is done."""
    logging.getLogger("tilth").setLevel(logging.ERROR)  # rank 0 has said it
    while (call := _from_first(None)) is not None:
        function, arguments, options = call
        function(*arguments, **{**options, "quiet": True})


def in_every_process(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of a module be called in all processes when rank 0 calls it.

    Its arguments are pickled; `quiet` is one of them.
    """

    @wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        if processes() > 1 and not rank():
            _from_first((call, arguments, options))
        return function(*arguments, **options)

    return call


def from_first(answer: Callable[[], R]) -> R:
    """Return what a function returns in rank 0, which alone calls it."""
    if processes() == 1:
        return answer()
    found: R = _from_first(None if rank() else answer())
    return found


def from_every(value: R) -> list[R]:
    """Return the values of all processes, by rank."""
    if processes() == 1:
        return [value]
    import torch.distributed as group

    values: list[Any] = [None] * processes()
    group.all_gather_object(values, value)
    return values


def _from_first(value: Any) -> Any:
    import torch
    import torch.distributed as group

    values = [value]
    group.broadcast_object_list(values, src=0, device=torch.device("cpu"))
    return values[0]


def shares(rows: Sequence[int]) -> list[list[int]]:
    """Return the rows of a batch that each process takes; all of them, if there are too few."""
    several = processes()
    if len(rows) < several:
        return [list(rows)] * several
    return [list(rows[number::several]) for number in range(several)]


def weighted(loss: Tensor, rows: int) -> Tensor:
    """Scale a mean over this process's rows: the mean over processes is then that of all rows."""
    if processes() == 1:
        return loss
    import torch
    import torch.distributed as group

    total = torch.tensor(float(rows), device=loss.device)
    group.all_reduce(total)
    return loss * (rows * processes() / total)
