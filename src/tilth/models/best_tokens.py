"""Sum up rows of logits and find their best tokens; on processors, in compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tilth.models.kernel_arrays import CODES, WIDTH, codes, in_parts
from tilth.object_code import Compiled

_KERNELS = "tilth.models.best_tokens_kernels"
# Without a kernel: values per block, 2 MiB of float32, which stay in a processor's cache.
_CACHED = 1 << 19

_log_totals = Compiled(_KERNELS, "log_totals")
_take_off = Compiled(_KERNELS, "take_off")
_largest_logits = Compiled(_KERNELS, "largest_logits")


def log_totals(logits: Tensor) -> Tensor:
    """Return the logsumexp of each row of logits, (rows,), in float32.

    Args:
        logits: (rows, vocabulary), of any floating type.
    """
    if not _has_kernel(logits):
        return torch.cat([part.float().logsumexp(-1) for part in _blocks(logits, logits)])
    given, found = codes(logits), torch.empty(len(logits))
    totals = found.numpy()
    in_parts(_log_totals, lambda some, _: (given[some], totals[some]), len(given))
    return found


def largest_logits(logits: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest logits of some rows, in float32, and their tokens, (rows, count) each.

    Args:
        logits: (any, vocabulary), of any floating type.
        rows: indices. # (rows,)
    """
    if not _has_kernel(logits):
        parts = [logits[part].topk(count, dim=-1) for part in _blocks(rows, logits)]
        values, ids = (torch.cat(some) for some in zip(*parts, strict=True))
        return values.float(), ids
    given, places = codes(logits), rows.contiguous().numpy()
    found = torch.empty(len(rows), count), torch.empty(len(rows), count, dtype=torch.int64)
    largest, tokens = (one.numpy() for one in found)

    def arguments(some: slice, _: int) -> tuple[Any, ...]:
        width = given.shape[1]
        return (
            given, places[some], np.empty(width + WIDTH, np.float32), np.empty(width, np.int64),
            largest[some], tokens[some],
        )  # fmt: skip

    in_parts(_largest_logits, arguments, len(places))
    return found


def best_tokens(
    logits: Tensor, columns: NDArray[np.int64], costs: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the best log-probabilities less their costs, and their tokens, (rows, count) each.

    Args:
        logits: (rows, vocabulary); overwritten.
        columns: tokens with a cost; -1: none. # (rows, costs)
        costs: of a token's several costs the highest counts. # (rows, costs)
    """
    given = logits.float()
    totals = log_totals(given)[:, None]  # (rows, 1)
    if _has_kernel(given):
        scores = codes(given)

        def arguments(some: slice, _: int) -> tuple[Any, ...]:
            return scores[some], columns[some], costs[some], np.empty(len(costs[0]), np.float32)

        in_parts(_take_off, arguments, len(scores))
        given = torch.from_numpy(scores)
    else:
        places = torch.from_numpy(columns).clamp(min=0).to(given.device)
        taken = torch.from_numpy(np.where(columns < 0, 0, costs)).to(given.device)
        given = given - torch.zeros_like(given).scatter_reduce_(1, places, taken, "amax")
    every = torch.arange(len(given), device=given.device)
    values, tokens = largest_logits(given, every, min(count, given.shape[1]))
    return (values - totals).cpu().numpy(), tokens.cpu().numpy()


def _has_kernel(logits: Tensor) -> bool:
    return logits.device.type == "cpu" and logits.dtype in CODES


def _blocks(rows: Tensor, logits: Tensor) -> tuple[Tensor, ...]:
    """Return parts of rows whose logits stay in a processor's cache."""
    size = max(1, _CACHED // logits.shape[-1]) if logits.device.type == "cpu" else len(logits)
    return torch.split(rows, size)
