"""Options of compiled kernels, and how they fetch memory ahead.

Only what compiles kernels imports this file: importing numba takes half a second.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.object_code import FAST

__all__ = ["FAST", "LINE", "fetch", "kernel", "prefetch"]

LINE = 64  # bytes of a line of the cache

kernel: Any = numba.njit(**FAST)  # `Compiled` keeps its object code


def prefetch(builder: Any, pointer: Any, *, near: bool = True) -> None:
    """Prefetch the cache line of a pointer to bytes; for intrinsics.

    Args:
        near: into the first-level cache, which has room for few lines; else into the second.
    """
    # for reading, locality (3 is the first level), data cache
    flags = [ir.Constant(ir.IntType(32), flag) for flag in (0, 3 if near else 2, 1)]
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, *(flag.type for flag in flags)])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
    builder.call(function, [pointer, *flags])


@intrinsic
def fetch(_: Any, address: Any, count: Any) -> Any:
    """Fetch bytes at an address into the nearest cache, in the background."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        address, count = arguments
        zero, line = (ir.Constant(count.type, number) for number in (0, LINE))
        with cgutils.for_range_slice(builder, zero, count, line, inc=True) as (place, _):
            pointer = builder.inttoptr(builder.add(address, place), ir.IntType(8).as_pointer())
            prefetch(builder, pointer)
        return context.get_dummy_value()

    return types.void(address, count), generate
