"""What a run's matrix products alone would take on this machine: the limit of its speed."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode


def product_count(work: Callable[[], object]) -> int:
    """Return the floating-point operations of the matrix products of some work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # those of this thread alone are counted
    laid_out = {torch.ops.mkldnn._linear_pointwise: _linear_count}
    with FlopCounterMode(display=False, custom_mapping=laid_out) as counter:
        work()
    torch.set_num_threads(threads)
    return int(counter.get_total_flops())


def _linear_count(values: torch.Size, weight: torch.Size, *_: object, **__: object) -> int:
    """Return the operations of a linear layer whose weights are laid out."""
    return 2 * values.numel() * weight[0]


def product_rate(clock: Callable[[], float], dtype: torch.dtype = torch.float32) -> float:
    """Return the operations per second of a large product in torch's threads."""
    left, right = torch.randn(2048, 512).to(dtype), torch.randn(512, 2048).to(dtype)
    seconds = []
    for _ in range(5):
        start = clock()
        torch.mm(left, right)
        seconds.append(clock() - start)
    return 2 * 2048 * 512 * 2048 / statistics.median(seconds)
