"""Compute similarities of codes with queries in compiled kernels and keep the best values.

One pass over the codes serves all queries, so memory bandwidth is the limit.

Numba does not vectorise sums of products of small integers, so these are written in LLVM IR:
adding neighbouring products in pairs is one x86 instruction with the multiplication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tilth.bank.settings import GROUP, LANES, LEVEL_BITS, STRETCH
from tilth.models.kernels import LINE, fetch, kernel, prefetch

# Rows whose sums are computed together.
ROWS = 4
# Codes and signs are fetched into the cache by lines: those that follow each other so many bytes
# ahead, since processors stop at the end of a page, those of a sample in the piece that is next,
# scattered rows so many times ROWS rows ahead.
_BYTES_AHEAD, _AHEAD = 8192, 4
# Rows that are rescored are fetched so many pairs ahead.
_PAIRS_AHEAD = 4

# Codes of a row multiplied together: as many as one register of products holds.
_STEP = 32 if get_host_cpu_features().get("avx512bw") else 16

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
                ahead = [builder.gep(pointer, [arguments[1]]) for pointer in pointers]
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
"""(codes, numbers of scattered rows or how many bytes ahead far ones are fetched, first of ROWS
rows, queries, first of one or two queries, output): int32 sums, # (queries, rows). Of the numbers,
ROWS * (_AHEAD + 1) more are read ahead."""


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
        totals = [cgutils.alloca_once_value(builder, none) for _ in range(LEVEL_BITS)]  # type: ignore[no-untyped-call]
        row = builder.gep(signs.data, [builder.mul(width, arguments[1])])
        many = builder.extract_value(planes.shape, 1)
        asked = builder.gep(planes.data, [builder.mul(many, arguments[3])])
        with cgutils.for_range_slice(builder, zero, width, step, inc=True) as (at, _):
            later = builder.gep(row, [builder.add(at, far)])
            prefetch(builder, builder.bitcast(later, _INT8.as_pointer()), near=False)
            bits = _load(builder, row, at, kind)
            word = builder.udiv(at, ir.Constant(width.type, GROUP // LEVEL_BITS))
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
            change = builder.sub if number == LEVEL_BITS - 1 else builder.add
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
def _int8_sums(codes, queries, sums, ahead):  # type: ignore[no-untyped-def]
    """Compute the sums of a tile's rows, two queries at a time."""
    many = queries.shape[0]
    together = codes.shape[0] // ROWS * ROWS
    for row in range(0, together, ROWS):
        if many == 1:
            sums_of_one(codes, ahead, row, queries, 0, sums)
        else:
            sums_of_two(codes, ahead, row, queries, 0, sums)
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
def _scan_codes(  # type: ignore[no-untyped-def]
    codes, ahead, scales, queries, dims_4bit, first, best, floors, values, ids, counts, spare, sums,
    tile,
):  # fmt: skip
    """Gather the best values of a tile's rows; `first` is the id of the first."""
    many, rows = queries.shape[0], codes.shape[0]
    if dims_4bit < 0:
        _int8_sums(codes, queries, sums, ahead)
    else:
        _compact_values(codes, scales, queries, dims_4bit, tile)
    _make_room(tile.shape[1], best, floors, values, ids, counts, spare)
    for query in range(many):
        if dims_4bit < 0:
            for row in range(rows):
                tile[query, row] = np.float32(sums[query, row]) * scales[row, 0]
        count, floor = counts[query], floors[query]
        for begin in range(0, rows, STRETCH):
            stretch = tile[query, begin : min(begin + STRETCH, rows)]
            passing = np.int32(0)
            for place in range(stretch.shape[0]):
                passing += np.int32(stretch[place] >= floor)
            if passing == 0:  # mostly
                continue
            for place in range(stretch.shape[0]):
                if stretch[place] >= floor:
                    values[query, count] = stretch[place]
                    ids[query, count] = first + begin + place
                    count += 1
        counts[query] = count


@kernel
def _may_be_near(sums, scales, start, stop, shift, least, rows):  # type: ignore[no-untyped-def]
    """Gather the rows of a tile that may reach the least value; return their number."""
    count = 0
    for begin in range(start, stop, STRETCH):
        end = min(begin + STRETCH, stop)
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
def _scan_by_signs(  # type: ignore[no-untyped-def]
    signs, sign_scales, codes, scales, planes, shifts, leasts, queries, start, stop, first, best,
    floors, values, ids, counts, spare, sums, rows,
):  # fmt: skip
    """Gather the best values of the rows that by their signs may reach a query's least value.

    Returns:
        The number of rows whose codes were read.
    """
    picked = 0
    _make_room(stop - start, best, floors, values, ids, counts, spare)
    for query in range(queries.shape[0]):
        for place in range(0, stop - start, GROUP):
            sign_sums(signs, (start + place) // GROUP, planes, query, sums, place)
            # Scales are read after the sums of all rows.
            fetch(sign_scales.ctypes.data + 4 * (start + place), 4 * GROUP)  # type: ignore[call-arg]
        count = _may_be_near(
            sums[query], sign_scales, start, stop, shifts[query], leasts[query], rows
        )
        picked += count
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
    return picked


@intrinsic
def _take(_: Any, counter: Any) -> Any:
    """Return a number that threads share, and add one to it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", number, ir.Constant(_INT64, 1), "monotonic")

    return types.int64(counter), generate


@intrinsic
def _array(_: Any, address: Any, rows: Any, columns: Any, dtype: Any) -> Any:  # noqa: ARG001
    """Return the array at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.return_type
        array = context.make_array(kind)(context, builder)
        address, *shape, _ = arguments
        size = ir.Constant(_INT64, kind.dtype.bitwidth // 8)
        populate_array(  # type: ignore[no-untyped-call]
            array, builder.inttoptr(address, array.data.type), shape,
            [builder.mul(shape[1], size), size], size, None,
        )  # fmt: skip
        return array._getvalue()

    found = types.Array(dtype.instance_type, 2, "C")
    return found(types.int64, types.int64, types.int64, dtype), generate


@kernel
def scan(  # type: ignore[no-untyped-def]
    blocks, following, units, unit, queries, dims_4bit, planes, shifts, leasts, piece, step, best,
    floors, values, ids, counts, picked, spare, sums, tile, rows, gathered, gathered_scales,
):  # fmt: skip
    """Gather the best values of rows; a value is a similarity before steps and offsets.

    Threads share the blocks: each takes the next rows, `unit` of them, until none are left.

    Args:
        blocks: int64; rows, id of the first, and the addresses of codes (width a multiple of
            LANES), scales, numbers of the selected rows, signs and their scales, the last three
            0 for none. # (blocks, 7)
        following: int64 number of the unit that is next, counted up. # (1,)
        units: the most units to take in this call.
        unit: a multiple of `step` and of GROUP.
        queries: int16. # (queries, dimensions)
        dims_4bit: 4-bit dimensions of compact codes; -1 for int8.
        planes: uint64; none: signs are not used. # (queries, words * bits)
        shifts, leasts: float32, in the units of the planes. # (queries,)
        piece: rows compared together, at most those of a tile.
        step: rows from one piece to the next; more than `piece` for a sample.
        floors: float32 thresholds, raised in place. # (queries,)
        values: float32 output; room at least best and the rows of `sums`. # (queries, room)
        ids: int64 output. # (queries, room)
        counts: int64 number of filled values. # (queries,)
        picked: int64 number of rows whose codes were read after their signs. # (1,)
        spare: float32 work space. # (room,)
        sums: int32 work space. # (queries, rows compared by signs together, or of a tile)
        tile: float32 work space. # (queries, rows of a tile)
        rows: int64 work space, numbers of rows. # (rows of `sums` + ROWS * (_AHEAD + 1),)
        gathered: uint8 work space. # (rows of a tile, bytes)
        gathered_scales: float32 work space. # (rows of a tile, groups)
    """
    width, groups = gathered.shape[1], gathered_scales.shape[1]
    longest = 0
    for place in range(blocks.shape[0]):
        longest = max(longest, blocks[place, 0])
    parts = -(-longest // unit)
    for _ in range(units):
        number = _take(following)  # type: ignore[call-arg, var-annotated]
        if number >= parts * blocks.shape[0]:
            return
        block, begin = blocks[number // parts], number % parts * unit
        end = min(begin + unit, block[0])
        if begin >= end:
            continue
        selected = _array(block[4], 1, end, np.int64)[0]
        stored = end if block[4] == 0 else selected[end - 1] + 1
        codes = _array(block[2], stored, width, np.uint8)
        scales = _array(block[3], stored, groups, np.float32)
        if block[5] != 0 and planes.shape[0] > 0:
            words = planes.shape[1] // LEVEL_BITS * GROUP
            signs = _array(block[5], -(-stored // GROUP), words, np.uint64)
            sign_scales = _array(block[6], stored, 1, np.float32)
            for start in range(begin, end, sums.shape[1]):
                picked[0] += _scan_by_signs(
                    signs, sign_scales, codes, scales, planes, shifts, leasts, queries, start,
                    min(start + sums.shape[1], end), block[1], best, floors, values, ids, counts,
                    spare, sums, rows,
                )  # fmt: skip
            continue
        ahead = _BYTES_AHEAD if piece == step else step * width
        for start in range(begin, end, step):
            stop = min(start + piece, end)
            some, own = codes[start:stop], scales[start:stop]
            if block[4] != 0:
                some, own = gathered[: stop - start], gathered_scales[: stop - start]
                for place in range(stop - start):
                    row = selected[start + place]
                    for column in range(width):
                        some[place, column] = codes[row, column]
                    for column in range(groups):
                        own[place, column] = scales[row, column]
            _scan_codes(
                some, ahead, own, queries, dims_4bit, block[1] + start, best, floors, values, ids,
                counts, spare, sums, tile,
            )  # fmt: skip


@kernel
def gather(  # type: ignore[no-untyped-def]
    products, others, scales, first, best, floors, values, ids, counts, stretch, spare
):
    """Gather the best values of rows from their products with many queries.

    Args:
        products: int32; padding columns have a floor of infinity. # (rows, columns)
        others: products of a second group of codes; not read of one group. # (rows, columns)
        scales: float32. # (rows, groups)
        values: as in `scan`, with room of at least best + 1. # (queries, room)
        stretch: float32 work space, values that are compared with their floors together.
        spare: float32 work space. # (room,)
    """
    rows, many = products.shape
    together = stretch.shape[0]
    for row in range(rows):
        scale = scales[row]
        for begin in range(0, many, together):
            one = products[row, begin : begin + together]
            floor = floors[begin : begin + together]
            passing = np.int32(0)
            if scale.shape[0] == 1:
                for place in range(one.shape[0]):
                    value = np.float32(one[place]) * scale[0]
                    stretch[place] = value
                    passing += np.int32(value >= floor[place])
            else:
                two = others[row, begin : begin + together]
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
def _product(code, residual, query):  # type: ignore[no-untyped-def]
    """Return the product of all bits of a row with a query, less the scale of the row."""
    half, low, up = residual.shape[0], np.uint8(15), np.uint8(4)
    first, second = query[:half], query[half:]
    coarse, finer, middle = np.float32(0), np.float32(0), np.float32(0)
    for place in range(code.shape[0]):
        coarse += np.float32(code[place]) * query[place]
        middle += query[place]
    for place in range(half):
        finer += np.float32(residual[place] & low) * first[place]
        finer += np.float32(residual[place] >> up) * second[place]
    return coarse + (finer - np.float32(7.5) * middle) / np.float32(16)


@kernel
def rescore_int8(shards, following, pairs, ids, queries, offsets, similarities):  # type: ignore[no-untyped-def]
    """Compute similarities of queries and rows from all bits. Threads share the shards.

    Args:
        shards: int64; id of the first row, the first of its pairs and the next shard's, and the
            addresses of codes, residual (four more bits, the first half of the dimensions in the
            low ones) and scales. # (shards, 6)
        following: int64 number of the shard that is next, counted up. # (1,)
        pairs: int64 places in `ids`, in the order of ids. # (pairs,)
        ids: int64. # (queries, candidates)
        queries: float32, rotated. # (queries, dimensions)
        offsets: float32, added to a query's similarities. # (queries,)
        similarities: float32 output. # (queries, candidates)
    """
    width, candidates = queries.shape[1], ids.shape[1]
    half = width // 2
    while True:
        number = _take(following)  # type: ignore[call-arg, var-annotated]
        if number >= shards.shape[0]:
            return
        first, start, stop = shards[number, 0], shards[number, 1], shards[number, 2]
        if start == stop:
            continue
        stored = ids[pairs[stop - 1] // candidates, pairs[stop - 1] % candidates] - first + 1
        codes = _array(shards[number, 3], stored, width, np.int8)
        residual = _array(shards[number, 4], stored, half, np.uint8)
        scales = _array(shards[number, 5], stored, 1, np.float32)
        for pair in range(start, stop):
            later = pairs[min(pair + _PAIRS_AHEAD, stop - 1)]
            row = ids[later // candidates, later % candidates] - first
            fetch(codes.ctypes.data + row * width, width)
            fetch(residual.ctypes.data + row * half, half)
            fetch(scales.ctypes.data + 4 * row, 4)
            owner, place = pairs[pair] // candidates, pairs[pair] % candidates
            row = ids[owner, place] - first
            similarities[owner, place] = offsets[owner] + scales[row, 0] * _product(
                codes[row], residual[row], queries[owner]
            )
