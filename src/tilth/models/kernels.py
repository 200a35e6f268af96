"""How kernels are compiled and cached.

Only what compiles kernels imports this file: importing numba takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, event

from tilth.object_code import FAST, say_compiling

__all__ = ["FAST", "kernel", "prefetch"]


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and cache it where numba finds a writable folder."""
    compiled: Any = numba.njit(**FAST)(function)
    with suppress(RuntimeError):  # no such folder: it is compiled in every process
        compiled.enable_caching()
    return compiled


def prefetch(builder: Any, pointer: Any) -> None:
    """Fetch the line of the cache that a pointer to bytes is in, in an intrinsic."""
    flags = [ir.Constant(ir.IntType(32), flag) for flag in (0, 3, 1)]  # read, keep, data
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, *(flag.type for flag in flags)])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
    builder.call(function, [pointer, *flags])


class _Notice(event.Listener):
    """Says that kernels are compiled."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's signature
        """Say it."""
        say_compiling()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]
