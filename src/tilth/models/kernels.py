"""Compiled kernels: how they are compiled and cached, and the means of token vectors.

Only what computes with kernels imports this file: importing numba takes 0.3 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core import event

log = logging.getLogger(__name__)

FAST: dict[str, Any] = {
    "nogil": True, "boundscheck": False, "error_model": "numpy",
    "fastmath": {"reassoc", "contract"},  # sums in any order; infinities keep their meaning
}  # fmt: skip


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and cache it where numba finds a writable folder."""
    compiled: Any = numba.njit(**FAST)(function)
    with suppress(RuntimeError):  # no such folder: it is compiled in every process
        compiled.enable_caching()
    return compiled


class _Notice(event.Listener):
    """Says once in a process that kernels are compiled; those in the cache are not."""

    said = False

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's signature
        """Say it."""
        if not self.said:
            self.said = True
            log.warning("compiling for this processor, at first use: this takes some seconds")

    def on_end(self, event: Any) -> None:
        """Say nothing."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]


@kernel
def mean_vectors(ids, bounds, vectors, means):  # type: ignore[no-untyped-def]
    """Compute the means of texts' token vectors, scaled to unit length; 0 of none.

    Args:
        ids: int32 token ids of all texts. # (tokens,)
        bounds: int64 place of each text's first id, and the number of all. # (texts + 1,)
        vectors: float32. # (vocabulary, dimension)
        means: float32 output. # (texts, dimension)
    """
    for text in range(means.shape[0]):
        mean = means[text]
        mean[:] = 0
        for place in range(bounds[text], bounds[text + 1]):
            vector = vectors[ids[place]]
            for column in range(mean.shape[0]):
                mean[column] += vector[column]
        squares = mean[:1].sum() * 0
        for column in range(mean.shape[0]):
            squares += mean[column] * mean[column]
        if squares > 0:
            scale = 1 / squares**0.5
            for column in range(mean.shape[0]):
                mean[column] *= scale
