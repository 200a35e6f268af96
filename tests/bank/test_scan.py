"""The compiled kernels by themselves; `test_exact.py` compares the search with brute force."""

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bank.memory import Shard
from tests.bank.test_quantization import vectors
from tilth.bank.quantization import (
    CodedQueries,
    Codes,
    SignQueries,
    Signs,
    fit_quantizer,
)
from tilth.bank.search import exact, scan
from tilth.bank.search.exact import TILE
from tilth.bank.search.scan import ROWS
from tilth.bank.settings import GROUP, LANES
from tilth.limits import FORMAT

Kept = tuple[np.ndarray, np.ndarray, np.ndarray]


def buffers(queries: int, room: int) -> Kept:
    values = np.full((queries, room), np.nan, np.float32)
    return values, np.full((queries, room), -7, np.int64), np.zeros(queries, np.int64)


def best_of(kept: Kept, query: int, best: int) -> list[tuple[float, int]]:
    values, ids, counts = kept
    count = counts[query]
    pairs = zip(values[query, :count].tolist(), ids[query, :count].tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:best]


def scan_all(
    shard: Shard, queries: np.ndarray, fours: int, best: int, floors: np.ndarray, kept: Kept, *,
    rows: np.ndarray | None = None, piece: int = TILE, step: int = TILE, unit: int = 1 << 14,
    signs: SignQueries | None = None,
) -> int:  # fmt: skip
    """Return the number of rows that were read after their signs."""
    block = exact._Block(shard, 0, shard.sentences, rows, shard.first)  # type: ignore[arg-type]
    spare, picked = np.full(kept[0].shape[1], np.nan, np.float32), np.zeros(1, np.int64)
    sums = np.full((len(queries), TILE), -7, np.int32)
    tile = np.full((len(queries), TILE), np.nan, np.float32)
    chosen = (np.empty((0, 0), np.uint64), floors, floors)
    if signs is not None:
        chosen = signs.planes, signs.shifts, signs.least
    following = np.zeros(1, np.int64)
    exact.scan(
        exact._addresses([block]), following, 300, unit, queries, fours, *chosen, piece, step, best,
        floors, *kept, picked, spare, sums, tile, np.zeros(2 * TILE, np.int64),
        np.empty((TILE, shard.codes.shape[1]), np.uint8),
        np.empty((TILE, shard.scales.shape[1]), np.float32),
    )  # fmt: skip
    assert following[0] == -(-len(block) // unit) + 1  # all were taken, and one more was asked for
    return int(picked[0])


def loop(values: np.ndarray, first: int, best: int) -> list[tuple[float, int]]:
    order = sorted(range(len(values)), key=lambda row: (-values[row], row))[:best]
    return [(float(values[row]), first + row) for row in order]


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 3 * TILE + 5),
    width=st.sampled_from([LANES, 3 * LANES]),
    queries=st.integers(1, 5),
    best=st.sampled_from([1, 7, 600]),
    levels=st.integers(1, 100),
    seed=st.integers(0, 1000),
)
def test_int8_sums_are_those_of_a_loop_ties_by_number(
    rows: int, width: int, queries: int, best: int, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-levels, levels + 1, (rows, width)).astype(np.int8)  # few levels: ties
    asked = rng.integers(-(2**15) + 1, 2**15, (queries, width)).astype(np.int16)
    scales = rng.choice([0.25, 0.5], (rows, 1)).astype(np.float32)
    kept = buffers(queries, best + TILE)
    floors = np.full(queries, -np.inf, np.float32)
    scan_all(Shard(codes.view(np.uint8), scales, None, 1000), asked, -1, best, floors, kept)
    sums = (asked.astype(np.int64) @ codes.astype(np.int64).T).astype(np.float32) * scales[:, 0]
    for query in range(queries):
        wanted = loop(sums[query], 1000, best)
        assert best_of(kept, query, best) == wanted
        assert len(wanted) < best or floors[query] <= wanted[-1][0]


@pytest.mark.parametrize("form", FORMAT.names)
@pytest.mark.parametrize("unit", [TILE, 1 << 14])
def test_selected_rows_are_scanned_as_if_they_were_all(form: str, unit: int) -> None:
    some = vectors(5 * TILE, 40, seed=1)
    quantizer = fit_quantizer(form, some)
    codes, asked = quantizer.encode(some), quantizer.queries(some[:3]).values
    fours = -1 if form == "int8" else quantizer.dims_4bit
    rows = np.flatnonzero(np.random.default_rng(0).random(5 * TILE) < 0.6)
    found = []
    for selected in (rows, None):
        kept, floors = buffers(3, 200 + TILE), np.full(3, -np.inf, np.float32)
        own = slice(None) if selected is not None else rows
        shard = Shard(codes.codes[own], codes.scales[own], None, 7)
        scan_all(shard, asked, fours, 200, floors, kept, rows=selected, unit=unit)
        found.append([best_of(kept, query, 200) for query in range(3)])
    assert found[0] == found[1]


@pytest.mark.parametrize("groups", [1, 2])
def test_products_below_the_floor_are_left_and_columns_beyond_the_queries_too(groups: int) -> None:
    rng = np.random.default_rng(0)
    products = [rng.integers(-50, 50, (2000, 80)).astype(np.int32) for _ in range(groups)]
    scales = rng.choice([0.5, 1.0], (2000, groups)).astype(np.float32)
    floors = np.full(80, -np.inf, np.float32)
    floors[3] = 20.0
    floors[70:] = np.inf
    kept = buffers(70, 40)
    work = np.empty(64, np.float32), np.empty(40, np.float32)
    exact.gather(products[0], products[-1], scales, 500, 15, floors, *kept, *work)
    values = sum(products[place] * scales[:, place : place + 1] for place in range(groups))
    for query in range(70):
        wanted = loop(values[:, query], 500, 15)
        assert best_of(kept, query, 15) == [pair for pair in wanted if query != 3 or pair[0] >= 20]


@pytest.mark.parametrize(("piece", "step"), [(3, 10), (1, 1), (7, 7), (32, 100), (1, 500)])
@pytest.mark.parametrize("unit", [1, 3, 200])
def test_a_sample_is_of_pieces_and_above_the_floor(piece: int, step: int, unit: int) -> None:
    codes = np.zeros((200, LANES), np.int8)
    codes[:, 5] = np.arange(200) - 100  # its sum with a query of ones is the row less 100
    kept = buffers(2, 300 + TILE)
    floors = np.array([-np.inf, 42], np.float32)
    asked = np.ones((2, LANES), np.int16)
    shard = Shard(codes.view(np.uint8), np.ones((200, 1), np.float32), None, 50)
    scan_all(shard, asked, -1, 300, floors, kept, piece=piece, step=step, unit=unit * step)
    values, ids, counts = kept
    for query, least in ((0, 0), (1, 142)):
        wanted = [row for row in range(200) if row % step < piece and row >= least]
        assert ids[query, : counts[query]].tolist() == [50 + row for row in wanted]
        assert values[query, : counts[query]].tolist() == [row - 100 for row in wanted]


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 2 * TILE + 13),
    width=st.sampled_from([LANES, 5 * LANES, 256]),
    queries=st.integers(1, 3),
    share=st.floats(0, 1),
    unit=st.sampled_from([TILE, 1 << 14]),
    seed=st.integers(0, 1000),
)
def test_rows_are_chosen_by_their_signs(
    rows: int, width: int, queries: int, share: float, unit: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (rows, width)).astype(np.int8)
    scales = rng.uniform(0.5, 1, (rows, 1)).astype(np.float32)
    signs = Signs.of(Codes(codes.view(np.uint8), scales, None))
    values = rng.integers(-(2**14), 2**14, (queries, width)).astype(np.int16)
    coded = CodedQueries(values.astype(np.float32), values, np.zeros(queries, np.float32))
    products = (values.astype(np.int64) @ codes.T.astype(np.int64)).astype(np.float32) * scales.T
    least = np.quantile(products, share, axis=1).astype(np.float32)
    for deviations in (0, 2):
        asked = SignQueries.of(coded, least, deviations)
        kept = buffers(queries, rows + TILE)
        floors = np.full(queries, -np.inf, np.float32)
        shard = Shard(codes.view(np.uint8), scales, None, 70, signs=signs)
        picked = scan_all(shard, values, -1, rows, floors, kept, signs=asked, unit=unit)
        bits = np.where(codes >= 0, 1, -1).astype(np.float32)
        squares = (codes.astype(np.float32) ** 2).sum(1)
        own = scales[:, 0] * squares / np.maximum(np.abs(codes.astype(np.float32)).sum(1), 1)
        for query, value in enumerate(values.astype(np.float32)):
            step = np.abs(value).max() / 7
            estimates = own * (bits @ np.rint(value / step)) * step
            room = deviations * np.sqrt(1 - 2 / np.pi) * np.linalg.norm(value) * own
            ids = kept[1][query, : kept[2][query]] - 70
            np.testing.assert_array_equal(kept[0][query, : len(ids)], products[query, ids])
            edge = np.abs(estimates + room - least[query]) < 1e-3 * np.abs(room + 1).max()
            wanted = np.flatnonzero((estimates + room >= least[query]) & ~edge)
            np.testing.assert_array_equal(ids[~edge[ids]], wanted)
        assert picked == kept[2].sum()


def test_an_estimate_by_signs_is_near_the_product() -> None:
    some = vectors(5000, 256, seed=1)
    quantizer = fit_quantizer("int8", some)
    codes = quantizer.encode(some)
    signs, coded = Signs.of(codes), quantizer.queries(some[:20])
    groups = signs.bits.reshape(-1, 4, GROUP).transpose(0, 2, 1).reshape(-1, 4)[:5000]
    bits = np.unpackbits(groups.view(np.uint8), axis=1, bitorder="little").astype(np.float32)
    estimates = coded.rotated @ (2 * bits - 1).T * signs.scales.T + coded.offsets[:, None]
    errors = estimates - some[:20] @ some.T
    deviations = np.linalg.norm(coded.rotated, axis=1)[:, None] * signs.scales.T * 0.603
    errors = (errors / deviations)[~np.eye(20, 5000, dtype=bool)]
    assert abs(errors.mean()) < 0.05
    assert 0.9 < errors.std() < 1.05
    assert np.abs(errors).max() < 5.5


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


@numba.njit
def _of_rows(codes: Any, queries: Any, sums: Any) -> None:
    scan.sums_of_two(codes, 0, 0, queries, 0, sums)


SUMS = {8: _of_bytes, 4: _of_fours, 2: _of_twos}


def values_of(codes: np.ndarray, bits: int) -> list[int]:
    """Return the numbers of some bytes, in a loop: of each byte the lowest bits, then the next."""
    if bits == 8:
        return [int(code) - 256 * (code > 127) for code in codes]
    parts = range(8 // bits)
    return [(int(code) >> bits * part) % 2**bits for part in parts for code in codes]


def expected_sums(codes: np.ndarray, bits: int, queries: np.ndarray) -> tuple[int, ...]:
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
    assert SUMS[bits](codes, one, two) == expected_sums(codes, bits, np.array([one, two]))


@pytest.mark.parametrize("query", [-(2**15) + 1, 2**15 - 1])
@pytest.mark.parametrize(("bits", "byte"), [(8, 128), (8, 255), (8, 127), (4, 255), (2, 255)])
def test_extreme_codes_up_to_the_ends_of_int32(bits: int, byte: int, query: int) -> None:
    width = LANES * (16 if bits == 8 else 3)
    codes = np.full(width, byte, np.uint8)
    queries = np.full((2, width * (8 // bits)), query, np.int16)
    queries[1] = -queries[1]
    wanted = values_of(codes[:1], bits)[0] * query * width * (8 // bits)
    assert abs(wanted) < 2**31
    assert SUMS[bits](codes, *queries) == (wanted, -wanted)
    if bits == 8:
        sums = np.zeros((2, ROWS), np.int32)
        _of_rows(np.tile(codes, (ROWS, 1)), queries, sums)
        assert sums.tolist() == [[wanted] * ROWS, [-wanted] * ROWS]
