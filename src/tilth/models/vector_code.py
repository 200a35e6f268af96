"""LLVM IR of vectors of float32, which the loops of compiled kernels are made of.

Numba vectorises no loop of few values and keeps no sums in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

FLOAT, INT32, INT16 = ir.FloatType(), ir.IntType(32), ir.IntType(16)
_LOWEST = -100.0  # the exponent of a weight; its shares of sums stay normal numbers
# Polynomial of 2**x for 0 <= x < 1, the highest power first.
_EXP2 = (1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 1.0)


def floats(lanes: int, value: float) -> Any:
    """Return a vector of a number."""
    return ir.Constant(ir.VectorType(FLOAT, lanes), [value] * lanes)


def ints(lanes: int, value: int) -> Any:
    """Return a vector of a whole number."""
    return ir.Constant(ir.VectorType(INT32, lanes), [value] * lanes)


def mask(lanes: list[int]) -> Any:
    """Return which lanes a shuffle takes."""
    return ir.Constant(ir.VectorType(INT32, len(lanes)), lanes)


def at(builder: Any, address: Any, place: Any, kind: Any, size: int = 4) -> Any:
    """Return the pointer to element `place`, of `size` bytes, of the array at an address."""
    offset = builder.mul(place, ir.Constant(place.type, size))
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def load(builder: Any, pointer: Any, align: int = 4) -> Any:
    """Load a vector that no boundary aligns."""
    values = builder.load(pointer)
    values.align = align
    return values


def store(builder: Any, values: Any, pointer: Any, align: int = 4) -> None:
    """Store a vector that no boundary aligns."""
    builder.store(values, pointer).align = align


def widened(builder: Any, shorts: Any) -> Any:
    """Return bits of float32 of bfloat16, which is float32's upper half."""
    lanes = shorts.type.count
    wide = builder.zext(shorts, ir.VectorType(INT32, lanes))
    return builder.shl(wide, ints(lanes, 16))


def load_floats(builder: Any, address: Any, place: Any, dtype: Any, lanes: int) -> Any:
    """Load float32, or bfloat16 that is seen as uint16, as float32."""
    kind = ir.VectorType(FLOAT, lanes)
    if dtype != types.uint16:
        return load(builder, at(builder, address, place, kind))
    shorts = at(builder, address, place, ir.VectorType(INT16, lanes), 2)
    return builder.bitcast(widened(builder, load(builder, shorts, 2)), kind)


def store_floats(builder: Any, address: Any, dtype: Any, values: Any) -> None:
    """Store as float32, or rounded to even as bfloat16 that is seen as uint16."""
    lanes = values.type.count
    if dtype != types.uint16:
        store(builder, values, builder.inttoptr(address, values.type.as_pointer()))
        return
    bits = builder.bitcast(values, ir.VectorType(INT32, lanes))
    odd = builder.and_(builder.lshr(bits, ints(lanes, 16)), ints(lanes, 1))
    bits = builder.add(bits, builder.add(odd, ints(lanes, 0x7FFF)))
    shorts = builder.trunc(builder.lshr(bits, ints(lanes, 16)), ir.VectorType(INT16, lanes))
    store(builder, shorts, builder.inttoptr(address, shorts.type.as_pointer()), 2)


def masked_floats(
    builder: Any, address: Any, place: Any, dtype: Any, there: Any, other: float
) -> Any:
    """Load the values that are there as float32, and a number for each that is not."""
    lanes, is_short = there.type.count, dtype == types.uint16
    part, size = (INT16, 2) if is_short else (INT32, 4)
    kind = ir.VectorType(part, lanes)
    pointer = at(builder, address, place, kind, size)
    given = pointer, ir.Constant(INT32, size), there, ir.Constant(kind, [0] * lanes)
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(kind, [one.type for one in given]),
        f"llvm.masked.load.v{lanes}i{8 * size}.p0",
    )  # fmt: skip
    bits = builder.call(function, given)
    found = builder.bitcast(widened(builder, bits) if is_short else bits, floats(lanes, 0).type)
    return builder.select(there, found, floats(lanes, other))


def call(builder: Any, name: str, *values: Any) -> Any:
    """Call LLVM's function of this name on vectors."""
    kind = values[0].type
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(kind, [kind] * len(values)), f"llvm.{name}.v{kind.count}f32"
    )
    return builder.call(function, values)


def spread(builder: Any, value: Any, lanes: int) -> Any:
    """Return a vector of one value."""
    unused = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    one = builder.insert_element(unused, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(one, unused, ints(lanes, 0))


def larger(builder: Any, one: Any, two: Any) -> Any:
    """Return the larger values; those of `two` where either is not a number."""
    return builder.select(builder.fcmp_ordered(">", one, two), one, two)


def over_lanes(builder: Any, combine: Callable[[Any, Any], Any], values: Any) -> Any:
    """Return a vector of which each value combines all of them."""
    lanes = values.type.count
    half = lanes // 2
    while half:
        others = mask([lane ^ half for lane in range(lanes)])
        values = combine(values, builder.shuffle_vector(values, values, others))
        half //= 2
    return values


def exp2(builder: Any, exponents: Any) -> Any:
    """Return 2 to exponents of at most 0, to 3e-7 of it; 2**_LOWEST below."""
    lanes = exponents.type.count
    exponents = larger(builder, floats(lanes, _LOWEST), exponents)  # not a number: stays so
    whole = call(builder, "floor", exponents)
    part = builder.fsub(exponents, whole)
    power = floats(lanes, _EXP2[0])
    for factor in _EXP2[1:]:
        power = call(builder, "fma", power, part, floats(lanes, factor))
    bits = builder.add(builder.fptosi(whole, ir.VectorType(INT32, lanes)), ints(lanes, 127))
    bits = builder.shl(bits, ints(lanes, 23))
    return builder.fmul(power, builder.bitcast(bits, exponents.type))


def are_there(builder: Any, left: Any, lanes: int) -> Any:
    """Return whether each lane is one of the first `left`."""
    numbers = ir.Constant(ir.VectorType(left.type, lanes), list(range(lanes)))
    return builder.icmp_signed("<", numbers, spread(builder, left, lanes))


def softmax(builder: Any, starts: list[Any], counts: list[Any], scale: Any, lanes: int) -> None:
    """Replace rows of float32 with 2 to `scale` times them, divided by their sum.

    The rows begin at addresses and grow; up to a multiple of `lanes` of the last row's count they
    are filled with 0.
    """
    factors, integer = spread(builder, scale, lanes), counts[0].type
    kind = ir.VectorType(FLOAT, lanes)
    ends = ir.Constant(integer, 0), counts[-1], ir.Constant(integer, lanes)
    held = [cgutils.alloca_once_value(builder, floats(lanes, -3.4e38)) for _ in starts]  # type: ignore[no-untyped-call]

    def pointers(place: Any) -> list[Any]:
        return [at(builder, start, place, kind) for start in starts]

    with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
        for count, largest, pointer in zip(counts, held, pointers(place), strict=True):
            is_there = are_there(builder, builder.sub(count, place), lanes)
            values = builder.select(is_there, load(builder, pointer), floats(lanes, -float("inf")))
            store(builder, values, pointer)
            builder.store(larger(builder, values, builder.load(largest)), largest)
    tops = [over_lanes(builder, partial(larger, builder), builder.load(one)) for one in held]
    for total in held:
        builder.store(floats(lanes, 0.0), total)
    with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
        for total, top, pointer in zip(held, tops, pointers(place), strict=True):
            values = builder.fsub(load(builder, pointer), top)
            values = exp2(builder, builder.fmul(values, factors))
            store(builder, values, pointer)
            builder.store(builder.fadd(values, builder.load(total)), total)
    sums = [over_lanes(builder, builder.fadd, builder.load(total)) for total in held]
    shares = [builder.fdiv(floats(lanes, 1.0), total) for total in sums]
    with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
        for share, pointer in zip(shares, pointers(place), strict=True):
            store(builder, builder.fmul(load(builder, pointer), share), pointer)
