import random
import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data.near_duplicates import hash_words, jaccard, near_duplicates, near_keys
from tilth.data.normalize import normalize_text, normalize_texts


def shingles(text: str) -> set[object]:
    """Return the words and word pairs of a text; digits are one."""
    words = re.sub(r"\d", "0", normalize_text(text)).split()
    return {*words, *pairwise(words)} or {""}


def similarity(one: str, two: str) -> float:
    a, b = shingles(one), shingles(two)
    return len(a & b) / len(a | b)


def brute_force(rows: list[tuple[str, ...]], labels: list[int], threshold: float) -> list[bool]:
    found: list[bool] = []
    for i, row in enumerate(rows):
        found.append(
            any(
                labels[j] == labels[i]
                and not found[j]
                and all(similarity(x, y) >= threshold for x, y in zip(row, rows[j], strict=True))
                for j in range(i)
            )
        )
    return found


def find(rows: list[tuple[str, ...]], labels: list[int], threshold: float) -> list[bool]:
    texts = sorted({text for row in rows for text in row})
    columns = tuple(
        np.array([texts.index(text) for text in column]) for column in zip(*rows, strict=True)
    )
    arrow = pa.array(texts, pa.large_string())
    found: list[bool] = near_duplicates(arrow, columns, np.array(labels), threshold).tolist()
    return found


words = st.sampled_from(["a", "man", "plays", "the", "old", "drum", "Drum,", "sings"])
sentences = st.lists(words, min_size=1, max_size=9).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(sentences, sentences, st.integers(0, 1)), min_size=1, max_size=25),
    st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.8, 1.0]),
)
def test_pairs_as_by_brute_force(rows: list[tuple[str, str, int]], threshold: float) -> None:
    pairs, labels = [row[:2] for row in rows], [row[2] for row in rows]
    assert find(pairs, labels, threshold) == brute_force(pairs, labels, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.75, 0.9])
def test_many_rows_as_by_brute_force(threshold: float) -> None:
    random_ = random.Random(0)
    base = [[f"w{chr(97 + random_.randrange(26))}" for _ in range(12)] for _ in range(20)]
    rows = []
    for _ in range(300):
        text = list(random_.choice(base))
        for _ in range(random_.randrange(4)):
            text[random_.randrange(len(text))] = f"w{chr(97 + random_.randrange(26))}"
        rows.append((" ".join(text),))
    labels = [random_.randrange(3) for _ in rows]
    expected = brute_force(rows, labels, threshold)
    assert find(rows, labels, threshold) == expected
    assert 10 < sum(expected) < 290


def test_scripts_without_spaces_and_symbols() -> None:
    rows = [("今天天气很好啊",), ("今天天气很好呀",), ("👍",), ("👎",), ("👍",)]
    assert find(rows, [0] * 5, 0.6) == [False, True, False, False, True]
    texts = pa.array(["今天天气", "今天"], pa.large_string())
    assert jaccard(texts, np.array([0]), np.array([1])).tolist() == [0.5]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab 1 é,"), max_size=20)))
def test_words_have_one_hash_wherever_they_stand(texts: list[str]) -> None:
    plains = normalize_texts(pa.array(texts, pa.string()))
    words, starts = hash_words(plains)
    assert np.diff(starts).tolist() == [len(text.split()) for text in plains.to_pylist()]
    all_words = [word for text in plains.to_pylist() for word in text.split()]
    alone = {word: int(hash_words(pa.array([word]))[0][0]) for word in set(all_words)}
    assert words.tolist() == [alone[word] for word in all_words]
    same = {word.replace("1", "0") for word in alone}
    assert len(set(alone.values())) == len(same)


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("abc 1"), max_size=16), min_size=2))
def test_similarities_are_jaccard(texts: list[str]) -> None:
    plains = normalize_texts(pa.array(texts))
    one, two = map(np.ravel, np.meshgrid(np.arange(len(texts)), np.arange(len(texts))))
    sets = [shingles(text) for text in plains.to_pylist()]
    expected = [
        len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in zip(one, two, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for at_once in (1 << 17, 9):
            patch.setattr("tilth.data.near_duplicates._PAIRS_AT_ONCE", at_once)
            assert jaccard(plains, one, two) == pytest.approx(expected)


def test_near_keys_agree_as_often_as_the_arithmetic_says() -> None:
    generator = np.random.default_rng(0)
    words = np.array([f"w{chr(97 + a)}{chr(97 + b)}" for a in range(26) for b in range(26)])
    first = [generator.choice(words, 24, replace=False) for _ in range(3000)]
    second = [row.copy() for row in first]
    for row in second:
        row[generator.integers(1, 23)] = "changed"
    texts = [" ".join(row) for row in (*first, *second)]
    keys = near_keys(normalize_texts(pa.array(texts)))
    similarity = jaccard(normalize_texts(pa.array(texts)), np.arange(1), np.array([3000]))[0]
    hits = (keys[:3000] == keys[3000:]).any(1).mean()
    assert hits == pytest.approx(1 - (1 - similarity**4) ** 6, abs=0.02)
    strangers = (keys[:2999] == keys[1:3000]).any(1).mean()
    assert strangers < 0.01


def test_keys_are_the_same_on_every_machine() -> None:
    assert near_keys(pa.array(["it rains in the hills"]))[0, 0] == 11137083074489961330
