"""Measure the similarity of paired texts by word overlap or by a sentence encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.normalize import SPACELESS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BETWEEN = r"[\s\p{Z}\p{P}]+"


def plain(texts: pa.Array) -> pa.Array:
    """Return the texts in lower case, without punctuation, words separated by one space.

    Apostrophes are deleted ("don't" becomes "dont"), other punctuation separates words, symbols
    such as `$` and emoji stay. A text of punctuation alone stays unchanged, so that two different
    ones do not become equal.
    """
    lower = pc.utf8_lower(pc.fill_null(texts, ""))
    joined = pc.replace_substring(pc.replace_substring(lower, "'", ""), "\u2019", "")
    spaced = pc.replace_substring_regex(joined, _BETWEEN, " ")
    if pc.any(pc.match_substring_regex(spaced, SPACELESS)).as_py():
        apart = pc.replace_substring_regex(spaced, SPACELESS, r" \0 ")
        spaced = pc.replace_substring_regex(apart, r"\s+", " ")
    trimmed = pc.utf8_trim_whitespace(spaced)
    return pc.if_else(pc.equal(trimmed, ""), pc.utf8_trim_whitespace(lower), trimmed)


def word_counts(plain_texts: pa.Array) -> pa.Array:
    """Return the number of words of each text from `plain`; 0 for an empty one."""
    spaces = pc.count_substring(plain_texts, " ")
    return pc.if_else(pc.equal(plain_texts, ""), 0, pc.add(spaces, 1))


def word_overlap(list_a: Sequence[str], list_b: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of TF-IDF weighted word counts of each pair, 0 to 1, (pairs,).

    Case and punctuation are ignored; document frequencies are those of both lists together. Two
    texts without words have 0.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = plain(pa.array([*list_a, *list_b], pa.string())).to_pylist()
    if not any(texts):
        return np.zeros(len(list_a))
    weights = TfidfVectorizer(analyzer=str.split).fit_transform(
        texts
    )  # (texts, words), of length 1
    one, two = weights[: len(list_a)], weights[len(list_a) :]
    products = np.asarray(one.multiply(two).sum(axis=1), np.float64)  # (pairs, 1)
    return products.ravel().clip(0.0, 1.0)


def encoder_similarity(
    encoder: SentenceTransformer, list_a: Sequence[str], list_b: Sequence[str]
) -> NDArray[np.float64]:
    """Return the cosine of each pair, -1 to 1, (pairs,); each distinct text is encoded once."""
    from tilth.models.embed import unit

    places = {text: place for place, text in enumerate(dict.fromkeys([*list_a, *list_b]))}
    vectors = unit(np.asarray(encoder.encode(list(places)), dtype=np.float64))  # (texts, width)
    one = vectors[[places[text] for text in list_a]]  # (pairs, width)
    two = vectors[[places[text] for text in list_b]]  # (pairs, width)
    return np.asarray(np.einsum("pw,pw->p", one, two))
