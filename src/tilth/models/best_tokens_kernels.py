"""Compiled kernels that sum up rows of logits, and find their best tokens."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import TILE, WIDTH
from tilth.models.kernels import FAST, kernel
from tilth.models.vector_code import (
    FLOAT,
    INT32,
    are_there,
    at,
    exp2,
    floats,
    larger,
    load_floats,
    masked_floats,
    over_lanes,
    spread,
    store,
)

_FLOATS, _LONG = ir.VectorType(FLOAT, WIDTH), ir.IntType(64)
_TO_BASE_2 = 1.4426950408889634
_BITS = 64  # columns of a mask
_LOWEST = -float("inf")


def _each(builder: Any, kind: Any, values: Any, count: Any, use: Any) -> None:
    """Call `use(place, vector, are there)` for `count` values at an address, WIDTH at a time.

    Values beyond the last one are -inf; `are there` tells them apart, None: all are there.
    """
    zero, width = ir.Constant(count.type, 0), ir.Constant(count.type, WIDTH)
    whole = builder.and_(count, ir.Constant(count.type, -WIDTH))
    with cgutils.for_range_slice(builder, zero, whole, width, inc=True) as (place, _):
        use(place, load_floats(builder, values, place, kind, WIDTH), None)
    with builder.if_then(builder.icmp_signed("<", whole, count)):
        there = are_there(builder, builder.sub(count, whole), WIDTH)
        use(whole, masked_floats(builder, values, whole, kind, there, _LOWEST), there)


def _maxima(builder: Any, kind: Any, values: Any, count: Any) -> Any:
    """Return the largest values of WIDTH groups: those that are WIDTH apart."""
    held = cgutils.alloca_once_value(builder, floats(WIDTH, _LOWEST))  # type: ignore[no-untyped-call]

    def use(_: Any, found: Any, __: Any) -> None:
        builder.store(larger(builder, found, builder.load(held)), held)

    _each(builder, kind, values, count, use)
    return builder.load(held)


def _reach(builder: Any, found: Any, there: Any, least: Any) -> Any:
    """Return which values are there and at least `least`."""
    reach = builder.fcmp_ordered(">=", found, least)
    return reach if there is None else builder.and_(reach, there)


def _first(builder: Any, values: Any) -> Any:
    return builder.extract_element(values, ir.Constant(INT32, 0))


@intrinsic
def _largest(_: Any, kind: Any, values: Any, count: Any) -> Any:
    """Return the largest of `count` values at an address; -inf if none is a number."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        _, values, count = arguments
        found = _maxima(builder, kind, values, count)
        return _first(builder, over_lanes(builder, partial(larger, builder), found))

    return types.float32(kind, values, count), generate


@intrinsic
def _sum_of_powers(_: Any, kind: Any, values: Any, count: Any, largest: Any) -> Any:
    """Return the sum of e to each of `count` values less the largest."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        _, values, count, largest = arguments
        held = cgutils.alloca_once_value(builder, floats(WIDTH, 0.0))  # type: ignore[no-untyped-call]
        top = spread(builder, largest, WIDTH)

        def use(_: Any, found: Any, there: Any) -> None:
            exponents = builder.fmul(builder.fsub(found, top), floats(WIDTH, _TO_BASE_2))
            powers = exp2(builder, exponents)
            if there is not None:
                powers = builder.select(there, powers, floats(WIDTH, 0.0))
            builder.store(builder.fadd(powers, builder.load(held)), held)

        _each(builder, kind, values, count, use)
        return _first(builder, over_lanes(builder, builder.fadd, builder.load(held)))

    return types.float32(kind, values, count, largest), generate


@intrinsic
def _lane_maxima(_: Any, kind: Any, values: Any, count: Any, out: Any) -> Any:
    """Write the largest values of WIDTH groups of columns."""

    def generate(context: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        _, values, count, out = arguments
        found = _maxima(builder, kind, values, count)
        store(builder, found, at(builder, out, ir.Constant(_LONG, 0), _FLOATS))
        return context.get_dummy_value()

    return types.void(kind, values, count, out), generate


@intrinsic
def _reaching(_: Any, kind: Any, values: Any, count: Any, bound: Any) -> Any:
    """Return a mask of those of at most 64 values that are at least `bound`."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        _, values, count, bound = arguments
        held = cgutils.alloca_once_value(builder, ir.Constant(_LONG, 0))  # type: ignore[no-untyped-call]
        least = spread(builder, bound, WIDTH)

        def use(place: Any, found: Any, there: Any) -> None:
            reach = _reach(builder, found, there, least)
            bits = builder.zext(builder.bitcast(reach, ir.IntType(WIDTH)), _LONG)
            builder.store(builder.or_(builder.shl(bits, place), builder.load(held)), held)

        _each(builder, kind, values, count, use)
        return builder.load(held)

    return types.uint64(kind, values, count, bound), generate


@intrinsic
def _lowest_bit(_: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(bits), generate


@intrinsic
def _value(_: Any, kind: Any, values: Any, place: Any) -> Any:
    """Return a value as float32."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        _, values, place = arguments
        return _first(builder, load_floats(builder, values, place, kind, 1))

    return types.float32(kind, values, place), generate


@intrinsic
def _count_reaching(_: Any, values: Any, count: Any, bound: Any) -> Any:
    """Return how many of `count` float32 at an address are at least `bound`."""

    def generate(context: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        values, count, bound = arguments
        kind = ir.VectorType(INT32, WIDTH)
        held = cgutils.alloca_once_value(builder, ir.Constant(kind, [0] * WIDTH))  # type: ignore[no-untyped-call]
        least = spread(builder, bound, WIDTH)

        def use(_: Any, found: Any, there: Any) -> None:
            reach = _reach(builder, found, there, least)
            builder.store(builder.sub(builder.load(held), builder.sext(reach, kind)), held)

        _each(builder, types.float32, values, count, use)
        total = _first(builder, over_lanes(builder, builder.add, builder.load(held)))
        return context.cast(builder, total, types.int32, types.int64)

    return types.int64(values, count, bound), generate


@intrinsic
def _as_float(_: Any, bits: Any) -> Any:
    """Return the float32 of these bits, uint32."""

    def generate(_c: Any, builder: Any, _s: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], FLOAT)

    return types.float32(bits), generate


@njit(inline="always", **FAST)
def _float_at(rank):  # type: ignore[no-untyped-def]
    """Return the float32 at a place, uint32, in the order of all of them."""
    half, infinite = np.uint32(0x80000000), np.uint32(0x007FFFFF)
    if rank >= half:
        return _as_float(np.uint32(rank ^ half))  # type: ignore[call-arg]
    return _as_float(np.uint32(~max(rank, infinite)))  # type: ignore[call-arg]


@njit(inline="always", **FAST)
def _bound(values, count, least, most):  # type: ignore[no-untyped-def]
    """Return a high bound that at least `least` of the values at an address reach.

    No more than `most` reach it, except for values that are equal to it.
    """
    rank = np.uint32(0)
    for bit in range(31, -1, -1):
        higher = np.uint32(rank | np.uint32(1 << bit))
        reaching: Any = _count_reaching(values, count, _float_at(higher))  # type: ignore[call-arg]
        if reaching >= least:
            rank = higher
            if reaching <= most:
                break
    return _float_at(rank)


@kernel
def log_totals(logits, totals):  # type: ignore[no-untyped-def]
    """Compute the logarithm of the sum of e to the logits.

    Args:
        logits: # (rows, vocabulary)
        totals: float32 output; not a number where a logit is none. # (rows,)
    """
    kind, width = logits[0, 0], logits.shape[1]
    for row in range(logits.shape[0]):
        values = logits.ctypes.data + row * width * logits.itemsize
        largest: Any = _largest(kind, values, width)  # type: ignore[call-arg]
        total = _sum_of_powers(kind, values, width, largest)
        totals[row] = largest + np.log(total)


@kernel
def take_off(logits, columns, costs, before):  # type: ignore[no-untyped-def]
    """Take costs off logits, of several costs of a token the highest.

    Args:
        logits: float32, changed in place. # (rows, vocabulary)
        columns: int64 tokens with a cost; -1: none. # (rows, costs)
        costs: float32. # (rows, costs)
        before: float32, overwritten. # (costs,)
    """
    for row in range(logits.shape[0]):
        for place in range(columns.shape[1]):
            before[place] = logits[row, max(columns[row, place], 0)]
        for place in range(columns.shape[1]):
            column = columns[row, place]
            if column >= 0:
                lower = before[place] - costs[row, place]
                logits[row, column] = min(logits[row, column], lower)


@kernel
def largest_logits(logits, rows, some, columns, values, tokens):  # type: ignore[no-untyped-def]
    """Find the largest logits of rows, the largest first, equal ones by token.

    A bound is found by the largest of groups of columns; few others reach it.

    Args:
        logits: # (any, vocabulary)
        rows: int64. # (rows,)
        some: float32, overwritten. # (vocabulary + WIDTH,)
        columns: int64, overwritten. # (vocabulary,)
        values: float32 output; -inf where there are no more numbers. # (rows, count)
        tokens: int64 output; there 0. # (rows, count)
    """
    kind, width, count = logits[0, 0], logits.shape[1], values.shape[1]
    for place in range(len(rows)):
        given = logits.ctypes.data + rows[place] * width * logits.itemsize
        held, found = some.ctypes.data, 0
        for start in range(0, width, TILE):
            source, left = given + start * logits.itemsize, min(TILE, width - start)
            _lane_maxima(kind, source, left, held + 4 * found)  # type: ignore[call-arg]
            found += WIDTH
        bound = np.float32(-np.inf)
        if found >= count:
            bound = _bound(held, found, count, count + count // 8)
        found = 0
        for start in range(0, width, _BITS):
            source, left = given + start * logits.itemsize, min(_BITS, width - start)
            bits: Any = _reaching(kind, source, left, bound)  # type: ignore[call-arg]
            while bits:
                column = start + np.int64(_lowest_bit(bits))
                bits &= bits - np.uint64(1)
                columns[found], some[found] = column, _value(kind, given, column)
                found += 1
        if found > count:
            bound, kept, equal = _bound(held, found, count, count), 0, count
            for number in range(found):
                equal -= some[number] > bound
            for number in range(found):
                if some[number] > bound or (some[number] == bound and equal > 0):
                    equal -= some[number] == bound
                    columns[kept], some[kept] = columns[number], some[number]
                    kept += 1
            found = kept
        for number in range(found):
            larger = _count_reaching(held, found, some[number]) - 1  # type: ignore[call-arg]
            for other in range(number + 1, found):
                larger -= some[other] == some[number]
            if larger < count:
                values[place, larger], tokens[place, larger] = some[number], columns[number]
        values[place, found:] = -np.inf
        tokens[place, found:] = 0
