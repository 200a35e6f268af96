from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.bank.quantization import LANES
from tilth.bank.search import scan

BITS = (8, 4, 2)


@numba.njit
def _of_bytes(codes: Any, one: Any, two: Any) -> Any:
    return scan.two_sums_of_bytes(codes, one, two)


@numba.njit
def _of_fours(codes: Any, one: Any, two: Any) -> Any:
    return scan.two_sums_of_fours(codes, one, two)


@numba.njit
def _of_twos(codes: Any, one: Any, two: Any) -> Any:
    return scan.two_sums_of_twos(codes, one, two)


SUMS = {8: _of_bytes, 4: _of_fours, 2: _of_twos}


def values_of(codes: np.ndarray, bits: int) -> list[int]:
    """Return the numbers of some bytes, in a loop: of each byte the lowest bits, then the next."""
    if bits == 8:
        return [int(code) - 256 * (code > 127) for code in codes]
    parts = range(8 // bits)
    return [(int(code) >> bits * part) % 2**bits for part in parts for code in codes]


def expected(codes: np.ndarray, bits: int, queries: np.ndarray) -> tuple[int, ...]:
    values = values_of(codes, bits)
    return tuple(
        sum(value * int(of_query) for value, of_query in zip(values, query, strict=True))
        for query in queries
    )


@settings(deadline=None, max_examples=100)
@given(
    bits=st.sampled_from(BITS),
    pieces=st.integers(0, 12),
    offsets=st.tuples(*[st.integers(0, 3)] * 3),
    seed=st.integers(0, 1000),
)
def test_sums_are_those_of_a_loop_wherever_the_numbers_lie(
    bits: int, pieces: int, offsets: tuple[int, int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    width, most = pieces * LANES, 9_000
    codes = rng.integers(0, 256, width + 3).astype(np.uint8)
    queries = rng.integers(-most, most + 1, (2, width * (8 // bits) + 3)).astype(np.int16)
    # Parts of longer arrays: no address is a multiple of anything, and what is behind stays out.
    codes = codes[offsets[0] :][:width]
    one, two = (
        query[offset:][: width * (8 // bits)]
        for query, offset in zip(queries, offsets[1:], strict=True)
    )
    assert SUMS[bits](codes, one, two) == expected(codes, bits, np.array([one, two]))


@pytest.mark.parametrize("query", [-(2**15) + 1, 2**15 - 1])
@pytest.mark.parametrize("code", [-128, -1, 0, 127])
@pytest.mark.parametrize("pieces", [1, 2, 16])
def test_extreme_bytes_up_to_the_ends_of_int32(code: int, query: int, pieces: int) -> None:
    width = pieces * LANES
    codes = np.full(width, code, np.int8).view(np.uint8)
    queries = np.full((2, width), query, np.int16)
    queries[1] = -queries[1]
    wanted = code * query * width
    assert abs(wanted) < 2**31
    assert SUMS[8](codes, *queries) == (wanted, -wanted)


@pytest.mark.parametrize("query", [-(2**15) + 1, 2**15 - 1])
@pytest.mark.parametrize("bits", [4, 2])
def test_extreme_small_codes(bits: int, query: int) -> None:
    width = 3 * LANES
    for byte in (0, 255):
        codes = np.full(width, byte, np.uint8)
        queries = np.full((2, width * (8 // bits)), query, np.int16)
        queries[1] = -queries[1]
        wanted = (2**bits - 1) * (byte == 255) * query * width * (8 // bits)
        assert abs(wanted) < 2**31
        assert SUMS[bits](codes, *queries) == (wanted, -wanted)


@pytest.mark.parametrize("bits", BITS)
def test_each_place_is_multiplied_with_its_own(bits: int) -> None:
    width = 2 * LANES
    codes = np.random.default_rng(bits).integers(0, 256, width).astype(np.uint8)
    values = values_of(codes, bits)
    nothing = np.zeros(len(values), np.int16)
    for place, value in enumerate(values):
        only = nothing.copy()
        only[place] = 3
        assert SUMS[bits](codes, only, nothing) == (3 * value, 0)
        assert SUMS[bits](codes, nothing, only) == (0, 3 * value)
