"""Compute similarities of codes with queries in compiled kernels and keep the best values.

One pass over the codes serves all queries, so memory bandwidth is the limit. Kernels are compiled
at first use, cached by numba, and release the GIL.

Numba does not vectorise sums of products of small integers, so these are written in LLVM IR:
adding neighbouring products in pairs is one x86 instruction with the multiplication. They stay in
this file because numba recompiles a cached function only when its own file changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.bank.settings import LANES
from tilth.models.kernels import LINE, fetch, kernel, prefetch

# Rows whose sums are computed together.
ROWS = 4
# Codes and signs are fetched into the cache by lines: those that follow each other so many bytes
# ahead, since processors stop at the end of a page, scattered rows so many times ROWS rows ahead.
_BYTES_AHEAD, _AHEAD = 8192, 4
# Rows that are rescored are fetched so many pairs ahead.
_PAIRS_AHEAD = 4
# Values compared with their floors together, before single ones.
_STRETCH = 64

# Codes of a row multiplied together: as many as one register of products holds.
_STEP = 32 if get_host_cpu_features().get("avx512bw") else 16

# Sentences whose signs are compared together, and bits of a query's level: of `quantization`.
GROUP, _BITS = 8, 4

_INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
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
    products = builder.mul(codes, builder.sext(values, codes.type))
    even, odd = (
        _shuffled(builder, products, products, list(range(first, codes.type.count, 2)))
        for first in (0, 1)
    )
    return builder.add(even, odd)


def _total(builder: Any, sums: Any) -> Any:
    name = f"llvm.vector.reduce.add.v{LANES // 2}i32"
    kind = ir.FunctionType(_INT32, [_PAIRS])
    total = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(total, [sums])


def _row_sums(many: int, rows_are: Literal["far", "near", "scattered"]) -> Callable[..., Any]:
    """Make the kernel that multiplies ROWS rows of 8-bit codes with one or two queries.

    Args:
        rows_are: scattered ones are numbers of an array, others follow each other; near ones are
            in a cache, others are read from memory.
    """
    bytes_, values_ = ir.VectorType(_INT8, _STEP), ir.VectorType(_INT16, _STEP)
    none = ir.Constant(ir.VectorType(_INT32, _STEP // 2), [0] * (_STEP // 2))

    @intrinsic
    def row_sums(
        _: Any, codes: Any, rows: Any, row: Any, queries: Any, query: Any, sums: Any
    ) -> Any:
        signature = types.void(codes, rows, row, queries, query, sums)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            codes, queries, out = (
                context.make_array(signature.args[place])(context, builder, arguments[place])
                for place in (0, 3, 5)
            )
            width = builder.extract_value(codes.shape, 1)

            def start(array: Any, number: Any, more: int) -> Any:
                length = builder.extract_value(array.shape, 1)
                place = builder.add(number, ir.Constant(number.type, more))
                return builder.gep(array.data, [builder.mul(place, length)])

            def rows_from(more: int) -> list[Any]:
                first = builder.add(arguments[2], ir.Constant(arguments[2].type, more))
                if rows_are != "scattered":
                    return [start(codes, first, number) for number in range(ROWS)]
                numbers = context.make_array(signature.args[1])(context, builder, arguments[1]).data
                places = (ir.Constant(first.type, number) for number in range(ROWS))
                each = [builder.gep(numbers, [builder.add(first, place)]) for place in places]
                return [start(codes, builder.load(place), 0) for place in each]

            pointers = rows_from(0)
            asked = [start(queries, arguments[4], more) for more in range(many)]
            totals = [[cgutils.alloca_once_value(builder, none) for _ in pointers] for _ in asked]  # type: ignore[no-untyped-call]
            zero, step = ir.Constant(width.type, 0), ir.Constant(width.type, _STEP)
            line = ir.Constant(width.type, LINE)
            lines = builder.and_(width, ir.Constant(width.type, -LINE))

            def add(numbers: Sequence[int], place: Any) -> None:
                values = [_load(builder, query, place, values_) for query in asked]
                for number in numbers:
                    code = _load(builder, pointers[number], place, bytes_)
                    wide = builder.sext(code, ir.VectorType(_INT32, _STEP))
                    for own, value in zip(totals, values, strict=True):
                        found = builder.load(own[number])
                        found = builder.add(found, _pair_sums(builder, wide, value))
                        builder.store(found, own[number])

            ahead: list[Any] = []
            if rows_are == "scattered":
                ahead = rows_from(ROWS * _AHEAD)
            elif rows_are == "far":
                far = ir.Constant(width.type, _BYTES_AHEAD)
                ahead = [builder.gep(pointer, [far]) for pointer in pointers]
            for number, pointer in enumerate(ahead):  # row by row, as memory is read fastest
                with cgutils.for_range_slice(builder, zero, lines, line, inc=True) as (place, _):
                    prefetch(builder, builder.gep(pointer, [place]), near=rows_are == "scattered")
                    for more in range(0, LINE, _STEP):
                        add([number], builder.add(place, ir.Constant(place.type, more)))
                with cgutils.for_range_slice(builder, lines, width, step, inc=True) as (place, _):
                    add([number], place)
            if not ahead:
                with cgutils.for_range_slice(builder, zero, width, step, inc=True) as (place, _):
                    add(range(ROWS), place)
            for more, own in enumerate(totals):
                found = _totals(builder, [builder.load(total) for total in own])
                into = builder.gep(start(out, arguments[4], more), [arguments[2]])
                builder.store(found, builder.bitcast(into, found.type.as_pointer()), align=4)
            return context.get_dummy_value()

        return signature, generate

    return row_sums


def _totals(builder: Any, sums: list[Any]) -> Any:
    """Return the sums of four vectors, as a vector."""
    groups = range(0, sums[0].type.count, 4)
    # Neighbours of each group of four are added, those of two vectors by one x86 instruction.
    places = [group + place for group in groups for place in (0, 2, 0, 2)]
    places = [place + sums[0].type.count * (number % 4 > 1) for number, place in enumerate(places)]
    while len(sums) > 1:
        sums = [
            builder.add(
                *(_shuffled(builder, one, two, [place + odd for place in places]) for odd in (0, 1))
            )
            for one, two in zip(sums[::2], sums[1::2], strict=True)
        ]
    (found,) = sums
    total, *others = (
        _shuffled(builder, found, found, list(range(group, group + 4))) for group in groups
    )
    for other in others:
        total = builder.add(total, other)
    return total


def _shuffled(builder: Any, one: Any, two: Any, places: list[int]) -> Any:
    kind = ir.VectorType(_INT32, len(places))
    return builder.shuffle_vector(one, two, ir.Constant(kind, places))


sums_of_one, sums_of_two = _row_sums(1, "far"), _row_sums(2, "far")
one_more_sum, two_more_sums = _row_sums(1, "near"), _row_sums(2, "near")
sums_of_scattered = _row_sums(1, "scattered")
"""(codes, numbers of rows, first of ROWS rows, queries, first of one or two queries, output): int32
sums, # (queries, rows). Scattered rows are found by their numbers, of which ROWS * (_AHEAD + 1)
more are read ahead; others follow each other."""


def _sign_sums(
    _: Any, signs: Any, group: Any, planes: Any, query: Any, sums: Any, place: Any
) -> Any:
    """Add the levels of a query where the bits of a group of sentences are set."""
    signature = types.void(signs, group, planes, query, sums, place)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        signs, planes, out = (
            context.make_array(signature.args[number])(context, builder, arguments[number])
            for number in (0, 2, 4)
        )
        width = builder.extract_value(signs.shape, 1)
        kind = ir.VectorType(_INT64, GROUP)
        zero, step, far = (
            ir.Constant(width.type, number) for number in (0, GROUP, _BYTES_AHEAD // 8)
        )
        none = ir.Constant(kind, [0] * GROUP)
        first = ir.Constant(ir.VectorType(_INT32, GROUP), [0] * GROUP)
        ones = ir.FunctionType(kind, [kind])
        count = cgutils.get_or_insert_function(builder.module, ones, f"llvm.ctpop.v{GROUP}i64")  # type: ignore[no-untyped-call]
        totals = [cgutils.alloca_once_value(builder, none) for _ in range(_BITS)]  # type: ignore[no-untyped-call]
        row = builder.gep(signs.data, [builder.mul(width, arguments[1])])
        many = builder.extract_value(planes.shape, 1)
        asked = builder.gep(planes.data, [builder.mul(many, arguments[3])])
        with cgutils.for_range_slice(builder, zero, width, step, inc=True) as (at, _):
            later = builder.gep(row, [builder.add(at, far)])
            prefetch(builder, builder.bitcast(later, _INT8.as_pointer()), near=False)
            bits = _load(builder, row, at, kind)
            word = builder.udiv(at, ir.Constant(width.type, GROUP // _BITS))
            for number, total in enumerate(totals):
                plane = builder.gep(asked, [builder.add(word, ir.Constant(word.type, number))])
                one = builder.insert_element(none, builder.load(plane), ir.Constant(_INT32, 0))
                counts = builder.call(
                    count, [builder.and_(bits, builder.shuffle_vector(one, none, first))]
                )
                builder.store(builder.add(builder.load(total), counts), total)
        found = none
        for number, total in enumerate(totals):
            shift = ir.Constant(kind, [number] * GROUP)
            change = builder.sub if number == _BITS - 1 else builder.add
            found = change(found, builder.shl(builder.load(total), shift))
        found = builder.trunc(found, ir.VectorType(_INT32, GROUP))
        room = builder.mul(builder.extract_value(out.shape, 1), arguments[3])
        into = builder.gep(out.data, [builder.add(room, arguments[5])])
        builder.store(found, builder.bitcast(into, found.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, generate


sign_sums: Any = intrinsic(_sign_sums)

two_sums_of_bytes = _two_sums(8)
two_sums_of_fours = _two_sums(4)
two_sums_of_twos = _two_sums(2)
"""(codes of a row, query, query) -> two sums. Codes: uint8, # (bytes,); queries: int16,
# (bytes * codes in a byte,)."""


@kernel
def _least_of(values, place):  # type: ignore[no-untyped-def]
    """Return what would stand at a place if values were sorted; reorder them."""
    low, high = 0, values.shape[0] - 1
    while low < high:  # quickselect (Hoare 1961)
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return values[place]


@kernel
def _keep_best(values, ids, best, spare):  # type: ignore[no-untyped-def]
    """Move the best values of a full buffer to its front, in order; return the least."""
    # Of equal values the first stay: they have the lowest ids, as rows come in order.
    room = values.shape[0]
    for place in range(room):
        spare[place] = values[place]
    floor = _least_of(spare[:room], room - best)
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
def _make_room(most, best, floors, values, ids, counts, spare):  # type: ignore[no-untyped-def]
    """Make room for `most` more values of every query and raise the floors."""
    for query in range(counts.shape[0]):
        count = counts[query]
        if count + most > values.shape[1]:
            floor = _keep_best(values[query, :count], ids[query, :count], best, spare)
            counts[query] = best
            if floor > floors[query]:
                floors[query] = floor


@kernel
def _int8_sums(codes, queries, sums):  # type: ignore[no-untyped-def]
    """Compute the sums of a tile's rows, two queries at a time."""
    many = queries.shape[0]
    together = codes.shape[0] // ROWS * ROWS
    for row in range(0, together, ROWS):
        if many == 1:
            sums_of_one(codes, None, row, queries, 0, sums)
        else:
            sums_of_two(codes, None, row, queries, 0, sums)
    for query in range(2, many - 1, 2):
        for row in range(0, together, ROWS):
            two_more_sums(codes, None, row, queries, query, sums)
    if many % 2 and many > 1:
        for row in range(0, together, ROWS):
            one_more_sum(codes, None, row, queries, many - 1, sums)
    for row in range(together, codes.shape[0]):
        for query in range(many):
            sums[query, row], _ = two_sums_of_bytes(codes[row], queries[query], queries[query])


@kernel
def _middles(query, dims_4bit):  # type: ignore[no-untyped-def]
    return np.float32(7.5 * query[:dims_4bit].sum()), np.float32(1.5 * query[dims_4bit:].sum())


@kernel
def _compact_values(codes, scales, queries, dims_4bit, values):  # type: ignore[no-untyped-def]
    """Compute the values of a tile's rows, two queries at a time."""
    half = dims_4bit // 2
    for query in range(0, queries.shape[0], 2):
        other = min(query + 1, queries.shape[0] - 1)
        one, two = queries[query], queries[other]
        # Levels are numbered from 0; the values are centred on 0.
        middle_4, middle_2 = _middles(one, dims_4bit)
        other_4, other_2 = _middles(two, dims_4bit)
        for row in range(codes.shape[0]):
            code, scale = codes[row], scales[row]
            first, second = two_sums_of_fours(code[:half], one[:dims_4bit], two[:dims_4bit])
            third, fourth = two_sums_of_twos(code[half:], one[dims_4bit:], two[dims_4bit:])
            value = (np.float32(first) - middle_4) * scale[0]
            values[query, row] = value + (np.float32(third) - middle_2) * scale[1]
            value = (np.float32(second) - other_4) * scale[0]
            values[other, row] = value + (np.float32(fourth) - other_2) * scale[1]


@kernel
def scan(  # type: ignore[no-untyped-def]
    codes, scales, queries, dims_4bit, first, piece, step, best, floors, values, ids, counts, spare,
    sums, tile,
):  # fmt: skip
    """Gather the best values of rows; a value is a similarity before steps and offsets.

    Args:
        codes: uint8; width a multiple of LANES. # (rows, bytes)
        scales: float32. # (rows, groups)
        queries: int16. # (queries, dimensions)
        dims_4bit: 4-bit dimensions of compact codes; -1 for int8.
        first: id of row 0; calls come in ascending order.
        piece: rows compared together, at most those of a tile.
        step: rows from one piece to the next; more than `piece` for a sample.
        floors: float32 thresholds, raised in place. # (queries,)
        values: float32 output; room at least best and a tile. # (queries, room)
        ids: int64 output. # (queries, room)
        counts: int64 number of filled values. # (queries,)
        spare: float32 work space. # (room,)
        sums: int32 work space. # (queries, rows of a tile)
        tile: float32 work space. # (queries, rows of a tile)
    """
    many = queries.shape[0]
    for start in range(0, codes.shape[0], step):
        stop = min(start + piece, codes.shape[0])
        some = scales[start:stop]
        if dims_4bit < 0:
            _int8_sums(codes[start:stop], queries, sums)
        else:
            _compact_values(codes[start:stop], some, queries, dims_4bit, tile)
        _make_room(tile.shape[1], best, floors, values, ids, counts, spare)
        for query in range(many):
            if dims_4bit < 0:
                for row in range(stop - start):
                    tile[query, row] = np.float32(sums[query, row]) * some[row, 0]
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
def _may_be_near(sums, scales, start, stop, shift, least, rows):  # type: ignore[no-untyped-def]
    """Gather the rows of a tile that may reach the least value; return their number."""
    count = 0
    for begin in range(start, stop, _STRETCH):
        end = min(begin + _STRETCH, stop)
        passing = np.int32(0)
        for row in range(begin, end):
            passing += np.int32(scales[row, 0] * (np.float32(sums[row - start]) + shift) >= least)
        if passing == 0:
            continue
        for row in range(begin, end):  # without a branch: which ones pass cannot be predicted
            rows[count] = row
            count += scales[row, 0] * (np.float32(sums[row - start]) + shift) >= least
    return count


@kernel
def scan_by_signs(  # type: ignore[no-untyped-def]
    signs, sign_scales, codes, scales, planes, shifts, leasts, queries, first, best, floors, values,
    ids, counts, spare, sums, rows, picked,
):  # fmt: skip
    """Gather the best values of the rows that by their signs may reach a query's least value.

    Args:
        signs: uint64. # (groups, words * GROUP)
        sign_scales: float32. # (rows, 1)
        codes, scales: of int8, as in `scan`.
        planes: uint64. # (queries, words * bits)
        shifts, leasts: float32, in the units of the planes. # (queries,)
        queries, first, best, floors, values, ids, counts, spare: as in `scan`.
        sums: int32 work space. # (queries, rows of a tile)
        rows: int64 work space, numbers of rows. # (rows of a tile + ROWS * (_AHEAD + 1),)
        picked: int64 number of rows whose codes were read, counted up. # (1,)
    """
    most = sums.shape[1]
    for start in range(0, codes.shape[0], most):
        stop = min(start + most, codes.shape[0])
        _make_room(most, best, floors, values, ids, counts, spare)
        for query in range(queries.shape[0]):
            for place in range(0, stop - start, GROUP):
                sign_sums(signs, (start + place) // GROUP, planes, query, sums, place)
                # Scales are read after the sums of all rows.
                fetch(sign_scales.ctypes.data + 4 * (start + place), 4 * GROUP)  # type: ignore[call-arg]
            count = _may_be_near(
                sums[query], sign_scales, start, stop, shifts[query], leasts[query], rows
            )
            picked[0] += count
            for place in range(count, -(-count // ROWS) * ROWS):
                rows[place] = rows[count - 1]
            for place in range(0, count, ROWS):
                sums_of_scattered(codes, rows, place, queries, query, sums)
            kept, floor = counts[query], floors[query]
            for place in range(count):
                value = np.float32(sums[query, place]) * scales[rows[place], 0]
                if value >= floor:
                    values[query, kept], ids[query, kept] = value, first + rows[place]
                    kept += 1
            counts[query] = kept


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
    spare = np.empty(values.shape[1], np.float32)
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
                    least = _keep_best(values[query], ids[query], best, spare)
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
    half, last = residual.shape[1], rows.shape[0] - 1
    low, up = np.uint8(15), np.uint8(4)
    for pair in range(rows.shape[0]):
        later = rows[min(pair + _PAIRS_AHEAD, last)]
        fetch(codes.ctypes.data + later * codes.strides[0], codes.strides[0])  # type: ignore[call-arg]
        fetch(residual.ctypes.data + later * half, half)
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
