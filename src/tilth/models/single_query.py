"""Compute attention of one query per row in compiled kernels, on processors.

`attend` reads a row's keys and values in two places: those of its prompt, which many rows read
where they are, and those of its own tokens. `attend_spans` reads them in any number of places.
Each is read as far as it is filled.

Numba keeps no sums in registers over a loop on rows of memory, so these two loops are written in
LLVM IR. They stay in this file because numba recompiles a cached function only when its own file
changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import LANES
from tilth.models.kernels import FAST, kernel, prefetch

# Columns of the table of rows: addresses, bytes from one head to the next, tokens.
ROW_FIELDS = 5
PROMPT_KEYS, PROMPT_VALUES, HEAD_BYTES, PROMPT_TOKENS, OWN_TOKENS = range(ROW_FIELDS)

_LINE = 64  # bytes of a line of the cache
_FLOAT, _INT32 = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT32, LANES)
_SHORTS = ir.VectorType(ir.IntType(16), LANES)


def _at(builder: Any, address: Any, place: Any, size: int, kind: Any) -> Any:
    """Return the pointer to element `place`, of `size` bytes, of the array at an address."""
    offset = builder.mul(place, ir.Constant(place.type, size))
    return builder.inttoptr(builder.add(address, offset), kind.as_pointer())


def _load(builder: Any, address: Any, place: Any, dtype: Any) -> Any:
    """Return LANES elements as float32; bfloat16, seen as uint16, is float32's upper half."""
    short = dtype == types.uint16
    width = 2 if short else 4
    values = builder.load(_at(builder, address, place, width, _SHORTS if short else _FLOATS))
    values.align = width
    if short:
        wide = builder.zext(values, _INTS)
        values = builder.bitcast(builder.shl(wide, ir.Constant(_INTS, [16] * LANES)), _FLOATS)
    return values


def _multiply_add(builder: Any, one: Any, two: Any, total: Any) -> Any:
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
    name = f"llvm.fma.v{LANES}f32"
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, [one, two, total])


def _total(builder: Any, sums: Any) -> Any:
    """Return the sum of LANES values, added by halves."""
    half = LANES // 2
    while half:
        others = ir.Constant(_INTS, [lane ^ half for lane in range(LANES)])
        sums = builder.fadd(sums, builder.shuffle_vector(sums, sums, others))
        half //= 2
    return builder.extract_element(sums, ir.Constant(_INT32, 0))


def _four_totals(builder: Any, sums: list[Any]) -> Any:
    """Return the four sums of LANES values each, of four vectors, added by pairs and halves."""

    def added(one: Any, two: Any, *masks: list[int]) -> Any:
        parts = [builder.shuffle_vector(one, two, _lanes(mask)) for mask in masks]
        return builder.fadd(*parts)

    pairs = [0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15]
    fours = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
    one, two = added(*sums[:2], *pairs), added(*sums[2:], *pairs)
    both = added(one, two, *fours)
    return added(both, both, [0, 1, 2, 3], [4, 5, 6, 7])


def _lanes(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT32, len(numbers)), numbers)


def _parts(chunks: Any) -> int:
    """Return the number of LANES in a head, which the type of `chunks` says."""
    number: int = chunks.ndim if isinstance(chunks, types.Array) else chunks.count
    return number


@intrinsic
def _dot_rows(_: Any, kind: Any, chunks: Any, query: Any, rows: Any, count: Any, out: Any) -> Any:
    """Write the dot products of a query with `count` rows; addresses, the last of float32."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, _, query, rows, count, out = arguments
        zero = ir.Constant(count.type, 0)
        places = [ir.Constant(count.type, LANES * part) for part in range(_parts(chunks))]
        parts = [_load(builder, query, place, kind) for place in places]
        width = ir.Constant(count.type, LANES * _parts(chunks))

        def products(row: Any) -> Any:
            """Return LANES sums, which add up to the dot product with a row."""
            first, sums = builder.mul(row, width), ir.Constant(_FLOATS, [0.0] * LANES)
            for place, part in zip(places, parts, strict=True):
                values = _load(builder, rows, builder.add(first, place), kind)
                sums = _multiply_add(builder, values, part, sums)
            return sums

        one, four = (ir.Constant(count.type, number) for number in (1, 4))
        whole = builder.and_(count, ir.Constant(count.type, -4))
        with cgutils.for_range_slice(builder, zero, whole, four, inc=True) as (row, _):
            others = [builder.add(row, ir.Constant(count.type, number)) for number in range(4)]
            totals = _four_totals(builder, [products(other) for other in others])
            builder.store(totals, _at(builder, out, row, 4, totals.type)).align = 4
        with cgutils.for_range_slice(builder, whole, count, one, inc=True) as (row, _):
            builder.store(_total(builder, products(row)), _at(builder, out, row, 4, _FLOAT))
        return context.get_dummy_value()

    return types.void(kind, chunks, query, rows, count, out), generate


@intrinsic
def _add_rows(_: Any, kind: Any, chunks: Any, weights: Any, rows: Any, count: Any, out: Any) -> Any:
    """Add `count` weighted rows to `out`; addresses, of weights and of `out` of float32."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, _, weights, rows, count, out = arguments
        zero = ir.Constant(count.type, 0)
        places = [ir.Constant(count.type, LANES * part) for part in range(_parts(chunks))]
        sums = [
            cgutils.alloca_once_value(builder, _load(builder, out, place, types.float32))  # type: ignore[no-untyped-call]
            for place in places
        ]
        unused = ir.Constant(_FLOATS, ir.Undefined)
        width = ir.Constant(count.type, LANES * _parts(chunks))
        with cgutils.for_range_slice(
            builder, zero, count, ir.Constant(count.type, 1), inc=True
        ) as (row, _):
            first = builder.mul(row, width)
            weight = builder.load(_at(builder, weights, row, 4, _FLOAT))
            one = builder.insert_element(unused, weight, ir.Constant(_INT32, 0))
            every = builder.shuffle_vector(one, unused, ir.Constant(_INTS, [0] * LANES))
            for place, held in zip(places, sums, strict=True):
                values = _load(builder, rows, builder.add(first, place), kind)
                total = _multiply_add(builder, values, every, builder.load(held))
                builder.store(total, held)
        for place, held in zip(places, sums, strict=True):
            builder.store(builder.load(held), _at(builder, out, place, 4, _FLOATS)).align = 4
        return context.get_dummy_value()

    return types.void(kind, chunks, weights, rows, count, out), generate


@intrinsic
def _fetch(_: Any, address: Any, count: Any) -> Any:
    """Fetch bytes at an address into the cache, in the background."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        address, count = arguments
        zero, line = (ir.Constant(count.type, number) for number in (0, _LINE))
        with cgutils.for_range_slice(builder, zero, count, line, inc=True) as (place, _):
            pointer = builder.inttoptr(builder.add(address, place), ir.IntType(8).as_pointer())
            prefetch(builder, pointer)
        return context.get_dummy_value()

    return types.void(address, count), generate


@intrinsic
def _as_float(_: Any, bits: Any) -> Any:  # noqa: ARG001 - int32
    """Return the float32 of these bits."""

    def generate(_c: Any, builder: Any, _s: Any, values: Any) -> Any:
        return builder.bitcast(values[0], _FLOAT)

    return types.float32(types.int32), generate


@njit(inline="always", **FAST)
def exp2(exponent):  # type: ignore[no-untyped-def]
    """Return 2 to an exponent of at most 0, to 3e-7 of it; 2**-126 below."""
    exponent = max(exponent, np.float32(-126))
    whole = np.floor(exponent)
    part = exponent - whole
    power = np.float32(1.8775767e-3)
    power = power * part + np.float32(8.9893397e-3)
    power = power * part + np.float32(5.5826318e-2)
    power = power * part + np.float32(2.4015361e-1)
    power = power * part + np.float32(6.9315308e-1)
    power = power * part + np.float32(1)
    return power * _as_float((np.int32(whole) + np.int32(127)) << np.int32(23))  # type: ignore[call-arg]


@njit(inline="always", **FAST)
def _weigh(products, scale):  # type: ignore[no-untyped-def]
    """Replace products of query and keys with unnormalised weights; return their sum."""
    largest = products[0]
    for column in range(len(products)):
        largest = max(largest, products[column])
    total = np.float32(0)
    for column in range(len(products)):
        products[column] = exp2((products[column] - largest) * scale)
        total += products[column]
    return total


@kernel
def attend(chunks, queries, keys, values, own_keys, own_values, rows, order, scale, out):  # type: ignore[no-untyped-def]
    """Store each row's new key and value among its own, then compute its attention.

    Args:
        chunks: a tuple of as many numbers as LANES fit into the size of a head.
        queries: # (rows, heads, size)
        keys, values: those of the new token. # (rows, kv heads, size)
        own_keys, own_values: those of the row's own tokens. # (rows, kv heads, width, size)
        rows: int64 table of the columns above. # (rows, ROW_FIELDS)
        order: the rows to compute; those that share a prompt stand together, so that it is read
            from a near cache. What the next one reads is fetched in the meantime.
        scale: of products of query and key, times log2(e).
        out: float32 output. # (rows, heads, size)
    """
    kind, size = queries[0, 0, 0], queries.shape[2]
    heads, item = keys.shape[1], keys.itemsize
    together = queries.shape[1] // heads  # query heads that read one head of keys
    step = own_keys.shape[2] * size * item
    weights = np.empty(rows[:, PROMPT_TOKENS].max() + own_keys.shape[2], np.float32)
    for number, row in enumerate(order):
        prompt, own = rows[row, PROMPT_TOKENS], rows[row, OWN_TOKENS]
        after = order[min(number + 1, len(order) - 1)]
        own_bytes = rows[after, OWN_TOKENS] * size * item
        is_new = rows[after, PROMPT_KEYS] != rows[row, PROMPT_KEYS]
        prompt_bytes = rows[after, PROMPT_TOKENS] * size * item if is_new else 0
        mine = weights.ctypes.data + 4 * prompt
        for head in range(heads):
            place, shift = (after * heads + head) * step, head * rows[after, HEAD_BYTES]
            _fetch(own_keys.ctypes.data + place, own_bytes)  # type: ignore[call-arg]
            _fetch(own_values.ctypes.data + place, own_bytes)
            _fetch(rows[after, PROMPT_KEYS] + shift, prompt_bytes)
            _fetch(rows[after, PROMPT_VALUES] + shift, prompt_bytes)
            own_keys[row, head, own] = keys[row, head]
            own_values[row, head, own] = values[row, head]
            place, shift = (row * heads + head) * step, head * rows[row, HEAD_BYTES]
            prompt_keys = rows[row, PROMPT_KEYS] + shift
            prompt_values = rows[row, PROMPT_VALUES] + shift
            for one in range(head * together, (head + 1) * together):
                at = (row * queries.shape[1] + one) * size
                query, target = queries.ctypes.data + at * item, out.ctypes.data + at * 4
                _dot_rows(kind, chunks, query, prompt_keys, prompt, weights.ctypes.data)
                _dot_rows(kind, chunks, query, own_keys.ctypes.data + place, own + 1, mine)
                total = _weigh(weights[: prompt + own + 1], scale)
                out[row, one] = 0
                _add_rows(kind, chunks, weights.ctypes.data, prompt_values, prompt, target)
                _add_rows(kind, chunks, mine, own_values.ctypes.data + place, own + 1, target)
                for column in range(size):
                    out[row, one, column] /= total


@kernel
def attend_spans(chunks, queries, keys, values, spans, first, head, scale, weights, out):  # type: ignore[no-untyped-def]
    """Compute the attention of each row to spans of consecutive tokens.

    Args:
        chunks: an array of as many dimensions as LANES fit into the size of a head.
        queries: # (rows, heads, size)
        keys, values: all that are kept. # (any, size)
        spans: int64 index in `keys` of the first token for head 0, and tokens. # (spans, 2)
        first: int64 first span of each row, and the end. # (rows + 1,)
        head: index in `keys` from one head to the next.
        scale: of products of query and key, times log2(e).
        weights: float32, overwritten. # (at least tokens of a row,)
        out: float32 output. # (rows, heads, size)
    """
    kind, size, item = queries[0, 0, 0], queries.shape[2], keys.itemsize
    for row in range(queries.shape[0]):
        for one in range(queries.shape[1]):
            query = queries.ctypes.data + (row * queries.shape[1] + one) * size * item
            target = out.ctypes.data + (row * queries.shape[1] + one) * size * 4
            tokens = 0
            for span in range(first[row], first[row + 1]):
                place = keys.ctypes.data + (spans[span, 0] + one * head) * size * item
                to = weights.ctypes.data + 4 * tokens
                _dot_rows(kind, chunks, query, place, spans[span, 1], to)  # type: ignore[call-arg]
                tokens += spans[span, 1]
            total = _weigh(weights[:tokens], np.float32(scale))
            out[row, one] = 0
            tokens = 0
            for span in range(first[row], first[row + 1]):
                place = values.ctypes.data + (spans[span, 0] + one * head) * size * item
                of = weights.ctypes.data + 4 * tokens
                _add_rows(kind, chunks, of, place, spans[span, 1], target)  # type: ignore[call-arg]
                tokens += spans[span, 1]
            for column in range(size):
                out[row, one, column] /= total
