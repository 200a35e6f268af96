import threading
import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bank.memory import cut, expected, similarities
from tests.bank.test_quantization import vectors
from tilth.bank.quantization import Codes, Floats, Quantizer, fit_quantizer
from tilth.bank.search import exact as search
from tilth.bank.search.exact import TILE, Products, rescore
from tilth.bank.search.exact import find_candidates as find
from tilth.limits import FORMAT

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
    quantizer = fit_quantizer(form, some)
    return quantizer, quantizer.encode(some[:ROWS]), some[ROWS:]


def made(form: str, *, equal: int = 0) -> tuple[Quantizer, Codes, Floats]:
    """Return a quantizer, coded sentences of which some are equal, and queries."""
    quantizer, codes, asked = _made(form, equal)
    return quantizer, codes, asked.copy()


def check(found: np.ndarray, exact: np.ndarray, best: int, mask: np.ndarray | None = None) -> None:
    """Check against brute force, to the rounding of floats: who is in, of equal ones the first."""
    wanted = expected(exact, best, mask)
    np.testing.assert_array_equal(found < 0, wanted < 0)
    for row, ids, places in zip(exact, found, wanted, strict=True):
        own, places = ids[ids >= 0], places[places >= 0]
        assert (np.diff(own) > 0).all()
        assert mask is None or mask[own].all()
        if not len(own):
            continue
        np.testing.assert_allclose(-np.sort(-row[own]), row[places], atol=3e-6)
        equal = row == row[own].min()
        among = np.flatnonzero(equal if mask is None else equal & mask)
        assert own[equal[own]].tolist() == among[: equal[own].sum()].tolist()


def chosen(mask: np.ndarray, shard: Any) -> np.ndarray:
    return mask[shard.first : shard.first + shard.sentences]


@pytest.mark.parametrize("queries", MANY)
@pytest.mark.parametrize("form", FORMAT.names)
def test_threads_shards_and_blocks_change_nothing(
    form: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantizer, codes, asked = made(form, equal=40)
    asked[0] = quantizer.decode(codes)[5] / np.linalg.norm(quantizer.decode(codes)[5])
    first = find(cut(codes, [ROWS]), quantizer, asked[:queries], 30, threads=1)
    assert first[0].tolist() == list(range(5, 65, 2))  # the lowest of 40 equal ones
    for name, value in (("_ROWS_AT_ONCE", 600), ("_PRODUCTS_AT_ONCE", 1), ("_BUFFERS", 1)):
        for threads in (1, 2, 3):
            again = find(cut(codes, SIZES), quantizer, asked[:queries], 30, threads=threads)
            np.testing.assert_array_equal(again, first)
        monkeypatch.setattr(search, name, value)
    # With buffers for one query at a time.
    again = find(cut(codes, SIZES), quantizer, asked[:queries], 30, threads=2)
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("queries", [2, 70])
@pytest.mark.parametrize("best", [30, ROWS])
@pytest.mark.parametrize("form", FORMAT.names)
def test_shares_of_the_shards_merge_to_the_whole(form: str, best: int, queries: int) -> None:
    quantizer, codes, asked = made(form, equal=40)
    asked = asked[:queries]
    asked[0] = quantizer.decode(codes)[5] / np.linalg.norm(quantizer.decode(codes)[5])
    whole = find(cut(codes, SIZES), quantizer, asked, best, threads=1)
    shards = cut(codes, SIZES)
    answers, coded = [], quantizer.queries(asked)
    for share in (shards[3:], shards[:2], shards[2:3]):  # in any order
        most = min(best, sum(shard.sentences for shard in share))
        few = search.is_few(quantizer, queries)
        ids, values = search.best_by_codes(share, quantizer, coded, most, threads=2, few=few)
        answers.append((ids, values, ids.astype(np.float32)))
    merged = answers[0]
    for answer in answers[1:]:
        merged = search.merge_best(merged, answer, best)
    np.testing.assert_array_equal(merged[0], whole)
    np.testing.assert_array_equal(merged[2], whole.astype(np.float32))
    assert (np.sort(merged[1], axis=1)[:, 0] > -np.inf).all()


@settings(deadline=None, max_examples=80)
@given(
    form=st.sampled_from(FORMAT.names),
    sizes=st.lists(st.one_of(st.just(1), st.integers(1, 700)), min_size=1, max_size=6),
    best=st.one_of(st.integers(1, 100), st.integers(1, 3000)),
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

    with pytest.MonkeyPatch.context() as patch:
        sample(patch, *sampled)
        selected = partial(chosen, mask)
        found = find(cut(codes, sizes), quantizer, asked, best, threads=threads, selected=selected)
    exact = similarities(quantizer, codes, asked, many=is_many(form, queries))
    check(found, exact, best, mask)


def sample(patch: pytest.MonkeyPatch, sampled: int, piece: int) -> None:
    """Let a search look at one sentence of some beforehand, in pieces of some."""
    patch.setattr(search, "_SAMPLED", (sampled,))
    patch.setattr(search, "_PIECE", piece)


def watch(patch: pytest.MonkeyPatch) -> list[str]:
    """Return what will fill with a word for each time that the sentences are gone over."""
    passes: list[str] = []
    real = search._pass

    def watched(*arguments: Any) -> Any:
        _, _, _, _, piece, step, *signs = arguments
        passes.append(
            "sample" if piece < step else "signs" if signs != [None] * len(signs) else "all"
        )
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
    quantizer = fit_quantizer(form, some)
    return quantizer, quantizer.encode(some[:ROWS]), asked


SEEN = np.flatnonzero(np.arange(ROWS) % 64 < 8)
UNSEEN = np.flatnonzero(np.arange(ROWS) % 64 >= 8)


@pytest.mark.parametrize(
    ("near", "best", "passes"),
    [
        # Of 100 wanted, an eighth is expected in the sample; here are 75, and no more elsewhere.
        (SEEN[:75], 100, ["sample", "all", "all"]),
        (UNSEEN[:400], 10, ["sample", "all"]),
        (UNSEEN[:400], 200, ["sample", "all"]),
    ],
)
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("form", FORMAT.names)
def test_a_sample_that_misleads_is_found_out(
    form: str, queries: int, near: np.ndarray, best: int, passes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sample(monkeypatch, 8, 8)
    made_passes = watch(monkeypatch)
    quantizer, codes, asked = near_some(form, near, queries)
    # Some queries that the sample does not mislead change nothing.
    asked = np.concatenate([made(form)[2][:2], asked])
    exact = similarities(quantizer, codes, asked, many=False)
    for threads in (1, 3):
        made_passes.clear()
        check(find(cut(codes, [ROWS]), quantizer, asked, best, threads=threads), exact, best)
        assert made_passes == passes


@pytest.mark.parametrize("sizes", [[13_000], [1] * 40 + [12_960], [1000] * 13, [250] * 52])
@pytest.mark.parametrize("form", FORMAT.names)
def test_normally_the_sample_is_right(
    form: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = watch(monkeypatch)
    some = vectors(13_016, DIMENSION, seed=6)
    quantizer = fit_quantizer(form, some)
    codes, asked = quantizer.encode(some[:13_000]), some[13_000:]
    exact = similarities(quantizer, codes, asked, many=False)
    for best in (1, 10, 150):
        passes.clear()
        check(find(cut(codes, sizes), quantizer, asked, best, threads=2), exact, best)
        assert passes == ["sample", "all"]
    mask = np.random.default_rng(0).random(13_000) < 0.7

    passes.clear()
    found = find(cut(codes, sizes), quantizer, asked, 40, threads=2, selected=partial(chosen, mask))
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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", [[13_000], [1] * 40 + [12_960], [1003] * 12 + [964]])
def test_signs_leave_out_no_sentence_that_is_among_the_best(
    sizes: list[int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = watch(monkeypatch)
    some = vectors(13_016, 200, seed=7)
    some[200:240] = some[100]  # of equal ones the first stay
    quantizer = fit_quantizer("int8", some)
    codes, asked = quantizer.encode(some[:13_000]), some[13_000:]
    asked[0] = some[100]
    monkeypatch.setattr(search, "_ROWS_AT_ONCE", 3 * TILE)
    monkeypatch.setattr(search, "_MOST_BY_SIGNS", 99.0)
    for best in (1, 10, 40):
        plain = find(cut(codes, sizes), quantizer, asked, best, threads=threads)
        passes.clear()
        shards = cut(codes, sizes, signs=True)
        found = find(shards, quantizer, asked, best, threads=threads)
        np.testing.assert_array_equal(found, plain)
        assert passes == ["sample", "signs", "signs"]  # the second for the share, the last for all
    # Some shards may have none, as in a bank that an earlier version began.
    shards[0].signs = None
    passes.clear()
    np.testing.assert_array_equal(find(shards, quantizer, asked, 40, threads=threads), plain)
    assert passes == ["sample", *(["signs"] * 2 if len(sizes) > 1 else ["all"])]
    mask = np.random.default_rng(0).random(13_000) < 0.9

    for one in (cut(codes, sizes), shards):
        found = find(one, quantizer, asked, 40, threads=threads, selected=partial(chosen, mask))
        check(found, similarities(quantizer, codes, asked, many=False), 40, mask)
    # Where the signs of too many sentences say that they may be among the best, all are read.
    monkeypatch.setattr(search, "_MOST_BY_SIGNS", 0.0)
    passes.clear()
    np.testing.assert_array_equal(find(shards, quantizer, asked, 40, threads=threads), plain)
    assert passes == ["sample", *(["signs"] if len(sizes) > 1 else []), "all"]


def test_an_interrupt_stops_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    quantizer, codes, asked = made("int8")
    monkeypatch.setattr(search, "_UNIT", 8)
    monkeypatch.setattr(search, "_UNITS_A_CALL", 1)
    real, begun, calls = search.scan, threading.Event(), []

    def interrupted(*arguments: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait()
            raise KeyboardInterrupt
        begun.set()
        time.sleep(0.01)
        calls.append(real(*arguments))

    monkeypatch.setattr(search, "scan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find(cut(codes, SIZES), quantizer, asked[:2], ROWS, threads=2)
    assert 1 <= len(calls) < ROWS // 8 // 4


@pytest.mark.parametrize("form", FORMAT.names)
def test_products_of_integers_and_floats_are_the_same(form: str) -> None:
    quantizer, codes, asked = made(form)
    asked = np.concatenate([asked[:16], np.zeros_like(asked[:1])])
    products = Products(quantizer, quantizer.queries(asked))
    answers = []
    for products._in_integers in (True, False):
        products(codes.codes[:3])  # its room is too small for the next block
        answers.append([group.copy() for group in products(codes.codes)])
    np.testing.assert_array_equal(*answers)
    for group in answers[0]:
        assert group.shape == (ROWS, 32)
        assert not group[:, 16:].any()  # the zero query and the padding


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
    coarse = find(shards, quantizer, asked, 1000, threads=2)
    assert recall(coarse, truth) >= 0.98
    again = rescore(shards, quantizer, asked, found, threads=2)
    best = np.take_along_axis(found, nearest(again, 1000), axis=1)
    assert recall(best, truth) >= 0.995


def test_recall_of_compact_within_three_times_as_many() -> None:
    some = vectors(20_010, 256, seed=1)
    quantizer = fit_quantizer("compact", some[:5000])
    shards = cut(quantizer.encode(some[:20_000]), [20_000])
    truth = nearest(some[20_000:] @ some[:20_000].T, 1000)
    found = find(shards, quantizer, some[20_000:], 3000, threads=2)
    inside = [np.isin(own, ids).mean() for own, ids in zip(truth, found, strict=True)]
    assert np.mean(inside) >= 0.97
