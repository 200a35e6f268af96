import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.tiny.rows import SENTENCES
from tilth.report.text_similarity import encoder_similarity, plain, word_counts, word_overlap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A man, a plan.", "a man a plan"),
        ("Don't  \u201cstop\u201d me!", "dont stop me"),
        ("red-hot", "red hot"),
        ("  \u00c9t\u00e9 ", "\u00e9t\u00e9"),
        ("\u0939\u093f\u0928\u094d\u0926\u0940.", "\u0939\u093f\u0928\u094d\u0926\u0940"),
        ("\u65e5\u672c\u8a9e\u3002", "\u65e5 \u672c \u8a9e"),
        ("costs $5", "costs $5"),
        ("...", "..."),
        ("", ""),
    ],
)  # fmt: skip
def test_plain(text: str, expected: str) -> None:
    assert plain(pa.array([text])).to_pylist() == [expected]


def test_plain_keeps_texts_of_punctuation_apart() -> None:
    one, two = plain(pa.array(["!!", "??"])).to_pylist()
    assert one != two


def test_plain_takes_null_as_empty() -> None:
    assert plain(pa.array([None, "A"], pa.string())).to_pylist() == ["", "a"]


def test_word_counts() -> None:
    texts = plain(pa.array(["One, two three.", "", "don't", "\u65e5\u672c"]))
    assert word_counts(texts).to_pylist() == [3, 0, 1, 2]


def slow(list_a: list[str], list_b: list[str]) -> list[float]:
    texts = [Counter(text.lower().replace(".", "").replace("?", "").replace(",", "")
                     .replace("-", " ").split()) for text in [*list_a, *list_b]]  # fmt: skip
    vocabulary = sorted(set().union(*texts))
    idf = [math.log((1 + len(texts)) / (1 + sum(w in t for t in texts))) + 1 for w in vocabulary]
    matrix = np.array([[t[w] * x for w, x in zip(vocabulary, idf, strict=True)] for t in texts])
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    half = len(list_a)
    return [float(matrix[i] @ matrix[half + i]) for i in range(half)]


def test_word_overlap_equals_a_slow_loop() -> None:
    list_a = SENTENCES[:40]
    list_b = [f"{SENTENCES[i]} {SENTENCES[i + 1]}" for i in range(20)] + SENTENCES[60:80]
    assert word_overlap(list_a, list_b) == pytest.approx(slow(list_a, list_b))


def test_word_overlap_ends() -> None:
    values = word_overlap(["A dog runs.", "A dog", "", "dog"], ["runs: A DOG", "two cats", "", ""])
    assert values == pytest.approx([1.0, 0.0, 0.0, 0.0])


def test_rare_words_count_more() -> None:
    # "the" stands everywhere, "flute" in two texts.
    others = ["the sea", "the sun", "the moon"]
    values = word_overlap(["the flute", "the flute", *others], ["the drum", "a flute", *others])
    assert values[1] > values[0]


class Letters:
    """An encoder: how often a, b and c stand in a text."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, sentences: list[str]) -> np.ndarray:
        self.asked += sentences
        return np.array([[text.count(letter) for letter in "abc"] for text in sentences])


def test_encoder_similarity() -> None:
    encoder = Letters()
    values = encoder_similarity(encoder, ["aab", "a", "a", "xyz"], ["aab", "b", "ab", "a"])
    assert values == pytest.approx([1.0, 0.0, math.sqrt(0.5), 0.0])
    assert sorted(encoder.asked) == sorted({"aab", "a", "b", "ab", "xyz"})  # each text once
