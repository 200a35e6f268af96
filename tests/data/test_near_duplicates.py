from __future__ import annotations

import random
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data import near_duplicates as near
from tilth.data.near_duplicates import near_duplicates, shingle


def triples(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 3]) for i in range(max(len(words) - 2, 1))}


def jaccard(one: str, two: str) -> float:
    a, b = triples(one), triples(two)
    return len(a & b) / len(a | b)


def brute_force(rows: list[tuple[str, ...]], labels: list[int], threshold: float) -> list[bool]:
    found: list[bool] = []
    for i, row in enumerate(rows):
        found.append(
            any(
                labels[j] == labels[i]
                and not found[j]
                and all(jaccard(x, y) >= threshold for x, y in zip(row, rows[j], strict=True))
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
def test_many_rows_as_by_brute_force(threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_TEXTS_AT_ONCE", 7)
    random_ = random.Random(0)
    base = [[f"w{random_.randrange(30)}" for _ in range(12)] for _ in range(20)]
    rows = []
    for _ in range(300):
        text = list(random_.choice(base))
        for _ in range(random_.randrange(4)):
            text[random_.randrange(len(text))] = f"w{random_.randrange(30)}"
        rows.append((" ".join(text),))
    labels = [random_.randrange(3) for _ in rows]
    expected = brute_force(rows, labels, threshold)
    assert find(rows, labels, threshold) == expected
    assert 10 < sum(expected) < 290


def test_hashed_triples_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a boy beats a drum",), ("A boy beats a drum!",), ("a boy beats the drum",)]
    monkeypatch.setattr(near, "_PACKED_BITS", 1)
    assert find(rows, [0, 0, 0], 0.9) == [False, True, False]


def test_both_texts_of_a_pair_must_be_alike() -> None:
    long = "one two three four five six seven eight nine"
    assert find([(long, "yes"), (long, "no"), (long, "Yes!")], [0, 0, 0], 0.5) == [
        False,
        False,
        True,
    ]


def test_scripts_without_spaces_and_symbols() -> None:
    rows = [("今天天气很好啊",), ("今天天气很好呀",), ("👍",), ("👎",), ("👍",)]
    assert find(rows, [0] * 5, 0.6) == [False, True, False, False, True]
    assert shingle(pa.array(["今天天气"], pa.large_string())).nnz == 2


def test_a_repeat_of_a_dropped_row_alone_stays() -> None:
    # The third is like the second, which is dropped, but not like the first.
    rows = [("a b c d e f",), ("a b c d e x",), ("a b c d y x",)]
    assert jaccard(*rows[0], *rows[2]) < 0.5 <= jaccard(*rows[0], *rows[1])
    assert find(rows, [0, 0, 0], 0.5) == brute_force(rows, [0, 0, 0], 0.5)
