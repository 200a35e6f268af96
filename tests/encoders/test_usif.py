from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import TruncatedSVD

from tilth.encoders.usif import usif, usif_weights
from tilth.errors import InputError

WIDTH = 8
WORDS = [f"w{chr(97 + i)}{chr(97 + j)}" for i in range(10) for j in range(6)]  # 60
VECTORS = dict(
    zip(WORDS, np.random.default_rng(3).normal(0.5, 1, (60, WIDTH)).round(4), strict=True)
)


def some_sentences(seed: int, how_many: int) -> list[str]:
    """Return sentences in which a few words are very frequent."""
    draw = np.random.default_rng(seed)
    p = 1 / np.arange(1, 61) ** 1.5
    return [
        " ".join(draw.choice(WORDS, size=draw.integers(1, 12), p=p / p.sum()))
        for _ in range(how_many)
    ]


SENTENCES = some_sentences(0, 120)
TEXTS = [*SENTENCES[:9], *some_sentences(1, 9)]


def published(
    counts: dict[str, int], fit: list[str], texts: list[str], components: int, walk: int
) -> NDArray[np.float64]:
    """Embed by the steps of the author's code, the components fitted on other sentences."""
    total = sum(counts.values())
    p = {word: count / total for word, count in counts.items()}
    threshold = 1 - (1 - 1 / len(p)) ** walk
    alpha = len([word for word in p if p[word] > threshold]) / len(p)
    a = (1 - alpha) / (alpha * 0.5 * len(p))

    def embed(text: str) -> NDArray[np.float64]:
        known = [word for word in re.findall("[a-z]+", text.lower()) if word in VECTORS]
        rows = np.array([VECTORS[word] for word in known])
        rows = rows / np.linalg.norm(rows, axis=0)
        weights = [a / (0.5 * a + p.get(word, min(p.values()))) for word in known]
        return np.asarray(np.mean(rows * np.array(weights)[:, None], axis=0))

    vectors = np.array([embed(text) for text in texts])
    if not components:
        return vectors
    svd = TruncatedSVD(components, algorithm="arpack", random_state=0)
    svd.fit(np.array([embed(text) for text in fit]))
    for sigma, direction in zip(svd.singular_values_, svd.components_, strict=True):
        share = sigma**2 / (svd.singular_values_**2).sum()
        vectors = vectors - share * np.outer(vectors @ direction, direction)
    return vectors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in VECTORS.items()))
    return path


def encode(encoder: SentenceTransformer, texts: list[str]) -> NDArray[np.float32]:
    return np.asarray(encoder.encode(texts))


@pytest.mark.parametrize(("components", "walk"), [(5, 11), (5, 4), (2, 11), (1, 1), (0, 11)])
def test_as_published(path: Path, components: int, walk: int) -> None:
    counts = dict(Counter(word for text in SENTENCES for word in text.split()))
    encoder = usif(path, sentences=iter(SENTENCES), components=components, walk=walk)
    expected = published(counts, SENTENCES, TEXTS, components, walk)
    np.testing.assert_allclose(encode(encoder, TEXTS), expected, atol=2e-5)


def test_the_defaults_are_the_papers(path: Path) -> None:
    default = usif(path, sentences=SENTENCES)
    asked = usif(path, sentences=SENTENCES, components=5, walk=11)
    np.testing.assert_array_equal(encode(default, TEXTS), encode(asked, TEXTS))


def test_unknown_sentences_do_not_enter_the_fit(path: Path) -> None:
    plain = usif(path, sentences=SENTENCES)
    more = usif(path, sentences=[*SENTENCES, "", "unheard"])
    np.testing.assert_array_equal(encode(plain, TEXTS), encode(more, TEXTS))


def test_unknown_and_empty_texts_are_zero(path: Path) -> None:
    got = encode(usif(path, sentences=SENTENCES), ["", "unheard", WORDS[0]])
    assert not got[:2].any()
    assert got[2].any()


def test_a_dimension_of_zeros_stays_zero(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 0\nb 2 0\nc 0 1\n")
    encoder = usif(path, sentences=["a a a a b", "c"], components=0, walk=1)
    got = encode(encoder, ["a b"])
    assert np.isfinite(got).all()
    assert got[0, 1] == 0


def test_saved_and_loaded_it_is_the_same(path: Path, tmp_path: Path) -> None:
    encoder = usif(path, sentences=SENTENCES)
    encoder.save(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    np.testing.assert_array_equal(encode(loaded, [*TEXTS, ""]), encode(encoder, [*TEXTS, ""]))


def test_rarer_words_weigh_more() -> None:
    p = np.array([0.5, 0.3, 0.1, 0.1])
    assert (np.diff(usif_weights(p, p, 1)) >= 0).all()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"components": -1}, "components is -1"),
        ({"components": WIDTH + 1}, f"0 to {WIDTH}"),
        ({"components": 1.5}, "components is 1.5"),
        ({"walk": 0}, "walk is 0"),
        ({"walk": 2.5}, "walk is 2.5"),
        ({"sentences": []}, "no sentences"),
        ({"sentences": "one text"}, "one text"),
        ({"sentences": ["unheard"]}, "no word of the sentences"),
        ({"sentences": WORDS}, "no word has a probability above"),
    ],
)
def test_wrong_arguments_are_named(path: Path, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        usif(path, **{"sentences": SENTENCES, **asked})
