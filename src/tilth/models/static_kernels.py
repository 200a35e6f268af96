"""Compiled kernels of static encoders: chunks of text, their word pieces, means of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import uint64
from numba.core import types
from numba.extending import intrinsic

from tilth.models.kernels import fetch, kernel

_STEP, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD)
_FIRST, _CONTINUING = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
_SPACE, _MARK = 1, 2
_AHEAD = 6  # token vectors


@kernel
def _mixed(state):  # type: ignore[no-untyped-def]
    state = (state ^ (state >> np.uint64(32))) * _MIX
    return state ^ (state >> np.uint64(29))


@kernel
def _slot(hashed, slots, bits):  # type: ignore[no-untyped-def]
    """Return the slot that holds a hash, or the free one where it belongs.

    A slot holds a number from 1 in its low bits and the rest of the hash above them; 0 is free.
    """
    last = np.int64(slots.shape[0] - 1)
    slot = np.int64(hashed >> np.uint64(32)) & last
    while slots[slot] != 0 and (slots[slot] ^ hashed) >> uint64(bits) != 0:
        slot = (slot + 1) & last
    return slot


@kernel
def find_chunks(  # type: ignore[no-untyped-def]
    data, bounds, kinds, lower, bits, slots, known, codes, first, begins, ends
):
    """Cut texts into chunks and number them; equal chunks have one number.

    A chunk ends before a space, after a mark, and before a mark that no space precedes.

    Args:
        data: UTF-8 of all texts. # (bytes,)
        bounds: int64. # (texts + 1,)
        kinds: uint8 kind of each byte: 1 a space, 2 a mark, 0 any other. # (256,)
        lower: uint8 that stands for each byte. # (256,)
        bits: of a slot that hold the number.
        slots: uint64 table of the known chunks; a power of 2 of them. # (slots,)
        known: int64 number of known chunks, raised in place. # (1,)
        codes: int32 output, the number of each chunk. # (at least chunks,)
        first: int64 output, the first chunk of each text, and the end. # (texts + 1,)
        begins: int64 output, where each new chunk begins. # (at least new chunks,)
        ends: int64 output. # (at least new chunks,)
    """
    count, new = 0, 0
    above = (uint64(1) << uint64(bits)) - uint64(1)
    for text in range(bounds.shape[0] - 1):
        first[text] = count
        place, stop = bounds[text], bounds[text + 1]
        while place < stop:
            begin, before = place, kinds[data[place]]
            state = (_FIRST ^ uint64(lower[data[place]])) * _STEP
            place += 1
            while place < stop:
                kind = kinds[data[place]]
                if kind == _SPACE or before == _MARK or (kind == _MARK and before != _SPACE):
                    break
                state = (state ^ uint64(lower[data[place]])) * _STEP
                before = kind
                place += 1
            hashed = _mixed(state)
            slot = _slot(hashed, slots, bits)
            if slots[slot] == 0:
                begins[new], ends[new] = begin, place
                new += 1
                known[0] += 1
                slots[slot] = (hashed & ~above) | uint64(known[0])
            codes[count] = np.int32((slots[slot] & above) - uint64(1))
            count += 1
    first[bounds.shape[0] - 1] = count


@kernel
def number_pieces(data, bounds, continuing, numbers, bits, slots):  # type: ignore[no-untyped-def]
    """Enter the pieces of a vocabulary into a table.

    Args:
        data: UTF-8 of all pieces, without the prefix of those that continue a word. # (bytes,)
        bounds: int64. # (pieces + 1,)
        continuing: uint8, whether each continues a word. # (pieces,)
        numbers: int64 token ids. # (pieces,)
        slots: uint64 output, 0 before. # (slots,)
    """
    above = (uint64(1) << uint64(bits)) - uint64(1)
    for piece in range(numbers.shape[0]):
        state = _CONTINUING if continuing[piece] else _FIRST
        for place in range(bounds[piece], bounds[piece + 1]):
            state = (state ^ uint64(data[place])) * _STEP
        hashed = _mixed(state)
        slots[_slot(hashed, slots, bits)] = (hashed & ~above) | uint64(numbers[piece] + 1)


@kernel
def word_pieces(  # type: ignore[no-untyped-def]
    data, begins, ends, plain, lower, bits, slots, longest, most, unknown, lengths, ids
):
    """Split chunks of one word or mark into the longest pieces, as WordPiece does.

    Args:
        begins: int64 place of each chunk in data. # (chunks,)
        plain: uint8, whether each byte is a letter, digit or mark of ASCII. # (256,)
        longest: bytes of the longest piece.
        most: bytes of a word at most; longer ones are unknown.
        unknown: the token id of words that do not split.
        lengths: int64 output, token ids of each chunk; -1 of one that is not plain. # (chunks,)
        ids: int32 output, all token ids; no more than bytes. # (at least token ids,)
    """
    above = (uint64(1) << uint64(bits)) - uint64(1)
    count = 0
    for chunk in range(begins.shape[0]):
        begin, end = begins[chunk], ends[chunk]
        if data[begin] == 32:
            begin += 1
        is_plain = True
        for place in range(begin, end):
            is_plain &= plain[data[place]] != 0
        if not is_plain:
            lengths[chunk] = -1
            continue
        start, place = count, begin
        while place < end:
            state = _FIRST if place == begin else _CONTINUING
            found, after = uint64(0), place
            for last in range(place, min(end, place + longest)):
                state = (state ^ uint64(lower[data[last]])) * _STEP
                entry = slots[_slot(_mixed(state), slots, bits)]
                if entry != 0:
                    found, after = entry & above, last + 1
            if after == place or end - begin > most:
                count = start
                ids[count] = unknown
                count += 1
                break
            ids[count] = np.int32(found - uint64(1))
            count += 1
            place = after
        lengths[chunk] = count - start


@intrinsic
def _as_float(_: Any, value: Any) -> Any:
    """(float32, or uint16 with the bits of a half) -> float32."""
    signature = types.float32(value)

    def generate(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.float32:
            return arguments[0]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return signature, generate


@kernel
def spread_ids(codes, first, starts, lengths, ids, limit, found, bounds):  # type: ignore[no-untyped-def]
    """Write the token ids of texts, one after the other.

    Args:
        codes: int32 chunks of all texts. # (chunks,)
        first: int64 first chunk of each text, and the end. # (texts + 1,)
        starts: int64 place in `ids` of each chunk's token ids. # (known chunks,)
        lengths: int64 number of them. # (known chunks,)
        ids: int32 token ids. # (all,)
        limit: token ids of a text at most.
        found: int32 output. # (at least token ids,)
        bounds: int64 output, place of each text's first, and the end. # (texts + 1,)
    """
    count = 0
    for text in range(first.shape[0] - 1):
        bounds[text] = count
        left = limit
        for chunk in range(first[text], first[text + 1]):
            start = starts[codes[chunk]]
            many = min(lengths[codes[chunk]], left)
            left -= many
            for place in range(start, start + many):
                found[count] = ids[place]
                count += 1
    bounds[first.shape[0] - 1] = count


@kernel
def mean_vectors(ids, bounds, vectors, means):  # type: ignore[no-untyped-def]
    """Compute the means of texts' token vectors, scaled to unit length; 0 of none.

    Args:
        ids: int32 token ids of all texts. # (tokens,)
        bounds: int64 place of each text's first id, and the end. # (texts + 1,)
        vectors: float32, or uint16 with the bits of halves. # (vocabulary, dimension)
        means: float32 output. # (texts, dimension)
    """
    for text in range(means.shape[0]):
        mean = means[text]
        mean[:] = 0
        for place in range(bounds[text], bounds[text + 1]):
            # The processor does not look so far ahead by itself.
            later = ids[min(place + _AHEAD, ids.shape[0] - 1)]
            fetch(vectors.ctypes.data + later * vectors.strides[0], vectors.strides[0])  # type: ignore[call-arg]
            vector = vectors[ids[place]]
            for column in range(mean.shape[0]):
                mean[column] += _as_float(vector[column])
        squares = mean[:1].sum() * 0
        for column in range(mean.shape[0]):
            squares += mean[column] * mean[column]
        if squares > 0:
            scale = 1 / squares**0.5
            for column in range(mean.shape[0]):
                mean[column] *= scale
