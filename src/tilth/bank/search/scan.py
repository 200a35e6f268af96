"""Compute similarities of codes with queries in compiled kernels and keep the best values.

One pass over the codes serves all queries, so memory bandwidth is the limit. Kernels are compiled
at first use, cached by numba, and release the GIL.

Numba does not vectorise sums of products of small integers, so these are written in LLVM IR:
adding neighbouring products in pairs is one x86 instruction with the multiplication. They stay in
this file because numba recompiles a cached function only when its own file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.bank.settings import LANES
from tilth.models.kernels import kernel

# Rows whose sums stay in the nearest cache until they are compared.
TILE = 512
# Values compared with their floors together, before single ones.
_STRETCH = 64

_INT8, _INT16, _INT32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
_BYTES, _WIDE = ir.VectorType(_INT8, LANES), ir.VectorType(_INT32, LANES)
_PAIRS = ir.VectorType(_INT32, LANES // 2)


def _two_sums(bits: int) -> Callable[..., Any]:
    """Make the kernel that multiplies codes of 8 (signed), 4 or 2 bits with two queries."""
    parts = 8 // bits  # of a row; all first parts stand in the lowest bits of its bytes, and so on

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
    """Return the codes of a part of the row as 32-bit integers."""
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


@kernel
def _keep_best(values, ids, best):  # type: ignore[no-untyped-def]
    """Move the best values of a full buffer to its front, in order; return the least."""
    # Of equal values the first stay: they have the lowest ids, as rows come in order.
    room = values.shape[0]
    floor = np.partition(values, room - best)[room - best]
    above = 0
    for place in range(room):
        above += values[place] > floor
    equal, kept = best - above, 0
    for place in range(room):
        if values[place] > floor or (values[place] == floor and equal > 0):
            equal -= values[place] == floor
            values[kept], ids[kept] = values[place], ids[place]
            kept += 1
    return floor


@kernel
def _make_room(most, best, floors, values, ids, counts):  # type: ignore[no-untyped-def]
    """Make room for `most` more values of every query and raise the floors."""
    for query in range(counts.shape[0]):
        count = counts[query]
        if count + most > values.shape[1]:
            floor = _keep_best(values[query, :count], ids[query, :count], best)
            counts[query] = best
            if floor > floors[query]:
                floors[query] = floor


@kernel
def _values_of(codes, scales, queries, dims_4bit, middles, values):  # type: ignore[no-untyped-def]
    """Compute the values of a tile's rows, two queries at a time."""
    for row in range(codes.shape[0]):
        code, scale = codes[row], scales[row]
        for query in range(0, queries.shape[0], 2):
            one, two = queries[query], queries[query + 1]
            if dims_4bit < 0:
                first, second = two_sums_of_bytes(code, one, two)
                values[query, row] = np.float32(first) * scale[0]
                values[query + 1, row] = np.float32(second) * scale[0]
            else:
                half = dims_4bit // 2
                first, second = two_sums_of_fours(code[:half], one[:dims_4bit], two[:dims_4bit])
                third, fourth = two_sums_of_twos(code[half:], one[dims_4bit:], two[dims_4bit:])
                value = (np.float32(first) - middles[query, 0]) * scale[0]
                values[query, row] = value + (np.float32(third) - middles[query, 1]) * scale[1]
                query += 1
                value = (np.float32(second) - middles[query, 0]) * scale[0]
                values[query, row] = value + (np.float32(fourth) - middles[query, 1]) * scale[1]


@kernel
def scan(  # type: ignore[no-untyped-def]
    codes, scales, queries, dims_4bit, first, piece, step, best, floors, values, ids, counts
):
    """Gather the best values of rows; a value is a similarity before steps and offsets.

    Args:
        codes: uint8; width a multiple of LANES. # (rows, bytes)
        scales: float32. # (rows, groups)
        queries: int16; an even number. # (queries, dimensions)
        dims_4bit: 4-bit dimensions of compact codes; -1 for int8.
        first: id of row 0; calls come in ascending order.
        piece: rows compared together, at most TILE.
        step: rows from one piece to the next; more than `piece` for a sample.
        floors: float32 thresholds, raised in place. # (queries,)
        values: float32 output; room at least best + TILE. # (queries, room)
        ids: int64 output. # (queries, room)
        counts: int64 number of filled values. # (queries,)
    """
    many = queries.shape[0]
    tile = np.empty((many, TILE), np.float32)
    # Compact levels are numbered from 0; their values are centred on 0.
    middles = np.zeros((many, 2), np.float32)
    if dims_4bit >= 0:
        for query in range(many):
            middles[query, 0] = np.float32(7.5) * queries[query, :dims_4bit].sum()
            middles[query, 1] = np.float32(1.5) * queries[query, dims_4bit:].sum()
    for start in range(0, codes.shape[0], step):
        stop = min(start + piece, codes.shape[0])
        _values_of(codes[start:stop], scales[start:stop], queries, dims_4bit, middles, tile)
        _make_room(TILE, best, floors, values, ids, counts)
        for query in range(many):
            count, floor = counts[query], floors[query]
            for begin in range(0, stop - start, _STRETCH):
                stretch = tile[query, begin : min(begin + _STRETCH, stop - start)]
                passing = np.int32(0)
                for place in range(stretch.shape[0]):
                    passing += np.int32(stretch[place] >= floor)
                if passing == 0:  # mostly
                    continue
                for place in range(stretch.shape[0]):
                    if stretch[place] >= floor:
                        values[query, count] = stretch[place]
                        ids[query, count] = first + start + begin + place
                        count += 1
            counts[query] = count


@kernel
def gather(products, others, scales, first, best, floors, values, ids, counts):  # type: ignore[no-untyped-def]
    """Gather the best values of rows from their products with many queries.

    Args:
        products: int32; padding columns have a floor of infinity. # (rows, columns)
        others: products of a second group of codes, or None. # (rows, columns)
        scales: float32. # (rows, groups)
        values: as in `scan`, with room of at least best + 1. # (queries, room)
    """
    rows, many = products.shape
    stretch = np.empty(_STRETCH, np.float32)
    for row in range(rows):
        scale = scales[row]
        for begin in range(0, many, _STRETCH):
            one = products[row, begin : begin + _STRETCH]
            floor = floors[begin : begin + _STRETCH]
            passing = np.int32(0)
            if others is None:
                for place in range(one.shape[0]):
                    value = np.float32(one[place]) * scale[0]
                    stretch[place] = value
                    passing += np.int32(value >= floor[place])
            else:
                two = others[row, begin : begin + _STRETCH]
                for place in range(one.shape[0]):
                    value = np.float32(one[place]) * scale[0]
                    value += np.float32(two[place]) * scale[1]
                    stretch[place] = value
                    passing += np.int32(value >= floor[place])
            if passing == 0:  # nearly always
                continue
            for place in range(one.shape[0]):
                query = begin + place
                if stretch[place] < floors[query]:
                    continue
                if counts[query] == values.shape[1]:
                    least = _keep_best(values[query], ids[query], best)
                    counts[query] = best
                    floors[query] = max(floors[query], least)
                    if stretch[place] < floors[query]:
                        continue
                values[query, counts[query]] = stretch[place]
                ids[query, counts[query]] = first + row
                counts[query] += 1


@kernel
def rescore_int8(codes, residual, scales, rows, owners, queries, similarities):  # type: ignore[no-untyped-def]
    """Compute similarities of pairs of a row and a query from all bits.

    Args:
        codes: int8. # (rows of the shard, dimensions)
        residual: uint8; four more bits, the first half of the dimensions in the low ones.
            # (rows of the shard, dimensions / 2)
        scales: float32. # (pairs,)
        rows: int64 row of each pair. # (pairs,)
        owners: int64 query of each pair. # (pairs,)
        queries: float32, rotated. # (queries, dimensions)
        similarities: float32 output, without the queries' offsets. # (pairs,)
    """
    half = residual.shape[1]
    low, up = np.uint8(15), np.uint8(4)
    for pair in range(rows.shape[0]):
        code, rest, query = codes[rows[pair]], residual[rows[pair]], queries[owners[pair]]
        first, second = query[:half], query[half:]
        coarse, finer, middle = np.float32(0), np.float32(0), np.float32(0)
        for place in range(code.shape[0]):
            coarse += np.float32(code[place]) * query[place]
            middle += query[place]
        for place in range(half):
            finer += np.float32(rest[place] & low) * first[place]
            finer += np.float32(rest[place] >> up) * second[place]
        finer = (finer - np.float32(7.5) * middle) / np.float32(16)
        similarities[pair] = (coarse + finer) * scales[pair]
