import math
from collections import Counter

import numpy as np
import pytest

from tests.tiny.rows import SENTENCES
from tilth.report.text_similarity import EncoderSimilarity, word_overlap


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


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="2 texts cannot be paired with 1"):
        word_overlap(["a", "b"], ["a"])


class Letters:
    """An encoder: how often a, b and c stand in a text."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, sentences: list[str]) -> np.ndarray:
        self.asked += sentences
        return np.array([[text.count(letter) for letter in "abc"] for text in sentences])


def test_encoder_similarity() -> None:
    encoder = Letters()
    similarity = EncoderSimilarity(encoder)
    values = similarity(["aab", "a", "a", "xyz"], ["aab", "b", "ab", "a"])
    assert values == pytest.approx([1.0, 0.0, math.sqrt(0.5), 0.0])
    assert sorted(encoder.asked) == sorted({"aab", "a", "b", "ab", "xyz"})  # each text once
    assert similarity([], []).shape == (0,)
