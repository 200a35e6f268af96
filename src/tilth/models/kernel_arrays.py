"""Hand tensors and rows to compiled kernels on processors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LANES = 8  # values of an instruction: head sizes of attention are multiples of it
# Data types that kernels read, as those of equal width that numpy knows.
CODES = {torch.float32: (torch.float32, np.float32), torch.bfloat16: (torch.int16, np.uint16)}


def codes(values: Tensor) -> NDArray[Any]:
    """Return values as numpy knows them: bfloat16 as uint16."""
    seen, kind = CODES[values.dtype]
    return values.contiguous().view(seen).numpy().view(kind)


def in_parts(work: Callable[[slice, int], None], count: int) -> None:
    """Call `work(rows, thread)` on slices of `count` rows, one for each thread of torch."""
    threads = torch.get_num_threads()
    if threads == 1:
        work(slice(0, count), 0)
        return
    bounds = np.linspace(0, count, threads + 1).astype(int).tolist()
    parts = map(slice, bounds[:-1], bounds[1:])
    list(_pool(threads).map(work, parts, range(threads)))


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
