"""Compute attention of one query per row in compiled kernels, on processors.

`attend` reads a row's keys and values in two places: those of its prompt, which many rows read
where they are, and those of its own tokens. `attend_spans` reads them in any number of places.
Each is read as far as it is filled.

Numba keeps no sums in registers over a loop on rows of memory, so these loops are written in LLVM
IR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import (
    HEAD_BYTES,
    KEYS,
    LANES,
    OWN_TOKENS,
    TOKENS,
    VALUES,
    WIDTH,
)
from tilth.models.kernels import fetch, kernel
from tilth.models.vector_code import (
    FLOAT,
    INT32,
    at,
    call,
    floats,
    load_floats,
    mask,
    over_lanes,
    softmax,
    spread,
    store,
)


def _four_totals(builder: Any, sums: list[Any]) -> Any:
    """Return the sums of four vectors' values, added by pairs, fours and halves."""
    lanes = sums[0].type.count

    def added(together: int, one: Any, two: Any) -> Any:
        """Add neighbours: the first of each pair, or pair of pairs, to the second."""
        firsts = [lane for lane in range(lanes) if not lane & together]
        groups = [firsts[place : place + together] for place in range(0, len(firsts), together)]
        parts = [
            [lane + shift + side for group in groups for side in (0, lanes) for lane in group]
            for shift in (0, together)
        ]
        return builder.fadd(*(builder.shuffle_vector(one, two, mask(part)) for part in parts))

    found = added(2, added(1, *sums[:2]), added(1, *sums[2:]))
    while found.type.count > 4:
        half = found.type.count // 2
        halves = mask(list(range(half))), mask(list(range(half, 2 * half)))
        found = builder.fadd(*(builder.shuffle_vector(found, found, some) for some in halves))
    return found


def _places(chunks: Any, integer: Any) -> tuple[int, list[Any], Any]:
    """Return the lanes of vectors, where they begin in a head, and the size of a head.

    The type of `chunks` says how often LANES fit into it.
    """
    lanes = LANES if chunks.ndim % 2 else 2 * LANES
    size = LANES * chunks.ndim
    numbers = [ir.Constant(integer, place) for place in range(0, size, lanes)]
    return lanes, numbers, ir.Constant(integer, size)


@intrinsic
def _dot_rows(_: Any, kind: Any, chunks: Any, query: Any, rows: Any, count: Any, out: Any) -> Any:
    """Write the dot products of a query with `count` rows; addresses, the last of float32."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, _, query, rows, count, out = arguments
        lanes, places, size = _places(chunks, count.type)
        parts = [load_floats(builder, query, place, kind, lanes) for place in places]

        def products(row: Any) -> Any:
            """Return a vector whose values add up to the dot product with a row."""
            first, sums = builder.mul(row, size), floats(lanes, 0.0)
            for place, part in zip(places, parts, strict=True):
                values = load_floats(builder, rows, builder.add(first, place), kind, lanes)
                sums = call(builder, "fma", values, part, sums)
            return sums

        zero, one, four = (ir.Constant(count.type, number) for number in (0, 1, 4))
        whole = builder.and_(count, ir.Constant(count.type, -4))
        with cgutils.for_range_slice(builder, zero, whole, four, inc=True) as (row, _):
            others = [builder.add(row, ir.Constant(count.type, number)) for number in range(4)]
            totals = _four_totals(builder, [products(other) for other in others])
            store(builder, totals, at(builder, out, row, totals.type))
        with cgutils.for_range_slice(builder, whole, count, one, inc=True) as (row, _):
            total = over_lanes(builder, builder.fadd, products(row))
            first = builder.extract_element(total, ir.Constant(INT32, 0))
            builder.store(first, at(builder, out, row, FLOAT))
        return context.get_dummy_value()

    return types.void(kind, chunks, query, rows, count, out), generate


@intrinsic
def _add_rows(_: Any, kind: Any, chunks: Any, weights: Any, rows: Any, count: Any, out: Any) -> Any:
    """Add `count` weighted rows to `out`; addresses, of weights and of `out` of float32."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, _, weights, rows, count, out = arguments
        lanes, places, size = _places(chunks, count.type)
        starts = [load_floats(builder, out, place, types.float32, lanes) for place in places]
        starts += [floats(lanes, 0.0)] * len(places)  # of every second row
        sums = [cgutils.alloca_once_value(builder, start) for start in starts]  # type: ignore[no-untyped-call]

        def add(row: Any, sums: list[Any]) -> None:
            first = builder.mul(row, size)
            weight = spread(builder, builder.load(at(builder, weights, row, FLOAT)), lanes)
            for place, held in zip(places, sums, strict=True):
                values = load_floats(builder, rows, builder.add(first, place), kind, lanes)
                builder.store(call(builder, "fma", values, weight, builder.load(held)), held)

        zero, one, two = (ir.Constant(count.type, number) for number in (0, 1, 2))
        whole, half = builder.and_(count, ir.Constant(count.type, -2)), len(places)
        with cgutils.for_range_slice(builder, zero, whole, two, inc=True) as (row, _):
            add(row, sums[:half])
            add(builder.add(row, one), sums[half:])
        with cgutils.for_range_slice(builder, whole, count, one, inc=True) as (row, _):
            add(row, sums[:half])
        for place, *pair in zip(places, sums[:half], sums[half:], strict=True):
            total = builder.fadd(*map(builder.load, pair))
            store(builder, total, at(builder, out, place, total.type))
        return context.get_dummy_value()

    return types.void(kind, chunks, weights, rows, count, out), generate


@intrinsic
def _weigh(_: Any, products: Any, count: Any, scale: Any) -> Any:
    """Replace `count` products at an address with weights, up to a multiple of WIDTH with 0."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        products, count, scale = arguments
        softmax(builder, [products], [count], scale, WIDTH)
        return context.get_dummy_value()

    return types.void(products, count, scale), generate


@kernel
def attend(chunks, queries, keys, values, own_keys, own_values, rows, order, scale, weights, out):  # type: ignore[no-untyped-def]
    """Store each row's new key and value among its own, then compute its attention.

    Args:
        chunks: an array of as many dimensions as LANES fit into the size of a head.
        queries: # (rows, heads, size)
        keys, values: those of the new token. # (rows, kv heads, size)
        own_keys, own_values: those of the row's own tokens. # (rows, kv heads, width, size)
        rows: int64 table, whose columns are in `kernel_arrays`. # (rows, ROW_FIELDS)
        order: the rows to compute; those that share a prompt stand together, so that it is read
            from a near cache. What the next one reads is fetched in the meantime.
        scale: of products of query and key, times log2(e).
        weights: float32, overwritten. # (at least tokens of a row, rounded up to WIDTH,)
        out: float32 output. # (rows, heads, size)
    """
    kind, size = queries[0, 0, 0], queries.shape[2]
    heads, item = keys.shape[1], keys.itemsize
    together = queries.shape[1] // heads  # query heads that read one head of keys
    step = own_keys.shape[2] * size * item
    factor, shares = np.float32(scale), weights.ctypes.data
    for number, row in enumerate(order):
        prompt, own = rows[row, TOKENS], rows[row, OWN_TOKENS]
        after = order[min(number + 1, len(order) - 1)]
        own_bytes = rows[after, OWN_TOKENS] * size * item
        is_new = rows[after, KEYS] != rows[row, KEYS]
        prompt_bytes = rows[after, TOKENS] * size * item if is_new else 0
        mine = shares + 4 * prompt
        for head in range(heads):
            place, shift = (after * heads + head) * step, head * rows[after, HEAD_BYTES]
            fetch(own_keys.ctypes.data + place, own_bytes)  # type: ignore[call-arg]
            fetch(own_values.ctypes.data + place, own_bytes)
            fetch(rows[after, KEYS] + shift, prompt_bytes)
            fetch(rows[after, VALUES] + shift, prompt_bytes)
            for column in range(size):
                own_keys[row, head, own, column] = keys[row, head, column]
                own_values[row, head, own, column] = values[row, head, column]
            place, shift = (row * heads + head) * step, head * rows[row, HEAD_BYTES]
            prompt_keys = rows[row, KEYS] + shift
            prompt_values = rows[row, VALUES] + shift
            for one in range(head * together, (head + 1) * together):
                first = (row * queries.shape[1] + one) * size
                query, target = queries.ctypes.data + first * item, out.ctypes.data + first * 4
                _dot_rows(kind, chunks, query, prompt_keys, prompt, shares)
                _dot_rows(kind, chunks, query, own_keys.ctypes.data + place, own + 1, mine)
                _weigh(shares, prompt + own + 1, factor)
                out[row, one] = 0
                _add_rows(kind, chunks, shares, prompt_values, prompt, target)
                _add_rows(kind, chunks, mine, own_values.ctypes.data + place, own + 1, target)


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
        weights: float32, overwritten. # (at least tokens of a row, rounded up to WIDTH,)
        out: float32 output. # (rows, heads, size)
    """
    kind, size, item = queries[0, 0, 0], queries.shape[2], keys.itemsize
    factor, shares = np.float32(scale), weights.ctypes.data
    for row in range(queries.shape[0]):
        for one in range(queries.shape[1]):
            query = queries.ctypes.data + (row * queries.shape[1] + one) * size * item
            target = out.ctypes.data + (row * queries.shape[1] + one) * size * 4
            tokens = 0
            for span in range(first[row], first[row + 1]):
                place = keys.ctypes.data + (spans[span, 0] + one * head) * size * item
                to = shares + 4 * tokens
                _dot_rows(kind, chunks, query, place, spans[span, 1], to)  # type: ignore[call-arg]
                tokens += spans[span, 1]
            _weigh(shares, tokens, factor)  # type: ignore[call-arg]
            out[row, one] = 0
            tokens = 0
            for span in range(first[row], first[row + 1]):
                place = values.ctypes.data + (spans[span, 0] + one * head) * size * item
                of = shares + 4 * tokens
                _add_rows(kind, chunks, of, place, spans[span, 1], target)
                tokens += spans[span, 1]
