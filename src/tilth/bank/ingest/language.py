"""A light check of the language by the stop words of sixteen languages.

It costs less than a microsecond a sentence. Only positive evidence of another language counts:
short sentences without any stop word stay.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.near_duplicates import hash_words
from tilth.errors import InputError

# The languages of `stop_words.txt`, in its order. Its words are normalized: lower case, split at
# apostrophes. Those of other languages leave out single letters (initials, variables) and what
# English texts hold as words or names of their own ("man", "van", "las").
LANGUAGES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "pl", "cs", "tr", "id", "ro", "hu",
)  # fmt: skip
_STOP_WORDS = Path(__file__).with_name("stop_words.txt")
# Bits of a hash that tell all the stop words apart; another list may need others.
_SHIFT, _MASK = np.uint64(14), np.uint64((1 << 17) - 1)
# A counter is a byte.
_WORDS_SEEN = 250


def other_language(
    normalized: pa.Array, foreign_letters: NDArray[np.float64], language: str
) -> NDArray[np.bool_]:
    """Return the mask of sentences in another language.

    Most letters are of another script, or another language has more stop words in the sentence.

    Args:
        normalized: from `tilth.data.normalize.normalize_texts`.
        foreign_letters: share of non-Latin letters per sentence. # (sentences,)
    """
    counts = _counts(*hash_words(normalized))
    own = counts[:, LANGUAGES.index(language)].copy()
    counts[:, LANGUAGES.index(language)] = 0
    other = counts.max(1, initial=0)
    found: NDArray[np.bool_] = (foreign_letters > 0.5) | (other > own)
    return found  # (sentences,)


def check_known(language: str) -> None:
    """Raise InputError unless the language is known."""
    if language not in LANGUAGES:
        raise InputError(
            f"language {language!r} is not known: use one of {', '.join(LANGUAGES)}, or none"
        )


def _counts(words: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Count the stop words of each language among the first words of each sentence."""
    keys, languages = _table()
    slots = (words >> _SHIFT) & _MASK
    hits = np.flatnonzero(keys[slots] == words)
    begin = starts[:-1]
    end = np.minimum(starts[1:], begin + _WORDS_SEEN)
    bounds = np.searchsorted(hits, np.stack([begin, end], 1).ravel())  # (2 * sentences,)
    # reduceat sums from each bound to the next one: every second sum is a sentence's.
    lanes = np.append(languages[slots[hits]], np.zeros((1, 2), np.uint64), axis=0)
    sums = np.add.reduceat(lanes, bounds)[::2]  # (sentences, 2)
    sums[bounds[::2] == bounds[1::2]] = 0
    return sums.astype("<u8", copy=False).view(np.uint8)  # (sentences, languages)


@cache
def _table() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the hashes of the stop words by slot, and the counters that each of them increments.

    A counter is a byte, eight of them are one number.
    """
    counters: dict[str, NDArray[np.uint8]] = {}
    for number, line in enumerate(_STOP_WORDS.read_text(encoding="utf-8").splitlines()):
        language, words = line.split(": ")
        assert language == LANGUAGES[number]
        for word in words.split():
            counters.setdefault(word, np.zeros(len(LANGUAGES), np.uint8))[number] = 1
    hashes, _ = hash_words(pa.array(counters))
    slots = (hashes >> _SHIFT) & _MASK
    assert len(np.unique(slots)) == len(hashes)
    keys = np.zeros(int(_MASK) + 1, np.uint64)
    languages = np.zeros((int(_MASK) + 1, len(LANGUAGES) // 8), np.uint64)
    keys[slots] = hashes
    languages[slots] = np.stack(list(counters.values())).view("<u8")
    return keys, languages
