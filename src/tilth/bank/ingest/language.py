"""A light check of the language: frequent small words of sixteen languages are counted.

It costs less than a microsecond a sentence. It doubts a sentence only where another language shows:
short sentences without any small word stay.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.shingles import Words, words_of
from tilth.errors import InputError

# The languages of `small_words.txt`, in its order. Its words are as `data.normalize` has them:
# small letters, parted at apostrophes. Those of other languages leave out single letters (initials,
# variables) and what English texts hold as words or names of their own ("man", "van", "las").
LANGUAGES = (
    "en",
    "de",
    "fr",
    "es",
    "it",
    "pt",
    "nl",
    "sv",
    "da",
    "nb",
    "pl",
    "cs",
    "tr",
    "id",
    "ro",
    "hu",
)
_SMALL_WORDS = Path(__file__).with_name("small_words.txt")
# Bits of a hash that tell all the small words apart; another list may need others.
_SHIFT, _MASK = np.uint64(14), np.uint64((1 << 17) - 1)
# A counter is a byte.
_WORDS_SEEN = 250


def other_language(
    plain: pa.Array, foreign_letters: NDArray[np.float64], language: str
) -> NDArray[np.bool_]:
    """Tell which sentences are in another language than the one wanted.

    Args:
        plain: the sentences as `tilth.data.normalize.normalize_texts` has them.
        foreign_letters: which share of a sentence's letters is of other scripts than Latin.
        language: one of `LANGUAGES`.

    Returns:
        Whether most letters are of another script, or more small words of one other language stand
        there than of the one wanted. # (sentences,)
    """
    counts = _counts(words_of(plain))
    own = counts[:, LANGUAGES.index(language)].copy()
    counts[:, LANGUAGES.index(language)] = 0
    other = counts.max(1, initial=0)
    found: NDArray[np.bool_] = (foreign_letters > 0.5) | (other > own)
    return found  # (sentences,)


def check_known(language: str) -> None:
    """Raise unless the language is known.

    Raises:
        InputError: it is not.
    """
    if language not in LANGUAGES:
        raise InputError(
            f"language {language!r} is not known: use one of {', '.join(LANGUAGES)}, or none"
        )


def _counts(words: Words) -> NDArray[np.uint8]:
    """Return how many of the first words of each sentence are small words of each language."""
    keys, languages = _table()
    slots = (words.hashes >> _SHIFT) & _MASK
    hits = np.flatnonzero(keys[slots] == words.hashes)
    begin = words.starts[:-1]
    end = np.minimum(words.starts[1:], begin + _WORDS_SEEN)
    bounds = np.searchsorted(hits, np.stack([begin, end], 1).ravel())  # (2 * sentences,)
    # reduceat sums from each bound to the next one: every second sum is a sentence's.
    lanes = np.append(languages[slots[hits]], np.zeros((1, 2), np.uint64), axis=0)
    sums = np.add.reduceat(lanes, bounds)[::2]  # (sentences, 2)
    sums[bounds[::2] == bounds[1::2]] = 0
    return sums.astype("<u8", copy=False).view(np.uint8)  # (sentences, languages)


@cache
def _table() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the hashes of the small words by slot, and the counters that each of them raises.

    A counter is a byte, eight of them are one number.
    """
    counters: dict[str, NDArray[np.uint8]] = {}
    for number, line in enumerate(_SMALL_WORDS.read_text(encoding="utf-8").splitlines()):
        language, words = line.split(": ")
        assert language == LANGUAGES[number]
        for word in words.split():
            counters.setdefault(word, np.zeros(len(LANGUAGES), np.uint8))[number] = 1
    hashes = words_of(pa.array(counters)).hashes
    slots = (hashes >> _SHIFT) & _MASK
    assert len(np.unique(slots)) == len(hashes)
    keys = np.zeros(int(_MASK) + 1, np.uint64)
    languages = np.zeros((int(_MASK) + 1, len(LANGUAGES) // 8), np.uint64)
    keys[slots] = hashes
    languages[slots] = np.stack(list(counters.values())).view("<u8")
    return keys, languages
