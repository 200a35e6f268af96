from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bank.memory import cut, expected, similarities
from tests.bank.test_quantization import vectors
from tilth.bank.quantization import FORMATS, Codes, Floats, Quantizer, fit_quantizer
from tilth.bank.search import exact as search
from tilth.bank.search.exact import find_candidates as find
from tilth.bank.search.exact import rescore
from tilth.bank.search.scan import TILE

ROWS, DIMENSION = 3 * TILE + 77, 40
SIZES = [1, 1, TILE, 300, ROWS - TILE - 302]
# Around the numbers of queries from which on they are multiplied.
MANY = (1, 2, 3, 15, 16, 17, 31, 32, 33, 70)


def is_many(form: str, queries: int) -> bool:
    return queries > {"int8": 16, "compact": 32}[form]


@cache
def _made(form: str, equal: int) -> tuple[Quantizer, Codes, Floats]:
    some = vectors(ROWS + 70, DIMENSION, seed=3)
    some[5 : 5 + 2 * equal : 2] = some[5]
    quantizer = fit_quantizer(form, some)  # type: ignore[arg-type]
    return quantizer, quantizer.encode(some[:ROWS]), some[ROWS:]


def made(form: str, *, equal: int = 0) -> tuple[Quantizer, Codes, Floats]:
    """Return a quantizer, coded sentences of which some are equal, and queries."""
    quantizer, codes, asked = _made(form, equal)
    return quantizer, codes, asked.copy()


def check(
    found: search.Candidates, exact: np.ndarray, best: int, mask: np.ndarray | None = None
) -> None:
    """Check against brute force, to the rounding of floats: who is in, of equal ones the first."""
    check_that(found, exact, expected(exact, best, mask), mask)


def check_that(
    found: search.Candidates, exact: np.ndarray, wanted: np.ndarray, mask: np.ndarray | None = None
) -> None:
    np.testing.assert_array_equal(found.ids < 0, wanted < 0)
    assert np.isneginf(found.similarities[wanted < 0]).all()
    for row, ids, places, values in zip(exact, found.ids, wanted, found.similarities, strict=True):
        own, places = ids[ids >= 0], places[places >= 0]
        assert (np.diff(own) > 0).all()
        assert mask is None or mask[own].all()
        if not len(own):
            continue
        np.testing.assert_allclose(-np.sort(-row[own]), row[places], atol=3e-6)
        np.testing.assert_allclose(values[ids >= 0], row[own], atol=3e-6)
        equal = row == row[own].min()
        among = np.flatnonzero(equal if mask is None else equal & mask)
        assert own[equal[own]].tolist() == among[: equal[own].sum()].tolist()


@pytest.mark.parametrize("queries", MANY)
@pytest.mark.parametrize("form", FORMATS)
def test_the_scan_is_brute_force_over_the_codes(form: str, queries: int) -> None:
    quantizer, codes, asked = made(form, equal=40)
    exact = similarities(quantizer, codes, asked[:queries], many=is_many(form, queries))
    wanted = expected(exact, ROWS + 9)
    for sizes in ([ROWS], SIZES, [1] * 50 + [ROWS - 50]):
        for best in (1, 10, 700, ROWS, ROWS + 9):
            found = find(cut(codes, sizes), quantizer, asked[:queries], best, threads=2)
            check_that(found, exact, wanted[:, :best])


@pytest.mark.parametrize("queries", MANY)
@pytest.mark.parametrize("form", FORMATS)
def test_threads_shards_and_blocks_change_nothing(
    form: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantizer, codes, asked = made(form, equal=40)
    asked[0] = quantizer.decode(codes)[5] / np.linalg.norm(quantizer.decode(codes)[5])
    first = find(cut(codes, [ROWS]), quantizer, asked[:queries], 30, threads=1)
    assert first.ids[0].tolist() == list(range(5, 65, 2))  # the lowest of 40 equal ones
    for name, value in (("_ROWS_AT_ONCE", 600), ("_PRODUCTS_AT_ONCE", 1), ("_BUFFERS", 1)):
        for threads in (1, 2, 3):
            again = find(cut(codes, SIZES), quantizer, asked[:queries], 30, threads=threads)
            if name != "_BUFFERS" or not is_many(form, queries):
                np.testing.assert_array_equal(again.ids, first.ids)
                np.testing.assert_array_equal(again.similarities, first.similarities)
        monkeypatch.setattr(search, name, value)
    # With buffers for one query at a time, many are few, whose rounding is finer.
    again = find(cut(codes, SIZES), quantizer, asked[:queries], 30, threads=2)
    one, two = (np.sort(found.similarities, axis=1) for found in (again, first))
    np.testing.assert_allclose(one, two, atol=5e-3)


@pytest.mark.parametrize("queries", [1, 4, 9, 70])
@pytest.mark.parametrize("form", FORMATS)
def test_only_chosen_sentences_are_looked_at(form: str, queries: int) -> None:
    quantizer, codes, asked = made(form)
    asked = asked[:queries]
    exact = similarities(quantizer, codes, asked, many=is_many(form, queries))
    rng = np.random.default_rng(0)
    masks = {
        "some": rng.random(ROWS) < 0.3,
        "few": rng.random(ROWS) < 0.01,
        "one": np.arange(ROWS) == ROWS - 1,
        "whole shards": np.repeat([True, False, True, False, True], SIZES),
        "none": np.zeros(ROWS, np.bool_),
        "all": np.ones(ROWS, np.bool_),
    }
    for mask in masks.values():
        shards = cut(codes, SIZES)

        def chosen(shard: Any, mask: np.ndarray = mask) -> np.ndarray | None:
            own = mask[shard.first : shard.first + shard.sentences]
            return None if own.all() else own

        for best in (1, 50, ROWS):
            found = find(shards, quantizer, asked, best, threads=2, selected=chosen)
            check(found, exact, best, mask)


@settings(deadline=None, max_examples=60)
@given(
    form=st.sampled_from(FORMATS),
    sizes=st.lists(st.integers(1, 700), min_size=1, max_size=6),
    best=st.integers(1, 900),
    queries=st.sampled_from(MANY),
    threads=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    kinds=st.integers(1, 2000),
    sampled=st.tuples(st.integers(2, 64), st.integers(1, 32)),
    seed=st.integers(0, 99),
)
def test_any_shards_and_any_choice(
    form: str, sizes: list[int], best: int, queries: int, threads: int, share: float, kinds: int,
    sampled: tuple[int, int], seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    some = vectors(kinds, 25, seed=seed)
    quantizer = fit_quantizer(form, some)
    codes = quantizer.encode(some[rng.integers(0, kinds, sum(sizes))])  # many equal ones
    asked = vectors(queries, 25, seed=seed + 1)
    mask = rng.random(sum(sizes)) < share

    def chosen(shard: Any) -> np.ndarray:
        return mask[shard.first : shard.first + shard.sentences]

    with pytest.MonkeyPatch.context() as patch:
        sample(patch, *sampled)
        found = find(cut(codes, sizes), quantizer, asked, best, threads=threads, selected=chosen)
    exact = similarities(quantizer, codes, asked, many=is_many(form, queries))
    check(found, exact, best, mask)


def sample(patch: pytest.MonkeyPatch, sampled: int, piece: int) -> None:
    """Let a search look at one sentence of some beforehand, in pieces of some."""
    patch.setattr(search, "_SAMPLED", sampled)
    patch.setattr(search, "_PIECE", piece)


def watch(patch: pytest.MonkeyPatch) -> list[str]:
    """Return what will fill with a word for each time that the sentences are gone over."""
    passes: list[str] = []
    real = search._pass

    def watched(*arguments: Any) -> Any:
        piece, step = arguments[-2:]
        passes.append("all" if piece == step else "sample")
        return real(*arguments)

    patch.setattr(search, "_pass", watched)
    return passes


def near_some(form: str, places: np.ndarray, queries: int) -> tuple[Quantizer, Codes, Floats]:
    """Return sentences, and queries that are near to those at some places alone."""
    some = vectors(ROWS + queries, DIMENSION, seed=5)
    asked = some[ROWS:]
    asked[1:] = asked[1:] + 9 * asked[:1]
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    some[places] = some[places] + 3 * asked[0]
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    quantizer = fit_quantizer(form, some)  # type: ignore[arg-type]
    return quantizer, quantizer.encode(some[:ROWS]), asked


@pytest.mark.parametrize("queries", [1, 2, 5, 16])
@pytest.mark.parametrize("form", FORMATS)
def test_a_sample_that_misleads_is_found_out(
    form: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(monkeypatch, 8, 8)
    passes = watch(monkeypatch)
    looked_at = np.flatnonzero(np.arange(ROWS) % 64 < 8)
    best = 100
    # Of 100 wanted, an eighth is expected in the sample; now there are 75, and no more elsewhere.
    quantizer, codes, asked = near_some(form, looked_at[:75], queries)
    exact = similarities(quantizer, codes, asked, many=False)
    assert np.isin(expected(exact, 70), looked_at).all()
    for threads in (1, 2, 3):
        passes.clear()
        found = find(cut(codes, [ROWS]), quantizer, asked, best, threads=threads)
        check(found, exact, best)
        assert passes == ["sample", "all", "all"]
    # The same where only some are chosen, and the sample is one of those.
    mask = np.random.default_rng(0).random(ROWS) < 0.9
    chosen_ones = np.flatnonzero(mask)
    looked_at = chosen_ones[np.arange(len(chosen_ones)) % 64 < 8]
    quantizer, codes, asked = near_some(form, looked_at[:75], queries)
    passes.clear()
    found = find(cut(codes, [ROWS]), quantizer, asked, best, threads=2, selected=lambda _: mask)
    check(found, similarities(quantizer, codes, asked, many=False), best, mask)
    assert passes == ["sample", "all", "all"]


@pytest.mark.parametrize("form", FORMATS)
def test_one_query_that_was_misled_is_enough(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(monkeypatch, 8, 8)
    passes = watch(monkeypatch)
    quantizer, codes, asked = near_some(form, np.flatnonzero(np.arange(ROWS) % 64 < 8)[:75], 1)
    asked = np.concatenate([made(form)[2][:2], asked])
    for queries, wanted in ((asked[:2], ["sample", "all"]), (asked, ["sample", "all", "all"])):
        passes.clear()
        found = find(cut(codes, [ROWS]), quantizer, queries, 100, threads=2)
        check(found, similarities(quantizer, codes, queries, many=False), 100)
        assert passes == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_a_sample_that_sees_none_of_the_nearest_does_no_harm(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample(monkeypatch, 8, 8)
    passes = watch(monkeypatch)
    quantizer, codes, asked = near_some(form, np.flatnonzero(np.arange(ROWS) % 64 >= 8)[:400], 3)
    for best in (10, 100, 200):
        passes.clear()
        found = find(cut(codes, [ROWS]), quantizer, asked, best, threads=2)
        check(found, similarities(quantizer, codes, asked, many=False), best)
        assert passes == ["sample", "all"]


@pytest.mark.parametrize("sizes", [[13_000], [1] * 40 + [12_960], [1000] * 13, [250] * 52])
@pytest.mark.parametrize("form", FORMATS)
def test_normally_the_sample_is_right(
    form: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = watch(monkeypatch)
    some = vectors(13_016, DIMENSION, seed=6)
    quantizer = fit_quantizer(form, some)  # type: ignore[arg-type]
    codes, asked = quantizer.encode(some[:13_000]), some[13_000:]
    exact = similarities(quantizer, codes, asked, many=False)
    for best in (1, 10, 150):
        passes.clear()
        check(find(cut(codes, sizes), quantizer, asked, best, threads=2), exact, best)
        assert passes == ["sample", "all"]
    mask = np.random.default_rng(0).random(13_000) < 0.7

    def chosen(shard: Any) -> np.ndarray:
        return mask[shard.first : shard.first + shard.sentences]

    passes.clear()
    found = find(cut(codes, sizes), quantizer, asked, 40, threads=2, selected=chosen)
    check(found, exact, 40, mask)
    assert passes == ["sample", "all"]
    # Too few for a sample to say anything, and so small shards that it would be nearly all.
    for others, best in ((sizes, 500), ([50] * 260, 10)):
        passes.clear()
        check(
            find(cut(codes, others), quantizer, asked[:1], best, threads=2),
            exact[:1],
            best,
        )
        assert passes == ["all"]


def test_rescoring_has_the_similarities_of_all_bits() -> None:
    quantizer, codes, asked = made("int8")
    decoded = quantizer.decode(codes)
    ids = np.random.default_rng(0).integers(-1, ROWS, (70, 33))
    ids[0] = -1
    for threads in (1, 3):
        found = rescore(cut(codes, SIZES), quantizer, asked, ids, threads=threads)
        for query, row in enumerate(ids):
            wanted = np.where(row < 0, -np.inf, decoded[row] @ asked[query])
            np.testing.assert_allclose(found[query], wanted, atol=2e-6)


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    pairs = zip(found, truth, strict=True)
    return sum(len(np.intersect1d(one, two)) for one, two in pairs) / truth.size


def nearest(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("queries", [2, 30])
def test_recall_of_int8(queries: int) -> None:
    some = vectors(20_030, 256, seed=1)
    quantizer = fit_quantizer("int8", some[:5000])
    shards: Sequence[Any] = cut(quantizer.encode(some[:20_000]), [20_000])
    asked = some[20_000 : 20_000 + queries]
    truth = nearest(asked @ some[:20_000].T, 1000)
    found = find(shards, quantizer, asked, 1200, threads=2)
    coarse = np.take_along_axis(found.ids, nearest(found.similarities, 1000), axis=1)
    assert recall(coarse, truth) >= 0.98
    again = rescore(shards, quantizer, asked, found.ids, threads=2)
    best = np.take_along_axis(found.ids, nearest(again, 1000), axis=1)
    assert recall(best, truth) >= 0.995


def test_recall_of_compact_within_three_times_as_many() -> None:
    some = vectors(20_010, 256, seed=1)
    quantizer = fit_quantizer("compact", some[:5000])
    shards = cut(quantizer.encode(some[:20_000]), [20_000])
    truth = nearest(some[20_000:] @ some[:20_000].T, 1000)
    found = find(shards, quantizer, some[20_000:], 3000, threads=2)
    inside = [np.isin(own, ids).mean() for own, ids in zip(truth, found.ids, strict=True)]
    assert np.mean(inside) >= 0.97
