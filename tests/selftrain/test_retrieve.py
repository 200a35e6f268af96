from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.selftrain.labelled import classed, tagged
from tests.tiny import salads, tiny_bank, tiny_static
from tilth.bank import Bank, task_queries
from tilth.data.examples import Examples, read_examples
from tilth.errors import InputError
from tilth.selftrain import retrieve as retrieving
from tilth.selftrain.retrieve import random_sentences, retrieve
from tilth.selftrain.settings import Augmentation

COLUMNS = ["query", "query_label", "similarity", "id", "text", "source", "document"]
TEXTS = salads(400)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    folder = tmp_path_factory.mktemp("bank")
    return tiny_bank(folder, TEXTS, near=False)


def examples(rows: Any = None) -> Examples:
    return read_examples(rows or classed(60))


def found_of(bank: Bank, asked: Examples, count: int, exclude: Any = None, **how: Any) -> pa.Table:
    return retrieve(bank, asked, count, Augmentation(**how), exclude=exclude).table


def cosines(bank: Bank, asked: Examples, kind: str) -> Any:
    """Return all similarities of the queries, (queries, sentences), and the queries' names."""
    queries = task_queries(asked, encoder=bank.encode, kind=kind)
    hits = bank.search(queries, len(bank))
    found = np.empty((len(queries), len(bank)), np.float32)
    np.put_along_axis(found, hits.ids, hits.similarity, axis=1)
    return found, queries.names


def brute(similarity: np.ndarray) -> Iterator[int]:
    """Yield the nearest sentence of each query, then the second nearest, and so on."""
    order = np.argsort(-similarity, axis=1, kind="stable")
    seen: set[int] = set()
    for rank in range(similarity.shape[1]):
        places = order[:, rank]
        own = zip(places.tolist(), similarity[np.arange(len(order)), places], strict=True)
        for number, _ in sorted(own, key=lambda one: (-one[1], one[0])):
            if number not in seen:
                seen.add(number)
                yield number


@pytest.mark.parametrize("kind", ["label-average", "all-average", "per-sentence"])
@pytest.mark.parametrize("count", [7, 100, 400])
def test_what_is_found_is_brute_force(bank: Bank, kind: str, count: int) -> None:
    found = found_of(bank, examples(), count, query=kind)
    assert found.column_names == COLUMNS
    similarity, names = cosines(bank, examples(), kind)
    ids = found["id"].to_pylist()
    assert ids == list(brute(similarity))[:count]
    own = [names.index(name) for name in found["query"].to_pylist()]
    assert found["similarity"].to_pylist() == similarity[own, ids].tolist()
    if count == 400 and kind != "per-sentence":  # of the queries that found it
        assert own == similarity[:, ids].argmax(axis=0).tolist()
    assert found["text"].to_pylist() == bank.texts(found["id"].to_numpy()).to_pylist()


def test_queries_are_searched_in_groups(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = retrieve(bank, examples(), 100, Augmentation("per-sentence"))
    monkeypatch.setattr(retrieving, "_QUERIES_AT_ONCE", 7)
    monkeypatch.setattr(retrieving, "_HITS_KEPT", 20)
    again = retrieve(bank, examples(), 100, Augmentation("per-sentence"))
    assert again.table.drop("similarity") == whole.table.drop("similarity")
    assert np.allclose(again.table["similarity"], whole.table["similarity"], atol=1e-5)
    assert again.queries == whole.queries


def test_a_bank_that_is_found_as_a_whole_is_searched_no_deeper(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: list[int] = []
    real = retrieving._search

    def search(bank: Any, queries: Any, k: int, *given: Any, **how: Any) -> Any:
        depths.append(k)
        return real(bank, queries, k, *given, **how)

    monkeypatch.setattr(retrieving, "_search", search)
    found = retrieve(
        bank, examples(), 400, Augmentation("per-sentence"), exclude={"test": TEXTS[:1]}
    )
    assert len(found) == 399
    assert depths[-1] < len(bank)


def test_queries_have_the_same_share(bank: Bank) -> None:
    found = retrieve(bank, examples(), 60)
    assert [query["label"] for query in found.queries] == ["animal", "none", "water"]
    assert sum(int(str(query["hits"])) for query in found.queries) == len(found) == 60
    assert set(found.table["query_label"].to_pylist()) == {"animal", "none", "water"}
    every = retrieve(bank, examples(), 60, Augmentation("all-average"))
    assert every.table["query_label"].null_count == 60


def test_texts_of_the_test_and_of_the_training_set_are_left_out(bank: Bank) -> None:
    near = [text.replace(".", " the.") for text in TEXTS[5:10]]
    rows = [*classed(60), {"text": TEXTS[20], "label": "none"}]
    asked = read_examples(rows)
    found = retrieve(bank, asked, 400, exclude={"test": TEXTS[:5] + near})
    texts = found.table["text"].to_pylist()
    assert not set(texts) & {*TEXTS[:10], TEXTS[20]}
    assert len(texts) == 389
    assert found.excluded == {
        "test, exact": 5, "test, near": 5, "the training set's own texts, exact": 1,
    }  # fmt: skip
    exact = retrieve(bank, asked, 400, Augmentation(near=False), exclude={"test": near})
    assert len(exact) == 399
    few = retrieve(bank, asked, 3, exclude={"test": TEXTS[:5] + near})
    assert sum(few.excluded.values()) < 11  # only those that would have been among the three


def test_left_out_sentences_are_made_up_for(bank: Bank) -> None:
    asked = examples()
    first = found_of(bank, asked, 150)["text"].to_pylist()
    more = found_of(bank, asked, 150, exclude={"these": first})
    assert len(more) == 150
    assert not set(more["text"].to_pylist()) & set(first)


def test_what_is_far_is_no_hit(bank: Bank) -> None:
    every = found_of(bank, examples(), 400)
    found = found_of(bank, examples(), 400, min_similarity=0.5)
    assert 0 < len(found) < 400
    assert len(found) == sum(one > 0.5 for one in every["similarity"].to_pylist())
    with pytest.raises(InputError, match=r"near enough \(similarity of 0.999 or more\): lower"):
        found_of(bank, examples(), 5, min_similarity=0.999)


def test_sources_are_chosen(tmp_path: Path) -> None:
    for name, texts in (("a", TEXTS[:50]), ("b", TEXTS[50:90])):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    some = [tmp_path / "a.txt", tmp_path / "b.txt"]
    bank = Bank.build(tmp_path / "bank", some, encoder=tiny_static(), workers=1, quiet=True)
    found = found_of(bank, examples(), 90, sources=["*b.txt"])
    assert {name[-5:] for name in found["source"].to_pylist()} == {"b.txt"}


def test_however_many_queries_at_a_time(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found_of(bank, examples(), 100, query="per-sentence")
    monkeypatch.setattr(retrieving, "_QUERIES_AT_ONCE", 7)
    found = found_of(bank, examples(), 100, query="per-sentence")
    np.testing.assert_allclose(found["similarity"], whole["similarity"], atol=1e-5)
    assert set(found["id"].to_pylist()) == set(whole["id"].to_pylist())


def test_clusters_and_their_seed(bank: Bank) -> None:
    found = [
        found_of(bank, examples(), 30, query="clusters", clusters=clusters, seed=seed)
        for clusters, seed in ((3, 0), (3, 0), (2, 0), (3, 1))
    ]
    assert found[0].equals(found[1])
    assert not found[0].equals(found[2])
    assert not found[0].equals(found[3])


def test_tokens_ask_by_type(bank: Bank) -> None:
    found = found_of(bank, read_examples(tagged(60)), 40)
    assert set(found["query_label"].to_pylist()) == {"ANIMAL", "WATER"}


def test_pairs_are_refused(bank: Bank) -> None:
    rows = [{"text_a": "a dog", "text_b": "a cat", "label": "no"}]
    with pytest.raises(InputError, match="are pairs"):
        retrieve(bank, read_examples(rows), 3)


def test_everything_left_out_is_said(bank: Bank) -> None:
    with pytest.raises(InputError, match=r"every near sentence was left out.*test, exact"):
        retrieve(bank, examples(), 3, exclude={"test": TEXTS})
    with pytest.raises(InputError, match="count is 0"):
        retrieve(bank, examples(), 0)


def test_random_sentences(bank: Bank) -> None:
    found = random_sentences(bank, 100, {"test": TEXTS[:200]}, seed=3)
    assert found.column_names == COLUMNS
    assert found.schema == found_of(bank, examples(), 3).schema
    assert len(set(found["id"].to_pylist())) == 100
    assert not set(found["text"].to_pylist()) & set(TEXTS[:200])
    assert set(found["query"].to_pylist()) == {"random"}
    assert found["similarity"].null_count == 100
    assert found.equals(random_sentences(bank, 100, {"test": TEXTS[:200]}, seed=3))
    assert not found.equals(random_sentences(bank, 100, {"test": TEXTS[:200]}, seed=4))
    assert len(random_sentences(bank, 5_000)) == 400
    near = [text.replace(".", " the.") for text in TEXTS[:200]]
    assert len(random_sentences(bank, 400, {"test": near})) < 400
    assert isinstance(found, pa.Table)
    with pytest.raises(InputError, match="count is 0"):
        random_sentences(bank, 0)
