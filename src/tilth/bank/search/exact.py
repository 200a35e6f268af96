"""Find the nearest sentences exactly: scan all codes, rescore the best candidates with all bits.

Few queries use compiled sums at memory bandwidth, many use blockwise matrix products. Both are
exact over the codes, but for what signs may miss (`_DEVIATIONS`), and independent of the number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilth.bank.quantization import CodedQueries, Floats, Quantizer, SignQueries, Signs
from tilth.bank.settings import GROUP, STRETCH
from tilth.bank.store import Ids, MappedShard, Selected
from tilth.object_code import Compiled

if TYPE_CHECKING:
    from torch import Tensor

scan = Compiled("tilth.bank.search.scan", "scan")
gather = Compiled("tilth.bank.search.scan", "gather")
rescore_int8 = Compiled("tilth.bank.search.scan", "rescore_int8")

T = TypeVar("T")

# Rows whose values stay in the nearest cache until they are compared.
TILE = 512
# Rows whose signs are compared before the codes of some are read, many enough to read ahead.
SIGN_TILE = 8192
# Up to this many queries compiled sums are faster than matrix products.
_FEW = {"int8": 16, "compact": 32}
_ROWS_AT_ONCE = 1 << 17
# Rows that a thread takes at a time, and how often before it looks whether it is to stop.
_UNIT, _UNITS_A_CALL = 1 << 14, 64
# Products that fit into the last-level cache.
_PRODUCTS_AT_ONCE = 1 << 21
# Buffers of one pass over the bank, in bytes; more queries take several passes.
_BUFFERS = 1 << 30
# The first pass samples one sentence in 64, of banks that are large for what is wanted one in 256,
# in pieces of _PIECE rows.
_SAMPLED, _PIECE = (256, 64), 32
# With signs the sample is larger: floors are higher, and fewer codes are read after their signs.
_SAMPLED_FOR_SIGNS = (64,)
# A sentence among the best whose estimate by signs is too low by so many deviations is missed:
# one of 300,000 that are just above the floor.
_DEVIATIONS = 4.5
# If more sentences than this share must be read after their signs, reading all in order is faster.
# It is measured on the first rows of some blocks.
_MOST_BY_SIGNS, _PROBES, _PROBED = 0.4, 16, 1024
# Pairs that are rescored in less time than threads take to start.
_WORTH_THREADS = 2000
# Query columns are padded to a multiple: integer products are faster on such shapes.
_COLUMNS = 16


def find_candidates(
    shards: Sequence[MappedShard],
    quantizer: Quantizer,
    queries: Floats,
    best: int,
    *,
    threads: int,
    selected: Selected | None = None,
) -> Ids:
    """Return the best sentences of each query by their codes.

    Args:
        queries: L2-normalised. # (queries, dimension)
        best: candidates per query, at least 1.

    Returns:
        Ascending ids; -1 after the last. # (queries, best)
    """
    coded, few = quantizer.queries(queries), is_few(quantizer, len(queries))
    at_once = max(1, _BUFFERS // (2 * best * 12 * threads))
    return np.concatenate(
        [
            best_by_codes(
                shards, quantizer, coded[start : start + at_once], best, threads=threads, few=few,
                selected=selected,
            )[0]
            for start in range(0, len(coded), at_once)
        ]
    )  # fmt: skip


def is_few(quantizer: Quantizer, queries: int) -> bool:
    """Return whether so many queries are compared by compiled sums, which round less."""
    return queries <= _FEW[quantizer.format]


def best_by_codes(
    shards: Sequence[MappedShard],
    quantizer: Quantizer,
    queries: CodedQueries,
    best: int,
    *,
    threads: int,
    few: bool,
    selected: Selected | None = None,
) -> tuple[Ids, Floats]:
    """Return the best sentences of each query in one pass, and what orders them.

    Args:
        few: compare by compiled sums, not by matrix products.

    Returns:
        Ascending ids, -1 after the last; values that are comparable within a query, -inf after
        the last. # each (queries, best)
    """
    search = _Search(quantizer, queries, best, threads, few)
    return _find_in_one_pass(shards, search, selected)


def merge_best(one: tuple[Ids, ...], other: tuple[Ids, ...], best: int) -> tuple[Any, ...]:
    """Return the best of two answers of `best_by_codes`, of sentences that they do not share.

    Args:
        one: ids, values, and further arrays of the same shape.
    """
    joined = [np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True)]
    order = np.argsort(joined[0].astype(np.uint64), axis=1, kind="stable")  # -1 last
    joined = [np.take_along_axis(array, order, axis=1) for array in joined]
    if joined[0].shape[1] <= best:
        return tuple(joined)
    pairs = zip(joined[1], joined[0].astype(np.uint64), strict=True)
    kept = np.stack([_best_of(values, ids, best) for values, ids in pairs])
    return tuple(array[kept].reshape(-1, best) for array in joined)


@dataclass(frozen=True, slots=True)
class _Search:
    """The queries of a pass, and what is wanted of each."""

    quantizer: Quantizer
    queries: CodedQueries
    best: int
    threads: int
    few: bool


@dataclass(slots=True)
class _Best:
    """The best values of one thread.

    Attributes:
        picked: rows whose codes were read after their signs. # (1,)
    """

    values: Floats
    ids: Ids
    counts: NDArray[np.int64]
    picked: NDArray[np.int64]

    @classmethod
    def empty(cls, queries: int, room: int) -> _Best:
        shape = queries, room
        return cls(
            np.empty(shape, np.float32), np.empty(shape, np.int64), np.zeros(queries, np.int64),
            np.zeros(1, np.int64),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of a shard, numbered among the selected rows of the bank."""

    shard: MappedShard
    start: int
    stop: int
    rows: Ids | None
    number: int

    def __len__(self) -> int:
        return self.stop - self.start if self.rows is None else len(self.rows)

    @property
    def signs(self) -> Signs | None:
        """The signs of its rows, if all rows of a stretch are selected and the bank has signs."""
        found = self.shard.signs
        if found is None or self.rows is not None:
            return None
        groups = slice(self.start // GROUP, -(-self.stop // GROUP))
        return Signs(found.bits[groups], found.scales[self.start : self.stop])


def _find_in_one_pass(
    shards: Sequence[MappedShard], search: _Search, selected: Selected | None
) -> tuple[Ids, Floats]:
    many, best = len(search.queries.values), search.best
    rows_at_once = (
        _ROWS_AT_ONCE if search.few else max(TILE, _PRODUCTS_AT_ONCE // many // TILE * TILE)
    )
    blocks = list(_blocks(shards, rows_at_once, selected))
    gathered = _scan(blocks, search) if search.few else _multiply(blocks, search)
    ids = np.full((many, best), -1, np.int64)
    values = np.full((many, best), -np.inf, np.float32)
    for query in range(many):
        found = np.concatenate([part.ids[query, : part.counts[query]] for part in gathered])
        own = _values_of(gathered, query)
        if len(found) > best:
            kept = _best_of(own, found, best)
            found, own = found[kept], own[kept]
        order = np.argsort(found)
        found, own = found[order], own[order]
        ids[query, : len(found)], values[query, : len(found)] = found, own
    return (_in_bank(ids, blocks) if selected else ids), values


def _values_of(gathered: Sequence[_Best], query: int) -> Floats:
    return np.concatenate([part.values[query, : part.counts[query]] for part in gathered])


def _least_of(values: Floats, best: int) -> np.float32:
    """Return the value that `best` of all values reach."""
    place = len(values) - best
    least: np.float32 = np.partition(values, place)[place]
    return least


def _best_of(values: Floats, ids: Ids, best: int) -> NDArray[np.bool_]:
    """Return the mask of the best values; of equal ones the lowest ids."""  # (values,)
    least = _least_of(values, best)
    kept: NDArray[np.bool_] = values > least
    edge = np.flatnonzero(values == least)
    edge = edge[np.argsort(ids[edge])]
    kept[edge[: best - int(kept.sum())]] = True
    return kept


def _blocks(
    shards: Sequence[MappedShard], rows_at_once: int, selected: Selected | None
) -> Iterator[_Block]:
    number = 0
    for shard in shards:
        mask = selected(shard) if selected else None
        if mask is not None and not mask.any():
            continue
        for start in range(0, shard.sentences, rows_at_once):
            stop = min(start + rows_at_once, shard.sentences)
            rows = None
            if mask is not None and not mask[start:stop].all():
                rows = np.flatnonzero(mask[start:stop])
                if not len(rows):
                    continue
            yield _Block(shard, start, stop, rows, number if selected else shard.first + start)
            number += stop - start if rows is None else len(rows)


def _in_bank(ids: Ids, blocks: Sequence[_Block]) -> Ids:
    """Convert numbers among the selected sentences to ids of the bank."""
    found: Ids = ids.copy()
    if not blocks:
        return found
    begins = np.array([block.number for block in blocks])
    owners = np.searchsorted(begins, ids, "right") - 1
    for place in np.unique(owners[ids >= 0]):
        block, own = blocks[place], (owners == place) & (ids >= 0)
        rows = ids[own] - block.number
        rows = rows if block.rows is None else block.rows[rows]
        found[own] = block.shard.first + block.start + rows
    return found


def _codes_of(block: _Block) -> tuple[NDArray[np.uint8], Floats]:
    codes = block.shard.codes[block.start : block.stop]
    scales = block.shard.scales[block.start : block.stop]
    if block.rows is not None:
        codes, scales = codes[block.rows], scales[block.rows]
    return codes, scales


def _floors(queries: int, padding: int) -> Floats:
    """Return the initial thresholds: -inf for queries, inf for padding."""
    # Threads raise the floors without a lock. Where two write at once, the lower value may stay:
    # more values are kept then, and the best are the same.
    floors = np.full(queries + padding, -np.inf, np.float32)
    floors[queries:] = np.inf
    return floors


def _scan(blocks: Sequence[_Block], search: _Search) -> list[_Best]:
    """Gather with compiled sums, after a sample has set the floors."""
    # The floors keep out most values below the best. If they are too high, all is scanned again.
    many, best = len(search.queries.values), search.best
    floors = _floors(many, 0)
    pass_over = partial(_pass, blocks, search)
    rows = sum(map(len, blocks))
    with_signs = [block for block in blocks if block.signs is not None]
    samples = _SAMPLED_FOR_SIGNS if with_signs else _SAMPLED
    one_in = next((number for number in samples if rows >= number * best), 0)
    step = _PIECE * max(one_in, 1)
    sampled = sum(len(block) // step * _PIECE + min(len(block) % step, _PIECE) for block in blocks)
    if not one_in or rows < 4 * sampled:  # the sample of small blocks is large
        return pass_over(best, floors, TILE, TILE)
    # Five standard deviations above the expected number of best sentences in the sample.
    expected = best * sampled / rows
    rank = int(np.ceil(expected + 5 * np.sqrt(expected))) + 5
    sample = pass_over(rank, floors.copy(), _PIECE, step)
    guessed = floors.copy()
    for query in range(many):
        found = _values_of(sample, query)
        if len(found) > rank:
            guessed[query] = max(guessed[query], _least_of(found, rank))
    signs = None
    if with_signs and np.isfinite(guessed).all():
        signs = SignQueries.of(search.queries, guessed, _DEVIATIONS)
        if _share_by_signs(with_signs, search, guessed, signs) > _MOST_BY_SIGNS:
            signs = None
    gathered = pass_over(best, guessed.copy(), TILE, TILE, signs)
    counts = sum(part.counts for part in gathered)
    if ((counts < best) & (guessed > floors)).any():
        return pass_over(best, floors, TILE, TILE)
    return gathered


def _share_by_signs(
    blocks: Sequence[_Block], search: _Search, floors: Floats, signs: SignQueries
) -> float:
    """Return the share of rows whose signs say that they may be among the best, of all queries."""
    some = [
        replace(block, stop=min(block.start + _PROBED, block.stop))
        for block in blocks[:: -(-len(blocks) // _PROBES)]
    ]
    found = _pass(some, replace(search, threads=1), search.best, floors.copy(), TILE, TILE, signs)
    return float(found[0].picked[0] / max(sum(map(len, some)), 1))


def _pass(
    blocks: Sequence[_Block],
    search: _Search,
    best: int,
    floors: Floats,
    piece: int,
    step: int,
    signs: SignQueries | None = None,
) -> list[_Best]:
    """Scan all blocks once; each thread takes the next rows."""
    table, following = _addresses(blocks), np.zeros(1, np.int64)
    units = len(blocks) * -(-max(map(len, blocks), default=0) // _UNIT)
    queries, most = search.queries.values, TILE
    dims_4bit = -1 if search.quantizer.format == "int8" else search.quantizer.dims_4bit
    planes, shifts, leasts = np.empty((0, 0), np.uint64), floors, floors
    if signs is not None:
        most, planes, shifts, leasts = SIGN_TILE, signs.planes, signs.shifts, signs.least

    def run() -> _Best:
        room = max(2 * best, best + 4 * most)
        mine, spare = _Best.empty(len(queries), room), np.empty(room, np.float32)
        sums = np.empty((len(queries), most), np.int32)
        tile = np.empty((len(queries), TILE), np.float32)
        rows = np.zeros(2 * most, np.int64)
        width, groups = search.quantizer.row
        codes = np.empty((TILE, width), np.uint8)
        scales = np.empty((TILE, groups), np.float32)
        try:
            while following[0] < units:
                scan(table, following, _UNITS_A_CALL, _UNIT, queries, dims_4bit, planes, shifts,
                     leasts, piece, step, best, floors, mine.values, mine.ids, mine.counts,
                     mine.picked, spare, sums, tile, rows, codes, scales)  # fmt: skip
        finally:
            following[0] = units  # if this thread was interrupted, the others stop, too
        return mine

    return _in_threads(run, search.threads)


def _addresses(blocks: Sequence[_Block]) -> NDArray[np.int64]:
    """Return where blocks are in memory, as `scan` takes them."""
    table = np.zeros((len(blocks), 7), np.int64)
    for line, block in zip(table, blocks, strict=True):
        rows = slice(block.start, block.stop)
        codes, scales = block.shard.codes[rows], block.shard.scales[rows]
        line[:2] = len(block), block.number
        line[2:5] = _address(codes), _address(scales), _address(block.rows)
        if (signs := block.signs) is not None:
            line[5:] = _address(signs.bits), _address(signs.scales)
    return table


def _address(array: NDArray[Any] | None) -> int:
    """Return where an array begins; none: 0."""
    if array is None:
        return 0
    assert array.flags.c_contiguous
    return array.ctypes.data


def _in_threads(work: Callable[[], T], threads: int) -> list[T]:
    """Return what each thread returned; the first is this one."""
    if threads == 1:
        return [work()]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work) for _ in range(threads - 1)]
        return [work(), *(other.result() for other in others)]


class Products:
    """Multiply codes with queries rounded to 8 bits.

    A value is a similarity without the query's offset, divided by the query's step.

    Attributes:
        padding: columns beyond the queries.
    """

    def __init__(self, quantizer: Quantizer, queries: CodedQueries) -> None:
        import torch  # which a scan does without

        self._codec = quantizer
        largest = np.abs(queries.rotated).max(axis=1, initial=0)
        steps = np.maximum(largest, 1e-12) / np.float32(127)
        values = np.rint(queries.rotated / steps[:, None]).astype(np.int8)
        self.padding = -len(values) % _COLUMNS
        values = np.pad(values, ((0, self.padding), (0, 0)))  # (columns, dimensions)
        cuts = [] if quantizer.format == "int8" else [quantizer.dims_4bit]
        pieces = np.split(values, cuts, axis=1)
        self._queries = [torch.from_numpy(piece.T.copy()) for piece in pieces]
        self._room: list[Tensor] = []
        # Elsewhere products of small integers are slower than those of floats.
        self._in_integers = torch.backends.cpu.get_cpu_capability().startswith("AVX512")

    def __call__(self, codes: NDArray[np.uint8]) -> list[NDArray[np.int32]]:
        """Return int32 products per group, (rows, columns); the next call overwrites them."""
        import torch

        groups = [torch.from_numpy(group) for group in self._codec.groups(codes)]
        # Allocating memory costs more than the products.
        if not self._room or len(self._room[0]) < len(codes):
            shape = (len(codes), self._queries[0].shape[1])
            self._room = [torch.empty(shape, dtype=torch.int32) for _ in groups]
        products = [room[: len(codes)] for room in self._room]
        for group, queries, out in zip(groups, self._queries, products, strict=True):
            if self._in_integers:
                torch._int_mm(group, queries, out=out)
            else:  # sums of a thousand such products fit into the 24 bits of a float
                out.copy_(group.float() @ queries.float())
        return [found.numpy() for found in products]


def _multiply(blocks: Sequence[_Block], search: _Search) -> list[_Best]:
    """Gather with matrix products of all queries; threads share the rows of a product."""
    many, best, threads = len(search.queries.values), search.best, search.threads
    products = Products(search.quantizer, search.queries)
    # Small buffers are cleared often: floors rise early, and fewer values are kept.
    room = 2 * best + 16
    gathered = [_Best.empty(many, room) for _ in range(threads)]
    works = [(np.empty(STRETCH, np.float32), np.empty(room, np.float32)) for _ in gathered]
    floors = _floors(many, products.padding)
    # The levels of compact codes lie between integers: products are of doubled values.
    half = np.float32(1 if search.quantizer.format == "int8" else 0.5)

    for block in blocks:
        codes, scales = _codes_of(block)
        found, scales = products(codes), scales * half
        cuts = np.linspace(0, len(scales), threads + 1).astype(int).tolist()
        parts = [
            (found[0][start:stop], found[-1][start:stop], scales[start:stop], block.number + start,
             best, floors, mine.values, mine.ids, mine.counts, *work)
            for (start, stop), mine, work in zip(pairwise(cuts), gathered, works, strict=True)
        ]  # fmt: skip
        gather.each(parts, threads)
    return gathered


def rescore(
    shards: Sequence[MappedShard],
    quantizer: Quantizer,
    queries: Floats | CodedQueries,
    ids: Ids,
    *,
    threads: int,
) -> Floats:
    """Return similarities from all bits of int8 codes.

    Args:
        queries: L2-normalised, or coded. # (queries, dimension)
        ids: -1 for none. # (queries, candidates)

    Returns:
        Similarities; -inf for id -1. # (queries, candidates)
    """
    coded = queries if isinstance(queries, CodedQueries) else quantizer.queries(queries)
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat[order], 0) :]  # without the -1
    firsts = np.array([shard.first for shard in shards])
    cuts = np.searchsorted(flat[order], np.append(firsts, np.iinfo(np.int64).max))
    similarities = np.full(ids.shape, -np.inf, np.float32)
    table, following = np.zeros((len(shards), 6), np.int64), np.zeros(1, np.int64)
    table[:, 0], table[:, 1], table[:, 2] = firsts, cuts[:-1], cuts[1:]
    for line, shard in zip(table, shards, strict=True):
        if line[1] < line[2]:
            line[3:] = [_address(each) for each in (shard.codes, shard.residual, shard.scales)]

    def work() -> None:
        rescore_int8(table, following, order, ids, coded.rotated, coded.offsets, similarities)

    _in_threads(work, threads if len(order) > _WORTH_THREADS else 1)
    return similarities
