"""Hand tensors and rows to compiled kernels on processors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# A block of the kernels that compute products: columns, of which sizes of heads are multiples.
WIDTH, ROWS = 16, 4
TILE = 256  # columns whose largest logits are found together
LANES = 8  # values of an instruction: head sizes of attention are multiples of it
# Columns of the table of rows of one query: addresses, bytes from one head to the next, tokens.
ROW_FIELDS = 5
PROMPT_KEYS, PROMPT_VALUES, HEAD_BYTES, PROMPT_TOKENS, OWN_TOKENS = range(ROW_FIELDS)
# Data types that kernels read, as those of equal width that numpy knows.
CODES = {torch.float32: (torch.float32, np.float32), torch.bfloat16: (torch.int16, np.uint16)}


def codes(values: Tensor) -> NDArray[Any]:
    """Return values as numpy knows them: bfloat16 as uint16."""
    seen, kind = CODES[values.dtype]
    return values.contiguous().view(seen).numpy().view(kind)


class Attention(Protocol):
    """Computes attention among tokens that stand in one sequence, whatever texts they are of."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return the attention in a layer; all tensors are (tokens, heads, size)."""


def attend_in_sequence(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 - `attention` knows what a token reads
    *,
    attention: Attention,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' attention functions do; the batch is one sequence."""
    queries, keys, values = (one[0].transpose(0, 1) for one in (query, key, value))
    scale = scaling or query.shape[-1] ** -0.5
    return attention.attend(module.layer_idx, queries, keys, values, scale)[None], None


def rounded_up(count: int) -> int:
    """Return the smallest multiple of WIDTH that is at least `count`."""
    return -(-count // WIDTH) * WIDTH


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
