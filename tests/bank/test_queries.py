from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tests.tiny import save_encoder
from tilth.bank.queries import Queries, cluster, task_queries
from tilth.data.examples import read_examples
from tilth.errors import InputError, TilthError
from tilth.limits import QUERY
from tilth.models.encoder import load_encoder

# Words with directions of their own; what is not here has no vector.
WORDS: dict[str, list[float]] = {
    "rain": [4.0, 0.2, 0.1], "fog": [3.0, 0.5, -0.2], "snow": [2.0, -0.3, 0.3],
    "goal": [0.1, 5.0, 0.2], "match": [0.3, 2.0, -0.1], "team": [-0.2, 1.0, 0.4],
    "piano": [0.1, 0.2, 3.0],
}  # fmt: skip
ROWS = [
    {"text": "rain", "label": "weather"},
    {"text": "goal match", "label": "sport"},
    {"text": "fog rain rain", "label": "weather"},
    {"text": "team", "label": "sport"},
    {"text": "rain", "label": "weather"},
]


ODD = [{"text": "zzz", "label": "odd"}, {"text": "yyy", "label": "odd"}]


def encode(texts: list[str]) -> NDArray[np.float32]:
    zero = [0.0, 0.0, 0.0]
    vectors = [np.sum([WORDS.get(word, zero) for word in t.split()], axis=0) for t in texts]
    return np.array(vectors, np.float32)


def oracle(texts: list[str]) -> list[float]:
    """Return the direction of the mean of the texts' directions, by plain loops."""
    mean = [0.0] * 3
    for text in texts:
        vector = [sum(WORDS[word][place] for word in text.split()) for place in range(3)]
        length = sum(value * value for value in vector) ** 0.5
        mean = [old + new / length / len(texts) for old, new in zip(mean, vector, strict=True)]
    length = sum(value * value for value in mean) ** 0.5
    return [value / length for value in mean]


def queries(rows: Any = ROWS, **options: Any) -> Queries:
    return task_queries(rows, **{"encoder": encode, **options})


def same(found: Queries, other: Queries) -> bool:
    return (
        np.array_equal(found.vectors, other.vectors)
        and (found.names, found.labels, found.sentences)
        == (other.names, other.labels, other.sentences)
        and all(np.array_equal(one, two) for one, two in zip(found.rows, other.rows, strict=True))
    )


def test_all_average_is_the_mean_of_the_normalised_vectors() -> None:
    found = queries(kind="all-average")
    np.testing.assert_allclose(found.vectors, [oracle([r["text"] for r in ROWS])], atol=1e-6)
    assert (found.names, found.labels, found.sentences) == (["all"], [None], [5])
    assert found.rows[0].tolist() == [0, 1, 2, 3, 4]
    assert (found.vectors.dtype, len(found)) == (np.float32, 1)


def test_label_average_is_the_mean_of_each_label_and_counts_equal_sentences_each_time() -> None:
    found = queries()
    weather = [row["text"] for row in ROWS if row["label"] == "weather"]
    expected = [oracle(["goal match", "team"]), oracle(weather)]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert np.abs(found.vectors[1] - oracle(weather[:2])).max() > 1e-3  # rain counts twice
    assert found.names == found.labels == ["sport", "weather"]
    assert found.sentences == [2, 3]
    assert [rows.tolist() for rows in found.rows] == [[1, 3], [0, 2, 4]]


def test_per_sentence_asks_once_for_equal_sentences_in_their_order() -> None:
    found = queries(kind="per-sentence")
    assert found.names == ["rain", "goal match", "fog rain rain", "team"]
    np.testing.assert_allclose(found.vectors, [oracle([name]) for name in found.names], atol=1e-6)
    assert found.labels == ["weather", "sport", "weather", "sport"]
    assert found.sentences == [2, 1, 1, 1]
    assert [rows.tolist() for rows in found.rows] == [[0, 4], [1], [2], [3]]
    long = queries([{"text": "rain\n " * 50, "label": 1}], kind="per-sentence")
    assert long.names == ["rain " * 15 + "rain…"]
    two = queries([*ROWS, {"text": "rain", "label": "sport"}], kind="per-sentence")
    assert two.labels == [None, "sport", "weather", "sport"]


def test_clusters_are_means_of_their_own_sentences() -> None:
    texts = ["rain", "fog", "rain rain", "goal", "match", "piano"]
    rows = [{"text": text, "label": "a"} for text in texts] + [{"text": "team", "label": "b"}]
    found = queries(rows, kind="clusters", clusters=3)
    assert found.names == ["a / 1", "a / 2", "a / 3", "b / 1"]
    assert found.labels == ["a", "a", "a", "b"]
    assert found.sentences == [3, 2, 1, 1]
    assert [own.tolist() for own in found.rows] == [[0, 1, 2], [3, 4], [5], [6]]
    expected = [oracle([rows[row]["text"] for row in own]) for own in found.rows]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)


def test_a_label_of_few_distinct_sentences_has_no_more_clusters_than_those() -> None:
    rows = [{"text": text, "label": "a"} for text in ["rain", "rain", "fog", "fog", "rain"]]
    found = queries(rows, kind="clusters", clusters=8)
    assert (found.names, found.sentences) == (["a / 1", "a / 2"], [3, 2])
    same_direction = [{"text": "rain " * (n + 1), "label": "a"} for n in range(3)]
    assert queries(same_direction, kind="clusters").sentences == [3]


def test_clusters_of_labels_that_are_numbers_or_missing_are_those_of_the_whole_set() -> None:
    numbers = [{"text": row["text"], "label": 0.5 + n} for n, row in enumerate(ROWS)]
    bare = [{"text": row["text"]} for row in ROWS]
    for rows in (numbers, bare):
        found = queries(rows, kind="clusters", clusters=2)
        assert (found.names, found.labels) == (["all / 1", "all / 2"], [None, None])
        assert found.sentences == [3, 2]


def test_the_order_of_rows_changes_nothing_but_the_order_of_sentences() -> None:
    rng = np.random.default_rng(0)
    words = list(WORDS)
    rows = [{"text": " ".join(rng.choice(words, 3)), "label": f"l{n % 3}"} for n in range(120)]
    for kind in ("all-average", "label-average", "clusters"):
        one, two = queries(rows, kind=kind), queries(rows[::-1], kind=kind)
        np.testing.assert_array_equal(one.vectors, two.vectors)
        assert (one.names, one.sentences) == (two.names, two.sentences)


def test_the_seed_moves_clusters_and_nothing_else() -> None:
    rng = np.random.default_rng(1)
    table = {f"w{n}": rng.normal(size=6) for n in range(300)}
    rows = [{"text": word, "label": "a"} for word in table]

    def random(texts: list[str]) -> NDArray[np.float32]:
        return np.array([table[text] for text in texts], np.float32)

    one = queries(rows, encoder=random, kind="clusters")
    assert same(one, queries(rows, encoder=random, kind="clusters"))
    assert not same(one, queries(rows, encoder=random, kind="clusters", seed=1))
    average = queries(rows, encoder=random)
    assert same(average, queries(rows, encoder=random, seed=1))


def test_both_texts_of_a_pair_are_sentences_of_its_label() -> None:
    rows = [
        {"premise": "rain", "hypothesis": "fog", "label": 0},
        {"premise": "goal", "hypothesis": "team", "label": 1},
        {"premise": "rain", "hypothesis": "snow", "label": 1},
    ]
    found = queries(rows)
    expected = [oracle(["rain", "fog"]), oracle(["goal", "team", "rain", "snow"])]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert (found.labels, found.sentences) == (["0", "1"], [2, 4])
    assert [own.tolist() for own in found.rows] == [[0], [1, 2]]
    sentences = queries(rows, kind="per-sentence")
    assert sentences.names == ["rain", "fog", "goal", "team", "snow"]
    assert sentences.labels == [None, "0", "1", "1", "1"]


def test_a_row_counts_for_each_of_its_labels() -> None:
    rows = [
        {"text": "rain", "label": ["a", "b"]},
        {"text": "goal", "label": ["b"]},
        {"text": "piano", "label": []},
    ]
    found = queries(rows)
    np.testing.assert_allclose(
        found.vectors, [oracle(["rain"]), oracle(["rain", "goal"])], atol=1e-6
    )
    assert queries(rows, kind="all-average").sentences == [3]
    assert queries(rows, kind="per-sentence").labels == [None, "b", None]


def test_a_sentence_counts_for_each_entity_type_in_it_once() -> None:
    rows = [
        {"tokens": ["rain", "fog"], "tags": ["B-A", "I-A"]},
        {"tokens": ["goal", "team"], "tags": ["B-A", "B-B"]},
        {"tokens": ["piano"], "tags": ["O"]},
    ]
    found = queries(rows)
    expected = [oracle(["rain fog", "goal team"]), oracle(["goal team"])]
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert (found.labels, found.sentences) == (["A", "B"], [2, 1])
    assert queries(rows, kind="all-average").sentences == [3]
    assert queries(rows, kind="per-sentence").labels == ["A", None, None]
    clusters = queries(rows, kind="clusters", clusters=2)
    assert clusters.names == ["A / 1", "A / 2", "B / 1"]


def test_examples_that_are_read_and_a_data_set_and_a_file_give_the_same(tmp_path: Path) -> None:
    expected = queries()
    Dataset.from_list(ROWS).to_json(tmp_path / "set.jsonl")
    for given in (read_examples(ROWS), Dataset.from_list(ROWS), tmp_path / "set.jsonl"):
        assert same(queries(given), expected)
    with pytest.raises(InputError, match="read already"):
        queries(read_examples(ROWS), text="text")
    rows = [{"text": "rain", "body": "goal", "label": 1, "topic": "x"}]
    found = queries(rows, text="body", label="topic")
    np.testing.assert_allclose(found.vectors, [oracle(["goal"])], atol=1e-6)
    assert found.labels == ["x"]
    bare = read_examples([{"text": "rain"}], need_label=False)
    assert queries(bare, kind="all-average").sentences == [1]
    with pytest.raises(InputError, match="the examples have no labels"):
        queries(bare)


def test_sentences_without_a_vector_are_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [*ROWS, {"text": "zzz", "label": "sport"}, {"text": "zzz", "label": "weather"}]
    for kind in QUERY.names:
        found = queries(rows, kind=kind)
        assert "2 of 7 sentences have no vector" in caplog.text
        caplog.clear()
        assert same(found, queries(kind=kind))


@pytest.mark.parametrize(
    ("options", "rows", "said"),
    [
        ({"kind": "mean"}, ROWS, f"kind 'mean' is unknown: use {QUERY}"),
        ({"clusters": 0}, ROWS, "clusters is 0: give a whole number from 1"),
        ({}, [{"text": "rain", "label": 0.5}], "label holds fractions such as 0.5, no classes"),
        ({}, [{"text": "rain", "label": []}], "all lists of label are empty"),
        ({}, [{"tokens": ["rain"], "tags": ["O"]}], "no tag but O"),
        ({"kind": "clusters"}, [{"tokens": ["rain"], "tags": ["O"]}], "no tag but O"),
        ({}, [{"text": "rain"}], "which column holds the labels"),
        ({}, [*ROWS, *ODD], "'odd': none of its 2 sentences has a vector"),
        ({"kind": "clusters"}, [*ROWS, *ODD], "'odd': none of its 2 sentences has a vector"),
        ({"kind": "all-average"}, ODD, "none of .*2 sentences has a vector"),
        ({"kind": "per-sentence"}, ODD, "none of .*2 sentences has a vector"),
    ],
)
def test_what_cannot_be_asked_for(options: Any, rows: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        queries(rows, **options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.array([[1.0], [1.0], [1.0], [np.inf]]), "no finite vector for 'team'"),
        (np.array([[1.0, 0], [1, 0], [1, 0], [np.nan, 0]]), "no finite vector for 'team'"),
        (np.ones((3, 2)), "for 4 texts: it must give one vector per text"),
        (np.ones(4), "for 4 texts: it must give one vector per text"),
        (np.array([[1.0, 0], [2, 0], [1, 0], [-1, 0]]), "'sport': .* its 2 sentences cancel out"),
    ],
)
def test_wrong_vectors_are_refused(given: NDArray[np.float32], said: str) -> None:
    before = given.copy()
    with pytest.raises(TilthError, match=said):
        queries(encoder=lambda texts: given)
    np.testing.assert_array_equal(given, before)


def test_a_sentence_transformer_gives_what_a_function_gives(tmp_path: Path) -> None:
    encoder = load_encoder(str(save_encoder(tmp_path / "encoder")), pooling="mean", device="cpu")
    rows = [
        {"text": text, "label": n % 2} for n, text in enumerate(["a man", "the dog runs", "sea"])
    ]
    expected = queries(rows, encoder=lambda texts: encoder.encode(texts))
    found = queries(rows, encoder=encoder)
    np.testing.assert_allclose(found.vectors, expected.vectors, atol=1e-6)
    assert found.labels == ["0", "1"]


def test_what_is_wrong_with_a_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    path.write_text("text,label\nrain,0.5\n")
    with pytest.raises(InputError, match=f"^{path}: label holds fractions"):
        queries(path)
    path.write_text("text,label\nzzz,1\n")
    with pytest.raises(InputError, match=f"^{path}: '1': none of its 1 sentences"):
        queries(path)


def directions(count: int, width: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def spread(vectors: NDArray[np.float32], weights: NDArray[np.float64], codes: list[int]) -> float:
    """Return the weighted squared distances to the clusters' means, by plain loops."""
    total = 0.0
    for code in set(codes):
        own = [place for place, other in enumerate(codes) if other == code]
        mean = sum(weights[place] * vectors[place] for place in own) / weights[own].sum()
        total += sum(weights[place] * float(((vectors[place] - mean) ** 2).sum()) for place in own)
    return total


def test_two_clusters_are_the_best_of_all_partitions() -> None:
    for seed in range(5):
        vectors = directions(9, 3, seed)
        weights = np.random.default_rng(seed).integers(1, 4, 9).astype(np.float64)
        found = cluster(vectors, weights, 2, seed)
        best = min(spread(vectors, weights, list(codes)) for codes in product((0, 1), repeat=9))
        assert spread(vectors, weights, found.tolist()) < best * 1.02


def test_equal_vectors_share_a_cluster_and_the_heaviest_comes_first() -> None:
    four = np.array([[1, 0], [0, 1], [-1, 0], [0.99, 0.01]], np.float32)
    assert cluster(four, np.array([1.0, 1, 1, 1]), 3, 0).tolist() == [0, 1, 2, 0]
    assert cluster(four, np.array([1.0, 5, 1, 1]), 3, 0).tolist() == [1, 0, 2, 1]
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    for count in (2, 3, 9):
        assert cluster(vectors, np.ones(3), count, 0).tolist() == [0, 0, 1]
    assert cluster(vectors[:2], np.ones(2), 5, 0).tolist() == [0, 0]


def test_seed_and_count_matter_and_threads_do_not() -> None:
    vectors = directions(3000, 16, 0)
    weights = np.ones(3000)
    found = cluster(vectors, weights, 6, 0)
    assert len(set(found.tolist())) == 6
    assert len(set(cluster(vectors, weights, 7, 0).tolist())) == 7
    assert not np.array_equal(found, cluster(vectors, weights, 6, 1))
    for threads in (1, 2, 4):
        with threadpool_limits(threads):
            np.testing.assert_array_equal(found, cluster(vectors, weights, 6, 0))
