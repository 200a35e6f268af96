"""Compiled kernels of attention within texts that stand one after the other, without padding.

All sums are products of small float32 matrices. Numba vectorises no loop of so few values and
keeps no sums in registers, so the inner loops are written in LLVM IR.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import ROWS, WIDTH
from tilth.models.kernels import FAST, kernel

_FLOAT, _INT32, _SHORT = ir.FloatType(), ir.IntType(32), ir.IntType(16)
_FLOATS, _INTS, _SHORTS = (ir.VectorType(kind, WIDTH) for kind in (_FLOAT, _INT32, _SHORT))
_LOWEST = -100.0  # the exponent of a weight; its shares of sums stay normal numbers
_ZERO = np.float32(0)  # its type is of what the kernels compute with
# Polynomial of 2**x for 0 <= x < 1, the highest power first.
_EXP2 = (1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 1.0)


def _ints(value: int) -> Any:
    return ir.Constant(_INTS, [value] * WIDTH)


def _floats(value: float) -> Any:
    return ir.Constant(_FLOATS, [value] * WIDTH)


def _at(builder: Any, address: Any, place: Any, kind: Any) -> Any:
    """Return the pointer to element `place` of the float32 at an address."""
    offset = builder.mul(place, ir.Constant(place.type, 4))
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _load(builder: Any, pointer: Any, align: int = 4) -> Any:
    values = builder.load(pointer)
    values.align = align
    return values


def _store(builder: Any, values: Any, pointer: Any, align: int = 4) -> None:
    builder.store(values, pointer).align = align


def _call(builder: Any, name: str, *values: Any) -> Any:
    """Call LLVM's function of this name on vectors."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * len(values))
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{WIDTH}f32")  # type: ignore[no-untyped-call]
    return builder.call(function, values)


def _spread(builder: Any, value: Any) -> Any:
    """Return a vector of one value."""
    unused = ir.Constant(_FLOATS, ir.Undefined)
    one = builder.insert_element(unused, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(one, unused, _ints(0))


def _larger(builder: Any, one: Any, two: Any) -> Any:
    """Return the larger values; those of `two` where either is not a number."""
    return builder.select(builder.fcmp_ordered(">", one, two), one, two)


def _over_lanes(builder: Any, combine: Callable[[Any, Any], Any], values: Any) -> Any:
    """Return a vector of which each value combines all of them."""
    half = WIDTH // 2
    while half:
        others = ir.Constant(_INTS, [lane ^ half for lane in range(WIDTH)])
        values = combine(values, builder.shuffle_vector(values, values, others))
        half //= 2
    return values


def _exp2(builder: Any, exponents: Any) -> Any:
    """Return 2 to exponents of at most 0, to 3e-7 of it; 2**_LOWEST below."""
    exponents = _larger(builder, _floats(_LOWEST), exponents)  # what is not a number stays so
    whole = _call(builder, "floor", exponents)
    part = builder.fsub(exponents, whole)
    power = _floats(_EXP2[0])
    for factor in _EXP2[1:]:
        power = _call(builder, "fma", power, part, _floats(factor))
    bits = builder.shl(builder.add(builder.fptosi(whole, _INTS), _ints(127)), _ints(23))
    return builder.fmul(power, builder.bitcast(bits, _FLOATS))


@intrinsic
def _copy(_: Any, kind: Any, source: Any, to_kind: Any, target: Any) -> Any:
    """Copy WIDTH values from an address to another; bfloat16 is seen as uint16, rounded to even."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, source, _, target = arguments
        if kind == types.uint16:  # float32's upper half
            shorts = _load(builder, builder.inttoptr(source, _SHORTS.as_pointer()), 2)
            bits = builder.shl(builder.zext(shorts, _INTS), _ints(16))
        else:
            bits = _load(builder, builder.inttoptr(source, _INTS.as_pointer()))
        if to_kind == types.uint16:
            odd = builder.and_(builder.lshr(bits, _ints(16)), _ints(1))
            bits = builder.add(bits, builder.add(odd, _ints(0x7FFF)))
            shorts = builder.trunc(builder.lshr(bits, _ints(16)), _SHORTS)
            _store(builder, shorts, builder.inttoptr(target, _SHORTS.as_pointer()), 2)
        else:
            _store(builder, bits, builder.inttoptr(target, _INTS.as_pointer()))
        return context.get_dummy_value()

    return types.void(kind, source, to_kind, target), generate


@intrinsic
def _turn(_: Any, source: Any, step: Any, target: Any, target_step: Any) -> Any:
    """Transpose WIDTH rows of WIDTH float32; addresses, and elements between rows."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        source, step, target, target_step = arguments

        def pointers(address: Any, step: Any) -> list[Any]:
            places = [builder.mul(step, ir.Constant(step.type, row)) for row in range(WIDTH)]
            return [_at(builder, address, place, _FLOATS) for place in places]

        rows = [_load(builder, pointer) for pointer in pointers(source, step)]
        half = WIDTH // 2
        while half:  # exchange halves of quadrants, of ever smaller ones
            for row in (row for row in range(WIDTH) if not row & half):
                pair = rows[row], rows[row | half]
                lanes = range(WIDTH)
                upper = [lane + WIDTH - half if lane & half else lane for lane in lanes]
                lower = [lane + WIDTH if lane & half else lane + half for lane in lanes]
                rows[row], rows[row | half] = (
                    builder.shuffle_vector(*pair, ir.Constant(_INTS, mask))
                    for mask in (upper, lower)
                )
            half //= 2
        for row, pointer in zip(rows, pointers(target, target_step), strict=True):
            _store(builder, row, pointer)
        return context.get_dummy_value()

    return types.void(source, step, target, target_step), generate


@intrinsic
def _block(
    _: Any, left: Any, left_step: Any, right: Any, right_step: Any, inner: Any, out: Any, step: Any
) -> Any:
    """Write a block of ROWS x WIDTH of the product of two float32 matrices, given by addresses.

    The steps are the elements from one row to the next, `inner` the dimension summed over.
    """

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        left, left_step, right, right_step, inner, out, step = arguments
        sums = [cgutils.alloca_once_value(builder, _floats(0.0)) for _ in range(ROWS)]  # type: ignore[no-untyped-call]
        starts = [builder.mul(left_step, ir.Constant(inner.type, row)) for row in range(ROWS)]
        ends = ir.Constant(inner.type, 0), inner, ir.Constant(inner.type, 1)
        with cgutils.for_range_slice(builder, *ends, inc=True) as (number, _):
            values = _load(builder, _at(builder, right, builder.mul(number, right_step), _FLOATS))
            for start, held in zip(starts, sums, strict=True):
                place = _at(builder, left, builder.add(start, number), _FLOAT)
                factors = _spread(builder, builder.load(place))
                builder.store(_call(builder, "fma", values, factors, builder.load(held)), held)
        for row, held in enumerate(sums):
            place = builder.mul(step, ir.Constant(step.type, row))
            _store(builder, builder.load(held), _at(builder, out, place, _FLOATS))
        return context.get_dummy_value()

    return types.void(left, left_step, right, right_step, inner, out, step), generate


@intrinsic
def _softmax(_: Any, rows: Any, step: Any, count: Any, scale: Any) -> Any:
    """Replace ROWS rows of `count` float32 with 2 to `scale` times them, divided by their sum.

    The address of the first row and the elements from one to the next; up to a multiple of WIDTH
    a row is filled with 0.
    """

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        rows, step, count, scale = arguments
        factors, integer = _spread(builder, scale), count.type
        ends = ir.Constant(integer, 0), count, ir.Constant(integer, WIDTH)
        starts = [builder.mul(step, ir.Constant(integer, row)) for row in range(ROWS)]
        lanes = ir.Constant(ir.VectorType(integer, WIDTH), list(range(WIDTH)))
        held = [cgutils.alloca_once_value(builder, _floats(-3.4e38)) for _ in starts]  # type: ignore[no-untyped-call]

        def pointers(place: Any) -> list[Any]:
            return [_at(builder, rows, builder.add(start, place), _FLOATS) for start in starts]

        with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
            left = builder.sub(count, place)
            beyond = ir.Constant(ir.VectorType(integer, WIDTH), ir.Undefined)
            beyond = builder.insert_element(beyond, left, ir.Constant(_INT32, 0))
            beyond = builder.shuffle_vector(beyond, beyond, _ints(0))
            is_there = builder.icmp_signed("<", lanes, beyond)
            for largest, pointer in zip(held, pointers(place), strict=True):
                values = builder.select(is_there, _load(builder, pointer), _floats(-np.inf))
                _store(builder, values, pointer)
                builder.store(_larger(builder, values, builder.load(largest)), largest)
        larger = partial(_larger, builder)
        tops = [_over_lanes(builder, larger, builder.load(largest)) for largest in held]
        for total in held:
            builder.store(_floats(0.0), total)
        with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
            for total, top, pointer in zip(held, tops, pointers(place), strict=True):
                values = builder.fsub(_load(builder, pointer), top)
                values = _exp2(builder, builder.fmul(values, factors))
                _store(builder, values, pointer)
                builder.store(builder.fadd(values, builder.load(total)), total)
        sums = [_over_lanes(builder, builder.fadd, builder.load(total)) for total in held]
        shares = [builder.fdiv(_floats(1.0), total) for total in sums]
        with cgutils.for_range_slice(builder, *ends, inc=True) as (place, _):
            for share, pointer in zip(shares, pointers(place), strict=True):
                _store(builder, builder.fmul(_load(builder, pointer), share), pointer)
        return context.get_dummy_value()

    return types.void(rows, step, count, scale), generate


@njit(inline="always", **FAST)
def _read(source, first, count, head, target):  # type: ignore[no-untyped-def]
    """Copy rows of a head to the float32 rows at an address."""
    heads, size = source.shape[1], source.shape[2]
    for row in range(count):
        place = source.ctypes.data + ((first + row) * heads + head) * size * source.itemsize
        for column in range(0, size, WIDTH):
            shift = column * source.itemsize
            to = target + 4 * (row * size + column)
            _copy(source[0, 0, 0], place + shift, _ZERO, to)  # type: ignore[call-arg]


@njit(inline="always", **FAST)
def _write(source, count, target, first, head):  # type: ignore[no-untyped-def]
    """Copy float32 rows at an address to rows of a head."""
    heads, size = target.shape[1], target.shape[2]
    for row in range(count):
        place = target.ctypes.data + ((first + row) * heads + head) * size * target.itemsize
        for column in range(0, size, WIDTH):
            shift = column * target.itemsize
            of = source + 4 * (row * size + column)
            _copy(_ZERO, of, target[0, 0, 0], place + shift)  # type: ignore[call-arg]


@kernel
def attend_texts(queries, keys, values, starts, scale, wide, tall, out):  # type: ignore[no-untyped-def]
    """Compute attention within texts.

    Args:
        queries, keys, values: # (tokens, heads, size)
        starts: int64 first token of each text, and the end. # (texts + 1,)
        scale: of products of query and key, times log2(e).
        wide: float32, overwritten. # (size + ROWS, tokens of a text, rounded up to WIDTH)
        tall: float32, overwritten. # (2 * ROWS + tokens of a text, rounded up to WIDTH, size)
        out: # (tokens, heads, size)
    """
    heads, size = queries.shape[1], queries.shape[2]
    factor, step = np.float32(scale), wide.shape[1]
    turned, weights = wide.ctypes.data, wide.ctypes.data + 4 * size * step
    some = tall.ctypes.data
    sums, held = some + 4 * ROWS * size, some + 8 * ROWS * size
    for text in range(len(starts) - 1):
        first, count = starts[text], starts[text + 1] - starts[text]
        columns = (count + WIDTH - 1) // WIDTH * WIDTH
        for head in range(heads):
            _read(keys, first, count, head, held)
            for row in range(0, columns, WIDTH):
                for column in range(0, size, WIDTH):
                    source = held + 4 * (row * size + column)
                    _turn(source, size, turned + 4 * (column * step + row), step)  # type: ignore[call-arg]
            _read(values, first, count, head, held)
            for query in range(first, first + count, ROWS):
                rows = min(ROWS, first + count - query)
                _read(queries, query, rows, head, some)
                for column in range(0, columns, WIDTH):
                    place = weights + 4 * column
                    _block(some, size, turned + 4 * column, step, size, place, step)  # type: ignore[call-arg]
                _softmax(weights, step, count, factor)  # type: ignore[call-arg]
                for column in range(0, size, WIDTH):
                    place = sums + 4 * column
                    _block(weights, step, held + 4 * column, size, count, place, size)
                _write(sums, rows, out, query, head)
