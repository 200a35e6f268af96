"""Compiled kernel that finds the best tokens of each row of logits."""

from __future__ import annotations

import numpy as np
from numba import njit

from tilth.models.kernels import FAST, kernel
from tilth.models.single_query import exp2

_BLOCK = 32
_TO_BASE_2 = np.float32(1.4426950408889634)


@njit(inline="always", **FAST)
def _any_above(values, start, end, bound):  # type: ignore[no-untyped-def]
    count = 0  # vector instructions compare a block; a loop that ends early takes none
    for column in range(start, end):
        count += values[column] > bound
    return count > 0


@kernel
def best_tokens(logits, columns, costs, raw, log_probs, tokens):  # type: ignore[no-untyped-def]
    """Find the tokens of the highest log-probability less their cost, the best first.

    Args:
        logits: float32; costs are taken off in place. # (rows, vocabulary)
        columns: int64 tokens with a cost; -1: none. # (rows, costs)
        costs: float32; of several costs of a token the highest counts. # (rows, costs)
        raw: float32, overwritten. # (costs,)
        log_probs: float32 output; -inf where there are no more tokens. # (rows, count)
        tokens: int64 output. # (rows, count)
    """
    vocabulary, count = logits.shape[1], tokens.shape[1]
    for row in range(logits.shape[0]):
        values, best, ids = logits[row], log_probs[row], tokens[row]
        largest = values[0]
        for start in range(0, vocabulary, _BLOCK):
            end = min(start + _BLOCK, vocabulary)
            if _any_above(values, start, end, largest):
                for column in range(start, end):
                    largest = max(largest, values[column])
        total = np.float32(0)
        for column in range(vocabulary):
            total += exp2((values[column] - largest) * _TO_BASE_2)
        shift = largest + np.float32(np.log(total))
        for place in range(columns.shape[1]):
            raw[place] = values[max(columns[row, place], 0)]
        for place in range(columns.shape[1]):
            column = columns[row, place]
            if column >= 0:
                values[column] = min(values[column], raw[place] - costs[row, place])
        best[:] = -np.inf
        ids[:] = 0
        for start in range(0, vocabulary, _BLOCK):
            end = min(start + _BLOCK, vocabulary)
            if not _any_above(values, start, end, best[count - 1]):
                continue
            for column in range(start, end):
                value = values[column]
                if value > best[count - 1]:
                    place = count - 1
                    while place > 0 and best[place - 1] < value:
                        best[place], ids[place] = best[place - 1], ids[place - 1]
                        place -= 1
                    best[place], ids[place] = value, column
        for place in range(count):
            best[place] -= shift
