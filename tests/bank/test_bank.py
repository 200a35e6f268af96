from itertools import product
from pathlib import Path

import numpy as np
import pytest

import tilth.bank
from tests.tiny import salads, small_parts, tiny_bank, tiny_static, write_lines
from tests.tiny.calls import watched
from tilth.bank import Bank, task_queries
from tilth.bank import bank as module
from tilth.errors import InputError

TEXTS = salads(2000)
MORE = salads(2400)[2000:]
QUERY = "The old man sees a bird near the sea"


@pytest.fixture(scope="module", params=["int8", "compact"])
def bank(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bank:
    """Return a bank of several shards and three sources, two of them in one folder."""
    folder = tmp_path_factory.mktemp("bank")
    (folder / "raw").mkdir()
    sources = [
        write_lines(folder / "raw" / "one.txt", TEXTS[:1200]),
        write_lines(folder / "raw" / "two[1].txt", TEXTS[1200:]),
        write_lines(folder / "three.txt", MORE),
    ]
    with pytest.MonkeyPatch.context() as patch:
        small_parts(patch)
        return Bank.build(
            folder / "bank", sources, encoder=tiny_static(), format=request.param, workers=1,
            quiet=True,
        )  # fmt: skip


def nearest(bank: Bank, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and cosines by brute force over the texts."""
    cosines = vectors @ bank.encode(list(bank)).T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosines, order, axis=1)


def off(bank: Bank) -> float:
    """How far similarities may be from cosines: int8 has 12 bits, compact encodes again."""
    return 2e-3 if bank.manifest.format == "int8" else 1e-5


def test_every_name_is_there_and_no_other() -> None:
    assert len({getattr(tilth.bank, name) for name in tilth.bank.__all__}) == 4
    with pytest.raises(AttributeError, match=r"'tilth\.bank' has no attribute 'Banks'"):
        _ = tilth.bank.Banks


def test_the_bank_is_a_sequence_of_its_sentences(bank: Bank) -> None:
    assert len(bank.manifest.shards) > 3
    texts = list(bank)
    assert len(texts) == len(bank) == sum(shard.sentences for shard in bank.manifest.shards)
    assert set(texts) <= {*TEXTS, *MORE}
    assert [bank[number] for number in (0, 5, len(bank) - 1)] == [texts[0], texts[5], texts[-1]]
    assert bank[-1] == texts[-1]
    assert bank[-len(bank)] == texts[0]
    assert bank[3:9:2] == texts[3:9:2]
    assert bank[-2:] == texts[-2:]
    assert bank[5:5] == []
    for number in (-len(bank) - 1, len(bank), 10**12):
        with pytest.raises(IndexError, match="the bank holds sentences 0 to"):
            bank[number]


def test_rows_in_any_order_with_their_origin(bank: Bank) -> None:
    ids = np.random.default_rng(0).integers(0, len(bank), 300)
    rows = bank.rows(ids)
    texts = list(bank)
    assert rows["text"].to_pylist() == [texts[number] for number in ids]
    every = {"one.txt": TEXTS[:1200], "two[1].txt": TEXTS[1200:], "three.txt": MORE}
    for text, source, line in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        assert every[Path(source).name][line - 1] == text
    assert bank.rows(np.zeros(0, np.int64)).schema == bank.rows(ids).schema


@pytest.mark.parametrize("most", [2**31, 1_000])
def test_many_rows_are_those_of_few(bank: Bank, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    ids = np.random.default_rng(1).integers(0, len(bank), 300)
    few = bank.rows(ids)
    monkeypatch.setattr("tilth.bank.store._FEW", 10)
    monkeypatch.setattr("tilth.bank.store._MOST_BYTES", most)
    many = bank.rows(ids)
    assert many.to_pylist() == few.to_pylist()
    assert (many.schema == few.schema) == (most > 1_000)
    assert bank.texts(ids).to_pylist() == few["text"].to_pylist()


@pytest.mark.parametrize("k", [1, 7, 500, None])
@pytest.mark.parametrize("queries", [1, 4, 20])
def test_hits_are_the_nearest_best_first(bank: Bank, queries: int, k: int | None) -> None:
    k = len(bank) if k is None else k
    vectors = bank.encode(salads(queries, seed=9))
    hits = bank.search(vectors, k=k)
    ids, cosines = nearest(bank, vectors, k)
    assert hits.ids.shape == hits.similarity.shape == (queries, k)
    assert (hits.counts == k).all()
    assert (np.diff(hits.similarity, axis=1) <= 0).all()
    np.testing.assert_allclose(hits.similarity, cosines, atol=off(bank))
    shared = [len(np.intersect1d(*pair)) for pair in zip(hits.ids, ids, strict=True)]
    assert np.mean(shared) >= (0.97 if k > 1 else 0.9) * k
    assert hits.names == [f"query {number}" for number in range(queries)]


def test_hits_show_their_texts_and_origin(bank: Bank) -> None:
    hits = bank.search([QUERY, "red boat"], k=5)
    assert len(hits) == 2
    for query, name in enumerate([QUERY, "red boat"]):
        table = hits.table(query)
        assert table.column_names == [
            "query", "rank", "similarity", "id", "text", "source", "document",
        ]  # fmt: skip
        assert table["query"].to_pylist() == [name] * 5
        assert table["rank"].to_pylist() == [1, 2, 3, 4, 5]
        assert table["id"].to_pylist() == hits.ids[query].tolist()
        assert table["text"].to_pylist() == hits.texts(query) == [bank[n] for n in hits.ids[query]]
        np.testing.assert_array_equal(table["similarity"], hits.similarity[query])


def test_texts_vectors_and_task_queries_ask_the_same(bank: Bank) -> None:
    by_text = bank.search(QUERY, k=9)
    by_list = bank.search([QUERY], k=9)
    by_vector = bank.search(bank.encode([QUERY])[0] * 3, k=9)
    rows = [{"text": QUERY, "label": "x"}]
    by_task = bank.search(task_queries(rows, encoder=bank.encoder), k=9)
    by_array = bank.search(np.array([QUERY]), k=9, own=True)
    by_objects = bank.search(np.array([QUERY], object), k=9)
    by_single = bank.search(np.array(QUERY), k=9)
    vectors = bank.search(bank.encode([QUERY]).astype(object), k=9)
    for other in (by_list, by_vector, by_task, by_array, by_objects, by_single, vectors):
        np.testing.assert_array_equal(other.ids, by_text.ids)
    assert by_task.names == ["x"]
    wide = np.asarray(bank.encode([QUERY]), np.float64) * 1e25
    np.testing.assert_array_equal(bank.search(wide, k=9).ids, by_text.ids)


def test_least_similarity(bank: Bank) -> None:
    vectors = bank.encode([QUERY, *salads(5, seed=4)])
    _, cosines = nearest(bank, vectors, len(bank))
    least = float(cosines[0, 40]) - 1e-4
    hits = bank.search(vectors, k=100, min_similarity=least)
    for query in range(len(vectors)):
        count = hits.counts[query]
        assert (hits.similarity[query, :count] >= least).all()
        assert (hits.ids[query, :count] >= 0).all()
        assert (hits.ids[query, count:] == -1).all()
        assert np.isnan(hits.similarity[query, count:]).all()
        assert len(hits.texts(query)) == len(hits.table(query)) == count
        sure = (cosines[query] >= least + off(bank)).sum()
        maybe = (cosines[query] >= least - off(bank)).sum()
        assert min(sure, 100) <= count <= min(maybe, 100)
    none = bank.search(QUERY, k=3, min_similarity=1.0)
    assert none.counts.tolist() == [0]
    assert none.texts(0) == []
    assert none.table(0).num_rows == 0


def test_what_a_search_returns_is_taken_by_the_next(bank: Bank) -> None:
    hits = bank.search(iter(["the old man"]), k=3, own=False)
    least = hits.similarity[0, 2]
    assert isinstance(least, np.float32)
    again = bank.search(["the old man"], k=30, own=False, min_similarity=least)
    assert again.ids[0, :3].tolist() == hits.ids[0].tolist()
    with pytest.raises(InputError, match=r"without 't': 'half .* holds half a character"):
        bank.search(["the old man"], without={"t": ["half \ud83d of"]})


def test_sources_by_name_pattern_and_folder(bank: Bank) -> None:
    one, two, three = bank.manifest.sources
    raw = str(Path(one).parent)
    for sources, wanted in (
        ([one], {one}), ([two], {two}), (["*three.txt"], {three}), ([raw], {one, two}),
        (["one.txt"], {one}),
        ([f"{raw}/"], {one, two}), ([one, three], {one, three}), (["*"], {one, two, three}),
    ):  # fmt: skip
        for queries in (1, 20):
            vectors = bank.encode(salads(queries, seed=5))
            hits = bank.search(vectors, k=30, sources=sources)
            assert set(bank.rows(hits.ids.ravel())["source"].to_pylist()) == wanted
            origin = np.array(bank.rows(np.arange(len(bank)))["source"].to_pylist())
            own = vectors @ bank.encode(list(bank)).T
            own[:, ~np.isin(origin, list(wanted))] = -1
            np.testing.assert_allclose(
                hits.similarity, -np.sort(-own, axis=1)[:, :30], atol=off(bank)
            )
    with pytest.raises(InputError, match="no source"):  # `*` is the only pattern
        bank.search(QUERY, k=3, sources=["*[ot]ne.txt"])
    few = bank.search(QUERY, k=len(bank), sources=[three])
    assert few.counts[0] == (origin == three).sum()
    for nothing in ([], one):
        with pytest.raises(InputError, match="give a list of names"):
            bank.search(QUERY, k=3, sources=nothing)
    with pytest.raises(InputError, match=r"no source 'four.txt': there are .*one\.txt"):
        bank.search(QUERY, k=3, sources=["four.txt"])


@pytest.mark.parametrize("queries", [2, 40])
def test_least_similarity_loses_nothing_where_codes_are_coarse(
    tmp_path: Path, queries: int
) -> None:
    """64 bytes hold a quarter of 1,024 dimensions: similarities of codes lie far too low."""
    words = ["".join(letters) for letters in product("bdfgkpt", "aeiou", "lmnrst", "aeiou")]
    rng = np.random.default_rng(0)
    texts = [f"{' '.join(rng.choice(words, 6))} end." for _ in range(1500)]
    encoder = tiny_static(dimension=1024, words=words)
    bank = tiny_bank(tmp_path, texts, encoder=encoder, format="compact", near=False)
    asked = bank[:queries]
    every, near = bank.search(asked, k=50), bank.search(asked, k=50, min_similarity=0.9)
    np.testing.assert_array_equal(near.counts, (every.similarity >= 0.9).sum(axis=1))
    assert (near.counts >= 1).all()
    kept = np.where(every.similarity >= 0.9, every.ids, -1)
    np.testing.assert_array_equal(near.ids, kept)


def test_texts_of_candidates_are_compared_and_encoded_some_at_a_time(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with queries times k."""
    without = {"test": TEXTS[:300]}
    asked = salads(12, seed=8)
    before = bank.search(asked, k=30, without=without)
    monkeypatch.setattr("tilth.bank.search.decontaminate._TEXTS_AT_ONCE", 7)
    monkeypatch.setattr(module, "_ENCODED_AT_ONCE", 10)
    taken: list[int] = []
    rows = bank.rows
    monkeypatch.setattr(bank, "rows", lambda ids: taken.append(len(ids)) or rows(ids))
    after = bank.search(asked, k=30, without=without)
    assert 7 <= max(taken) <= 10
    assert after.removed == before.removed
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_allclose(after.similarity, before.similarity, atol=1e-6)


def test_sentences_left_out_exact_and_near(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MORE", 0)
    best = bank.search(QUERY, k=60)
    exact = [text.upper() for text in best.texts(0)[:50:2]]
    words = best.texts(0)[1].rstrip(".").lower().split()
    nearly = " ".join([*words, *words[:1]])  # the first word again
    hits = bank.search(QUERY, k=10, without={"test": exact, "other": [nearly]}, oversample=1)
    assert hits.counts.tolist() == [10]
    assert not {text.upper() for text in hits.texts(0)} & set(exact)
    gone = set(best.ids[0, :50:2].tolist())
    wanted = [number for number in best.ids[0] if number not in gone]
    sure = [number for number in wanted if number in hits.ids[0]]
    assert len(sure) >= 8  # the tail may have near duplicates
    assert hits.removed["test, exact"] >= 10
    assert set(hits.removed) == {"test, exact", "test, near", "other, exact", "other, near"}
    texts = best.texts(0)
    plainly = bank.search(QUERY, k=10, without={"test": [*texts[:3], texts[40]]}, near=False)
    assert plainly.removed == {"test, exact": 3}  # the 41st is no hit
    assert plainly.texts(0) == texts[3:13]


def test_leaving_out_nearly_all(bank: Bank) -> None:
    """What is looked at is widened until there are enough hits, or no more sentences."""
    texts = bank.search(QUERY, k=len(bank)).texts(0)
    hits = bank.search(QUERY, k=30, without={"test": texts[:-40]}, near=False)
    assert hits.texts(0) == texts[-40:-10]
    hits = bank.search(QUERY, k=30, without={"test": texts[:-20]}, near=False)
    assert hits.texts(0) == texts[-20:]
    assert (hits.ids[0, 20:] == -1).all()


def test_hits_are_as_good_where_the_nearest_are_left_out(bank: Bank) -> None:
    for query in salads(5, seed=9):
        best = bank.search(query, k=len(bank)).texts(0)
        hits = bank.search(query, k=10, without={"test": best[:60]}, near=False)
        assert len({*hits.texts(0)} & {*best[60:70]}) >= 9


def test_own_texts_may_be_left_out(bank: Bank) -> None:
    text = bank[17]
    assert bank.search(text, k=3).texts(0)[0] == text
    hits = bank.search([text.upper(), QUERY], k=3, own=False)
    assert text not in hits.texts(0)
    assert hits.removed == {"the queries' own texts, exact": 1}
    rows = [{"text": bank[n], "label": "x"} for n in range(5)]
    queries = task_queries(rows, encoder=bank.encoder)
    hits = bank.search(queries, k=len(bank), own=False)
    assert hits.counts.tolist() == [len(bank) - 5]
    with pytest.raises(InputError, match="own=False needs the queries' texts"):
        bank.search(bank.encode([QUERY]), k=3, own=False)


def test_oversampling_is_what_is_scored_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = watched(monkeypatch, module, "find_candidates")
    bank.search(QUERY, k=100)
    bank.search(QUERY, k=100, oversample=5, threads=3)
    times = {"int8": 1.2, "compact": 4}[bank.manifest.format]
    assert asked[0][0][3] == 100 * times + 32
    assert (asked[1][0][3], asked[1][1]["threads"]) == (532, 3)


def test_a_bank_says_what_it_is(bank: Bank) -> None:
    said = repr(bank)
    assert f"{len(bank):,} sentences" in said
    assert str(bank.path) in said


def test_more_hits_than_sentences_are_all_sentences(bank: Bank) -> None:
    every, more = bank.search(QUERY, len(bank)), bank.search(QUERY, 2 * len(bank))
    assert sorted(every.ids[0].tolist()) == list(range(len(bank)))
    np.testing.assert_array_equal(every.ids, more.ids)


def test_wrong_arguments(bank: Bank) -> None:
    zero = np.zeros((1, 16), np.float32)
    broken = np.full((1, 16), np.nan, np.float32)
    short = np.ones((1, 15), np.float32)
    for queries, options, message in (
        (QUERY, {"k": 0}, "k is 0: ask for at least 1 hit"),
        (QUERY, {"k": 2.5}, "k is 2.5: give a whole number"),
        (QUERY, {"k": True}, "k is True: give a whole number"),
        (QUERY, {"without": {"test": "a text"}}, "without: give names with lists of texts"),
        (QUERY, {"without": ["a text"]}, "without: give names with lists of texts"),
        (QUERY, {"without": {"test": [None]}}, "without: give names with lists of texts"),
        (QUERY, {"without": {"test": None}}, "without: give names with lists of texts"),
        (QUERY, {"min_similarity": 1.5}, "min_similarity is 1.5: give a number from -1 to 1"),
        (QUERY, {"oversample": 0.5}, "oversample is 0.5: give a number from 1 to"),
        (QUERY, {"threads": -1}, "threads is -1: give a whole number from 1"),
        (QUERY, {"without": {"test": []}}, "test: holds no sentence"),
        ("", {}, "query '' is empty"),
        (["a man", "  \n"], {}, r"query '  \\n' is empty"),
        ([3], {}, "query 3 is empty or no text"),
        (["a man", "\udcff"], {}, "holds half a character"),
        ([], {}, "no query is given"),
        ("zzz qqq", {}, "query 'zzz qqq' has the zero vector"),
        (zero, {}, "query 0 is the zero vector"),
        (broken, {}, "not finite"),
        (short, {}, r"the queries have shape \(1, 15\): .* needs \(queries, 16\)"),
        (np.ones((1, 1, 16), np.float32), {}, r"the queries have shape \(1, 1, 16\)"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            bank.search(queries, **{"k": 3, **options})


def test_one_sentence_and_equal_vectors(tmp_path: Path) -> None:
    """Words in another order have the same vector: no spread at all."""
    one = ["The old man sees two dogs."]
    same = [f"{word} the man sleeps under the boat." for word in ("zz", "yy", "xx")]
    for form in ("int8", "compact"):
        bank = tiny_bank(tmp_path / form, one, format=form)
        assert bank.search("old man", k=1).texts(0) == one
        bank = tiny_bank(tmp_path / f"same {form}", same, format=form, near=False)
        hits = bank.search(["sleeps", "man", "the boat", "under", "man sleeps"] * 3, k=3)
        assert (np.sort(hits.ids, axis=1) == [0, 1, 2]).all()
        assert np.ptp(hits.similarity, axis=1).max() < 1e-5


def test_an_encoder_without_a_name_must_be_given(bank: Bank) -> None:
    with pytest.raises(InputError, match=r"its encoder .* does not load .* open the bank with"):
        Bank.open(bank.path).search(QUERY, k=3)
    again = Bank.open(bank.path, encoder=tiny_static())
    np.testing.assert_array_equal(again.search(QUERY, k=3).ids, bank.search(QUERY, k=3).ids)
    if bank.manifest.format == "int8":  # vectors need no encoder
        Bank.open(bank.path).search(bank.encode([QUERY]), k=3)
