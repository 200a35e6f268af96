"""How alike the two texts of a pair are: by their words, or by a sentence encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

# Scripts written without spaces: every character stands as a word of its own.
_SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_BETWEEN = r"[\s\p{Z}\p{P}]+"


def plain(texts: pa.Array) -> pa.Array:
    """Return the texts in lower case, without punctuation, words separated by one space.

    Apostrophes vanish ("don't" is the word "dont"), other punctuation separates words, symbols
    such as `$` and emoji stay. A text of nothing but punctuation stays as it is, so that two
    different ones do not become equal.
    """
    lower = pc.utf8_lower(pc.fill_null(texts, ""))
    joined = pc.replace_substring(pc.replace_substring(lower, "'", ""), "\u2019", "")
    spaced = pc.replace_substring_regex(joined, _BETWEEN, " ")
    if pc.any(pc.match_substring_regex(spaced, _SPACELESS)).as_py():
        apart = pc.replace_substring_regex(spaced, f"({_SPACELESS})", r" \1 ")
        spaced = pc.replace_substring_regex(apart, r"\s+", " ")
    trimmed = pc.utf8_trim_whitespace(spaced)
    return pc.if_else(pc.equal(trimmed, ""), pc.utf8_trim_whitespace(lower), trimmed)


def word_counts(plain_texts: pa.Array) -> pa.Array:
    """Return how many words each text from `plain` has; 0 for an empty one."""
    spaces = pc.count_substring(plain_texts, " ")
    return pc.if_else(pc.equal(plain_texts, ""), 0, pc.add(spaces, 1))


Similarity = Callable[[Sequence[str], Sequence[str]], "NDArray[np.float64]"]  # -> (pairs,)


def word_overlap(list_a: Sequence[str], list_b: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of the TF-IDF weighted word counts of each pair, 0 to 1.

    A word counts log((1 + N) / (1 + n)) + 1 each time it stands in a text, for n of the N texts
    given (both lists together) that hold it: rare words count more than "the". 0: no word in
    common; 1: the same words as often, in any order. Case and punctuation are put aside.

    Args:
        list_a: one text of each pair.
        list_b: the other text of each pair, as many.

    Returns:
        The similarities, (pairs,). Two texts without words have 0.
    """
    if len(list_a) != len(list_b):
        raise ValueError(f"{len(list_a)} texts cannot be paired with {len(list_b)}")
    texts = plain(pa.array([*list_a, *list_b], pa.string())).to_pylist()
    bags = [Counter(text.split()) for text in texts]
    holding = Counter(word for bag in bags for word in bag)
    weight = {
        word: float(np.log((1 + len(bags)) / (1 + count)) + 1) for word, count in holding.items()
    }
    lengths = [sum((n * weight[word]) ** 2 for word, n in bag.items()) ** 0.5 for bag in bags]
    result = np.zeros(len(list_a))
    for pair in range(len(list_a)):
        one, two = bags[pair], bags[pair + len(list_a)]
        product = sum(n * two[word] * weight[word] ** 2 for word, n in one.items() if word in two)
        if product:
            result[pair] = product / (lengths[pair] * lengths[pair + len(list_a)])
    return np.clip(result, 0.0, 1.0)


class Encoder(Protocol):
    """What a sentence encoder must be able to do; a SentenceTransformer can."""

    def encode(self, sentences: list[str], /) -> Any:
        """Return one vector per sentence, (sentences, width)."""


@dataclass(frozen=True, slots=True)
class EncoderSimilarity:
    """The cosine of a sentence encoder's vectors of each pair, -1 to 1."""

    encoder: Encoder

    def __call__(self, list_a: Sequence[str], list_b: Sequence[str]) -> NDArray[np.float64]:
        """Return the cosines, (pairs,); every different text is encoded once."""
        if len(list_a) != len(list_b):
            raise ValueError(f"{len(list_a)} texts cannot be paired with {len(list_b)}")
        if not list_a:
            return np.zeros(0)
        places = {text: place for place, text in enumerate(dict.fromkeys([*list_a, *list_b]))}
        vectors = np.asarray(self.encoder.encode(list(places)), dtype=np.float64)  # (texts, width)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(norms == 0, 1.0, norms)
        one = vectors[[places[text] for text in list_a]]  # (pairs, width)
        two = vectors[[places[text] for text in list_b]]  # (pairs, width)
        return np.asarray(np.einsum("pw,pw->p", one, two))
