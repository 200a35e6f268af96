"""CUDA graphs of decode steps: a GPU repeats a step's kernels without waiting for Python."""

from __future__ import annotations

import logging
import weakref

import torch
from torch import Tensor

from tilth.generation.kv_cache import KVCache
from tilth.models.kernel_arrays import rounded_up

_ROW_PARTS, _COLUMNS = 8, 32
log = logging.getLogger(__name__)


class StepGraphs:
    """Runs a cache's decode steps; records a step when its shape comes a second time.

    Rows are rounded up to an eighth of all, columns to 32, so that shapes are few. Further rows
    must be free, since they write in their first column.
    """

    def __init__(self, cache: KVCache) -> None:
        self._cache: KVCache = weakref.proxy(cache)  # its memory is free as soon as its owner is
        self._given = torch.zeros(2, cache.rows, dtype=torch.long, device=cache.every.device)
        self._logits: Tensor | None = None  # (rows, vocab), of the latest step of a graph
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        self._pool = torch.cuda.graph_pool_handle()  # steps run one after the other: one memory
        self._can_record = True

    def step(self, given: Tensor, end: int) -> Tensor:
        """Run one token per row; return the next-token logits, (n, vocab), until the next step.

        Args:
            given: the tokens of the first n rows, and their columns. # (2, n)
            end: one more than the largest column.
        """
        cache, count = self._cache, given.shape[1]
        part = -(-cache.rows // _ROW_PARTS)
        shape = min(rounded_up(count, part), cache.rows), rounded_columns(end)
        ids, positions = self._given[:, : shape[0]].zero_()
        ids[:count], positions[:count] = given
        if self._can_record and shape in self._graphs and self._graphs[shape] is None:
            self._graphs[shape] = self._recorded(*shape)
        graph = self._graphs.setdefault(shape, None)
        if graph is None or self._logits is None:
            logits = cache.step(ids, positions, shape[1])
            if self._logits is None:
                self._logits = logits.new_empty(cache.rows, logits.shape[1])
            return logits[:count]
        graph.replay()
        return self._logits[:count]

    def _recorded(self, rows: int, end: int) -> torch.cuda.CUDAGraph | None:
        """Record a step; return None if this model's cannot be."""
        assert self._logits is not None
        graph = torch.cuda.CUDAGraph()
        ids, positions = self._given[:, :rows]
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                self._logits[:rows] = self._cache.step(ids, positions, end)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # such as experts that are chosen by the processor
            log.info("decoding without CUDA graphs: %s", error)
            self._can_record = False
            return None
        return graph


def rounded_columns(count: int) -> int:
    """Return a number of columns that graphs are made for."""
    return rounded_up(count, _COLUMNS)
