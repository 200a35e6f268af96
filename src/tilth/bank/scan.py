"""The scan: similarities of codes with a few queries, and what passes a floor.

Compiled at first use for the processor at hand and kept in Python's cache; while it runs, other
threads run too. One pass over the codes serves all queries, so that memory's speed is the limit.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_FAST: dict[str, Any] = {
    "nogil": True, "boundscheck": False, "error_model": "numpy", "cache": True,
    "fastmath": {"reassoc", "contract"},  # sums in any order; infinities keep their meaning
}  # fmt: skip
# Rows whose sums stay in the nearest cache until they are compared.
TILE = 512
# Queries whose floors are looked at together.
_STRETCH = 64

# The sums below index by `range(width)` alone, and the queries' pieces are arrays of their own: an
# index that may be negative or a stride that is not known keeps the compiler from vector
# instructions (ten times slower).


@numba.njit(**_FAST)
def _sums_bytes(codes, queries, sums):  # type: ignore[no-untyped-def]
    rows, width = codes.shape
    for row in range(rows):
        for query in range(queries.shape[0]):
            total = np.int32(0)
            for place in range(width):
                total += np.int32(codes[row, place]) * np.int32(queries[query, place])
            sums[query, row] = total


@numba.njit(**_FAST)
def _sums_fours(codes, first, second, sums):  # type: ignore[no-untyped-def]
    rows, width = codes.shape
    low, up = np.uint8(15), np.uint8(4)
    for row in range(rows):
        for query in range(first.shape[0]):
            total = np.int32(0)
            for place in range(width):
                code = codes[row, place]
                total += np.int32(code & low) * np.int32(first[query, place])
                total += np.int32(code >> up) * np.int32(second[query, place])
            sums[query, row] = total


@numba.njit(**_FAST)
def _sums_twos(codes, first, second, third, fourth, sums):  # type: ignore[no-untyped-def]
    rows, width = codes.shape
    low, two, four, six = np.uint8(3), np.uint8(2), np.uint8(4), np.uint8(6)
    for row in range(rows):
        for query in range(first.shape[0]):
            total = np.int32(0)
            for place in range(width):
                code = codes[row, place]
                total += np.int32(code & low) * np.int32(first[query, place])
                total += np.int32((code >> two) & low) * np.int32(second[query, place])
                total += np.int32((code >> four) & low) * np.int32(third[query, place])
                total += np.int32(code >> six) * np.int32(fourth[query, place])
            sums[query, row] = total


@numba.njit(**_FAST)
def _keep_best(values, ids, best):  # type: ignore[no-untyped-def]
    """Move the best values of a full buffer to its front, in their order; return the least.

    Of equal values the first stay: they have the lowest numbers, as rows come in order.
    """
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


@numba.njit(**_FAST)
def _make_room(most, best, floors, values, ids, counts):  # type: ignore[no-untyped-def]
    """Leave room for `most` more values of every query; raise the floors accordingly."""
    for query in range(counts.shape[0]):
        count = counts[query]
        if count + most > values.shape[1]:
            floor = _keep_best(values[query, :count], ids[query, :count], best)
            counts[query] = best
            if floor > floors[query]:
                floors[query] = floor


@numba.njit(**_FAST)
def scan_int8(codes, scales, queries, first, best, floors, values, ids, counts):  # type: ignore[no-untyped-def]
    """Gather the best values of some rows; a value is a similarity before steps and offsets.

    Args:
        codes: int8. # (rows, dimensions)
        scales: float32. # (rows, 1)
        queries: int16. # (queries, dimensions)
        first: the number of row 0 in the bank; calls come in its order.
        best: how many values are wanted of each query.
        floors: float32; what a value must reach; raised here. # (queries,)
        values: float32, filled here; room of at least best + TILE. # (queries, room)
        ids: int64, filled here. # (queries, room)
        counts: int64; how many are filled. # (queries,)
    """
    sums = np.empty((queries.shape[0], TILE), np.int32)
    for start in range(0, codes.shape[0], TILE):
        stop = min(start + TILE, codes.shape[0])
        _sums_bytes(codes[start:stop], queries, sums)
        _make_room(TILE, best, floors, values, ids, counts)
        scale = scales[start:stop, 0]
        for query in range(queries.shape[0]):
            count, floor, total = counts[query], floors[query], sums[query]
            for row in range(stop - start):
                value = np.float32(total[row]) * scale[row]
                if value >= floor:
                    values[query, count] = value
                    ids[query, count] = first + start + row
                    count += 1
            counts[query] = count


@numba.njit(**_FAST)
def scan_compact(  # type: ignore[no-untyped-def]
    codes, scales, queries, fours, first, best, floors, values, ids, counts
):
    """Do what `scan_int8` does for codes of 4 and 2 bits.

    Args:
        codes: uint8; the 4-bit codes come first. # (rows, bytes)
        scales: float32. # (rows, 2)
        queries: int16. # (queries, dimensions)
        fours: how many dimensions have 4 bits.
        first: see `scan_int8`, like all that follow.
        best: see there.
        floors: see there.
        values: see there.
        ids: see there.
        counts: see there.
    """
    many = queries.shape[0]
    high, low = np.zeros((many, TILE), np.int32), np.zeros((many, TILE), np.int32)
    half, quarter = fours // 2, (queries.shape[1] - fours) // 4
    one, two = queries[:, :half].copy(), queries[:, half:fours].copy()
    three = queries[:, fours : fours + quarter].copy()
    four = queries[:, fours + quarter : fours + 2 * quarter].copy()
    five = queries[:, fours + 2 * quarter : fours + 3 * quarter].copy()
    six = queries[:, fours + 3 * quarter :].copy()
    # Levels are numbered from 0; the values they stand for lie around 0.
    middles = np.empty((many, 2), np.float32)
    for query in range(many):
        middles[query, 0] = np.float32(7.5) * queries[query, :fours].sum()
        middles[query, 1] = np.float32(1.5) * queries[query, fours:].sum()
    for start in range(0, codes.shape[0], TILE):
        stop = min(start + TILE, codes.shape[0])
        _sums_fours(codes[start:stop, :half], one, two, high)
        _sums_twos(codes[start:stop, half:], three, four, five, six, low)
        _make_room(TILE, best, floors, values, ids, counts)
        scale_high, scale_low = scales[start:stop, 0], scales[start:stop, 1]
        for query in range(many):
            count, floor = counts[query], floors[query]
            total_high, total_low = high[query], low[query]
            middle_high, middle_low = middles[query, 0], middles[query, 1]
            for row in range(stop - start):
                value = (np.float32(total_high[row]) - middle_high) * scale_high[row]
                value += (np.float32(total_low[row]) - middle_low) * scale_low[row]
                if value >= floor:
                    values[query, count] = value
                    ids[query, count] = first + start + row
                    count += 1
            counts[query] = count


@numba.njit(**_FAST)
def gather(products, others, scales, first, best, floors, values, ids, counts):  # type: ignore[no-untyped-def]
    """Gather the best values of some rows from their products with many queries.

    Args:
        products: int32; there may be columns more, with a floor of infinity. # (rows, columns)
        others: those of a second group of codes, or None. # (rows, columns)
        scales: float32. # (rows, groups)
        first: see `scan_int8`, like all that follow, with room of at least best + 1.
        best: see there.
        floors: see there.
        values: see there.
        ids: see there.
        counts: see there.
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


@numba.njit(**_FAST)
def rescore_int8(codes, fine, scales, rows, owners, queries, similarities):  # type: ignore[no-untyped-def]
    """Compute similarities of single rows with single queries from all the bits there are.

    Args:
        codes: int8. # (rows of the shard, dimensions)
        fine: uint8: four more bits, the first half of the dimensions in the low ones.
            # (rows of the shard, dimensions / 2)
        scales: float32, of the pairs. # (pairs,)
        rows: int64: the row of each pair. # (pairs,)
        owners: int64: the query of each pair. # (pairs,)
        queries: float32, turned. # (queries, dimensions)
        similarities: float32, filled here, without the queries' offsets. # (pairs,)
    """
    half = fine.shape[1]
    low, up = np.uint8(15), np.uint8(4)
    for pair in range(rows.shape[0]):
        code, rest, query = codes[rows[pair]], fine[rows[pair]], queries[owners[pair]]
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
