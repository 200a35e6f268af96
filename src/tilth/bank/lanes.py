"""Sums of products of small integers, in vector instructions: what loops are not compiled to.

Written in the compiler's own language, where each step is one on whole vectors of any processor:
neighbouring products are added in pairs, which x86 does in the instruction that multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.bank.codes import LANES

_INT8, _INT16, _INT32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
_BYTES, _WIDE = ir.VectorType(_INT8, LANES), ir.VectorType(_INT32, LANES)
_PAIRS = ir.VectorType(_INT32, LANES // 2)


def _two_sums(bits: int) -> Callable[..., Any]:
    """Make the function that sums the products of a row of codes with two queries.

    Args:
        bits: of a code: 8 (with a sign), 4 or 2 (without). A byte holds 8 / bits codes, those of
            the first part of a row in its lowest bits, as `tilth.bank.codes` packs them.
    """
    parts = 8 // bits

    @intrinsic
    def two_sums(_: Any, codes: Any, one: Any, two: Any) -> Any:
        signature = types.UniTuple(types.int32, 2)(codes, one, two)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            row, *queries = (
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args, arguments, strict=True)
            )
            width = builder.extract_value(row.shape, 0)
            zero, step = ir.Constant(width.type, 0), ir.Constant(width.type, LANES)
            none = ir.Constant(_PAIRS, [0] * (LANES // 2))
            sums = [cgutils.alloca_once_value(builder, none) for _ in queries]  # type: ignore[no-untyped-call]
            with cgutils.for_range_slice(builder, zero, width, step, inc=True) as (place, _):
                packed = _load(builder, row.data, place, _BYTES)
                for part in range(parts):
                    codes = _unpacked(builder, packed, bits, part)
                    first = builder.mul(width, ir.Constant(width.type, part))
                    place_of_part = builder.add(place, first)
                    for total, query in zip(sums, queries, strict=True):
                        values = _load(
                            builder, query.data, place_of_part, ir.VectorType(_INT16, LANES)
                        )
                        pairs = _pair_sums(builder, codes, values)
                        builder.store(builder.add(builder.load(total), pairs), total)
            totals = [_total(builder, builder.load(total)) for total in sums]
            return context.make_tuple(builder, signature.return_type, totals)

        return signature, generate

    return two_sums


def _load(builder: Any, pointer: Any, place: Any, kind: ir.VectorType) -> Any:
    start = builder.bitcast(builder.gep(pointer, [place]), kind.as_pointer())
    loaded = builder.load(start)
    loaded.align = kind.element.width // 8
    return loaded


def _unpacked(builder: Any, packed: Any, bits: int, part: int) -> Any:
    """Return the codes of a part of the row as 32-bit numbers."""
    if bits == 8:
        return builder.sext(packed, _WIDE)
    if part:
        packed = builder.lshr(packed, ir.Constant(_BYTES, [part * bits] * LANES))
    if part < 8 // bits - 1:
        packed = builder.and_(packed, ir.Constant(_BYTES, [2**bits - 1] * LANES))
    return builder.zext(packed, _WIDE)


def _pair_sums(builder: Any, codes: Any, values: Any) -> Any:
    """Return the sums of neighbouring products."""
    products = builder.mul(codes, builder.sext(values, _WIDE))
    unused = ir.Constant(_WIDE, ir.Undefined)
    even, odd = (
        builder.shuffle_vector(products, unused, ir.Constant(_PAIRS, list(range(first, LANES, 2))))
        for first in (0, 1)
    )
    return builder.add(even, odd)


def _total(builder: Any, sums: Any) -> Any:
    name = f"llvm.vector.reduce.add.v{LANES // 2}i32"
    kind = ir.FunctionType(_INT32, [_PAIRS])
    total = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(total, [sums])


two_sums_of_bytes = _two_sums(8)
two_sums_of_fours = _two_sums(4)
two_sums_of_twos = _two_sums(2)
"""(codes of a row, query, query) -> two sums. Codes: uint8, # (bytes,); queries: int16,
# (bytes * codes in a byte,)."""
