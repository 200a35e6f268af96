"""Compiled kernels of attention within texts that stand one after the other, without padding.

All sums are products of small float32 matrices. Numba vectorises no loop of so few values and
keeps no sums in registers, so the inner loops are written in LLVM IR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from tilth.models.kernel_arrays import (
    HEAD_BYTES,
    KEYS,
    ROWS,
    TOGETHER,
    TOKEN_BYTES,
    TOKENS,
    VALUES,
    WIDTH,
)
from tilth.models.kernels import FAST, kernel
from tilth.models.vector_code import (
    FLOAT,
    INT32,
    at,
    call,
    floats,
    load,
    load_floats,
    softmax,
    spread,
    store,
    store_floats,
)

_FLOATS, _INTS = (ir.VectorType(kind, WIDTH) for kind in (FLOAT, INT32))
_ZERO = np.float32(0)  # its type is of what the kernels compute with


@intrinsic
def _copy(_: Any, kind: Any, source: Any, to_kind: Any, target: Any) -> Any:
    """Copy WIDTH values from an address to another; bfloat16 is seen as uint16, rounded to even."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        _, source, _, target = arguments
        none = ir.Constant(source.type, 0)
        store_floats(builder, target, to_kind, load_floats(builder, source, none, kind, WIDTH))
        return context.get_dummy_value()

    return types.void(kind, source, to_kind, target), generate


@intrinsic
def _turn(_: Any, source: Any, step: Any, target: Any, target_step: Any) -> Any:
    """Transpose WIDTH rows of WIDTH float32; addresses, and elements between rows."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        source, step, target, target_step = arguments

        def pointers(address: Any, step: Any) -> list[Any]:
            places = [builder.mul(step, ir.Constant(step.type, row)) for row in range(WIDTH)]
            return [at(builder, address, place, _FLOATS) for place in places]

        rows = [load(builder, pointer) for pointer in pointers(source, step)]
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
            store(builder, row, pointer)
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
        sums = [cgutils.alloca_once_value(builder, floats(WIDTH, 0.0)) for _ in range(ROWS)]  # type: ignore[no-untyped-call]
        starts = [builder.mul(left_step, ir.Constant(inner.type, row)) for row in range(ROWS)]
        ends = ir.Constant(inner.type, 0), inner, ir.Constant(inner.type, 1)
        with cgutils.for_range_slice(builder, *ends, inc=True) as (number, _):
            values = load(builder, at(builder, right, builder.mul(number, right_step), _FLOATS))
            for start, held in zip(starts, sums, strict=True):
                place = at(builder, left, builder.add(start, number), FLOAT)
                factors = spread(builder, builder.load(place), WIDTH)
                builder.store(call(builder, "fma", values, factors, builder.load(held)), held)
        for row, held in enumerate(sums):
            place = builder.mul(step, ir.Constant(step.type, row))
            store(builder, builder.load(held), at(builder, out, place, _FLOATS))
        return context.get_dummy_value()

    return types.void(left, left_step, right, right_step, inner, out, step), generate


@intrinsic
def _softmax(_: Any, rows: Any, step: Any, count: Any, growth: Any, scale: Any) -> Any:
    """Replace ROWS rows of float32 with their softmax of products with `scale`, to base 2.

    The address of the first row and the elements from one to the next; `count` of the first row
    count, and `growth` more of each further one. What follows is filled with 0 up to a multiple of
    WIDTH of the last row's.
    """

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        rows, step, count, growth, scale = arguments
        size = builder.mul(step, ir.Constant(step.type, 4))
        starts, counts = [rows], [count]
        for _row in range(1, ROWS):
            starts.append(builder.add(starts[-1], size))
            counts.append(builder.add(counts[-1], growth))
        softmax(builder, starts, counts, scale, WIDTH)
        return context.get_dummy_value()

    return types.void(rows, step, count, growth, scale), generate


@njit(inline="always", **FAST)
def _read(kind, item, source, step, count, size, target):  # type: ignore[no-untyped-def]
    """Copy rows at an address, `step` bytes apart, to float32 rows at another one."""
    for row in range(count):
        for column in range(0, size, WIDTH):
            of, to = (
                source + row * step + column * item,
                target + 4 * (row * size + column),
            )
            _copy(kind, of, _ZERO, to)  # type: ignore[call-arg]


@njit(inline="always", **FAST)
def _write(kind, item, source, count, size, target, step):  # type: ignore[no-untyped-def]
    """Copy float32 rows at an address to rows at another one, `step` bytes apart."""
    for row in range(count):
        for column in range(0, size, WIDTH):
            of, to = (
                source + 4 * (row * size + column),
                target + row * step + column * item,
            )
            _copy(_ZERO, of, kind, to)  # type: ignore[call-arg]


@kernel
def attend_texts(queries, starts, texts, is_causal, scale, wide, tall, out):  # type: ignore[no-untyped-def]
    """Compute attention within texts.

    Args:
        queries: of the last tokens of each text. # (tokens, heads, size)
        starts: int64 first query of each text, and the end. # (texts + 1,)
        texts: int64 table, whose columns are in `kernel_arrays`. # (texts, TEXT_FIELDS)
        is_causal: whether a query reads no key after its own token.
        scale: of products of query and key, times log2(e).
        wide: float32, overwritten. # (size + ROWS, tokens of a text and ROWS, rounded up to WIDTH)
        tall: float32, overwritten. # (2 * ROWS + tokens of a text, rounded up to WIDTH, size)
        out: # (tokens, heads, size)
    """
    kind, heads, size = queries[0, 0, 0], queries.shape[1], queries.shape[2]
    item, factor, step = queries.itemsize, np.float32(scale), wide.shape[1]
    token = heads * size * item
    turned, weights = wide.ctypes.data, wide.ctypes.data + 4 * size * step
    some = tall.ctypes.data
    sums, held = some + 4 * ROWS * size, some + 8 * ROWS * size
    for text in range(len(starts) - 1):
        first, last, count = starts[text], starts[text + 1], texts[text, TOKENS]
        bytes_apart, together = texts[text, TOKEN_BYTES], texts[text, TOGETHER]
        for head in range(heads):
            shift = (first * heads + head) * size * item
            source, target = queries.ctypes.data + shift, out.ctypes.data + shift
            if head % together == 0:
                shift = head // together * texts[text, HEAD_BYTES]
                _read(kind, item, texts[text, KEYS] + shift, bytes_apart, count, size, held)
                for row in range(0, count, WIDTH):
                    for column in range(0, size, WIDTH):
                        of = held + 4 * (row * size + column)
                        _turn(of, size, turned + 4 * (column * step + row), step)  # type: ignore[call-arg]
                _read(kind, item, texts[text, VALUES] + shift, bytes_apart, count, size, held)
            for query in range(0, last - first, ROWS):
                rows = min(ROWS, last - first - query)
                _read(kind, item, source + query * token, token, rows, size, some)
                read = count - (last - first - query) + 1 if is_causal else count
                most = min(count, read + (ROWS - 1) * is_causal)
                for column in range(0, most, WIDTH):
                    place = weights + 4 * column
                    _block(some, size, turned + 4 * column, step, size, place, step)  # type: ignore[call-arg]
                _softmax(weights, step, read, is_causal, factor)  # type: ignore[call-arg]
                for column in range(0, size, WIDTH):
                    place = sums + 4 * column
                    _block(weights, step, held + 4 * column, size, most, place, size)
                _write(kind, item, sums, rows, size, target + query * token, token)


@kernel
def move_heads(like, matrices, scales, rotated, starts, first, cosines, sines, to_padded, rows):  # type: ignore[no-untyped-def]
    """Copy the heads of tokens into padded batches of texts, or back; rotate some.

    Args:
        like: an array of the matrices' type.
        matrices: int64; the addresses of tokens, (tokens, heads, size), and of the padded batch,
            (texts, heads, width, size), and the bytes from one token, and head of it, to the next.
            # (matrices, 4)
        scales: float32 factor of each matrix. # (matrices,)
        rotated: how many of the first matrices are rotated.
        starts: int64 first token of each text, and the end. # (texts + 1,)
        first: number of the first text in the padded batch.
        cosines, sines: float32 tables of a text's tokens; the sines of the lower half are
            subtracted. # (width, size)
        to_padded: whether to copy into the padded batches, or the tokens.
        rows: float32, overwritten; the last `heads` rows are 0. # (2 * heads, size)
    """
    kind, item = like[0], like.itemsize
    heads, size, width = rows.shape[0] // 2, rows.shape[1], cosines.shape[0]
    half, head = size // 2, width * size * item
    zeros = rows.ctypes.data + 4 * heads * size
    for text in range(len(starts) - 1):
        count = starts[text + 1] - starts[text]
        for number in range(len(matrices)):
            matrix, scale = matrices[number], scales[number]
            for place in range(width):
                token = matrix[0] + (starts[text] + place) * matrix[2]
                padded = matrix[1] + (first + text) * heads * head + place * size * item
                if place >= count:
                    if not to_padded:
                        break
                    _write(kind, item, zeros, heads, size, padded, head)
                    continue
                if to_padded:
                    _read(kind, item, token, matrix[3], heads, size, rows.ctypes.data)
                else:
                    _read(kind, item, padded, head, heads, size, rows.ctypes.data)
                if number < rotated:
                    for row in range(heads):
                        for column in range(half):
                            one, other = rows[row, column], rows[row, column + half]
                            turned = one * cosines[place, column] - other * sines[place, column]
                            rows[row, column] = turned * scale
                            turned = other * cosines[place, column + half]
                            turned += one * sines[place, column + half]
                            rows[row, column + half] = turned * scale
                elif scale != 1:
                    for row in range(heads):
                        for column in range(size):
                            rows[row, column] *= scale
                if to_padded:
                    _write(kind, item, rows.ctypes.data, heads, size, padded, head)
                else:
                    _write(kind, item, rows.ctypes.data, heads, size, token, matrix[3])
