"""Normalized texts: without case, punctuation and further white space."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import random_keys, text_hashes
from tilth.object_code import Compiled

# A character of a script that is written without spaces, for Arrow's regular expressions.
SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"


class _PunctuationToSpace(dict[int, int]):
    """Translates the code points of punctuation, also of the quotation mark `, to a space."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        mapped = ord(" ") if char == "`" or unicodedata.category(char).startswith("P") else code
        self[code] = mapped
        return mapped


_PUNCTUATION = _PunctuationToSpace()
_normalize_plain = Compiled("tilth.data.text_kernels", "normalize_plain")
_FEW = 100  # texts
_TOKENS_KEPT = 1 << 17
_LONGEST_TOKEN_KEPT = 40
# Translates the bytes of ASCII texts as `normalize_text` does.
_PLAIN_BYTES = np.arange(256, dtype=np.uint8)
_PLAIN_BYTES[:128] = [
    ord(" ") if char.isspace() else _PUNCTUATION[ord(char.lower())] for char in map(chr, range(128))
]


def normalize_text(text: str) -> str:
    """Return a text without case, punctuation and further white space (NFKC).

    A text of nothing but punctuation keeps it, so that two of them do not become equal.

    Example:
        >>> normalize_text("The  ﬁrst swallow, at last!")
        'the first swallow at last'
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.translate(_PUNCTUATION).split()) or " ".join(folded.split())


def normalize_texts(texts: pa.Array) -> pa.Array:
    """Return `normalize_text` of each text; vectorised for ASCII with dashes and quotation marks.

    Example:
        >>> normalize_texts(pa.array(["At last!", "É…"])).to_pylist()
        ['at last', 'é']
    """
    texts = texts.cast(pa.large_string())
    if len(texts) < _FEW:  # not worth the kernel
        return pa.array([_by_token(text) for text in texts.to_pylist()], pa.large_string())
    data, starts = bytes_of(texts)
    spaced, offsets = np.empty(len(data), np.uint8), np.empty(len(starts), np.int64)
    odd = np.empty(len(texts), np.uint8)
    _normalize_plain(data, starts, _PLAIN_BYTES, spaced, offsets, odd)
    found = pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(spaced)
    )
    left = (odd > 0) | (np.diff(offsets) == 0)  # also those of nothing but punctuation
    if not left.any():
        return found
    rest = [_by_token(text) for text in texts.filter(pa.array(left)).to_pylist()]
    return pc.replace_with_mask(found, pa.array(left), pa.array(rest, pa.large_string()))


def normalize_rows(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return `normalize_text` of each text of rows of one, two or more texts."""
    sides = [normalize_texts(pa.array(side, pa.large_string())) for side in zip(*rows, strict=True)]
    return list(zip(*(side.to_pylist() for side in sides), strict=True))


def exact_keys(texts: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit key of each text, equal for texts that `normalize_texts` makes equal.

    Among 100 million texts, two different ones have the same key with a probability of 0.03%.
    """
    return text_hashes(normalize_texts(texts))  # (texts,)


def side_keys(rows: Sequence[tuple[str, ...]]) -> list[NDArray[np.uint64]]:
    """Return such keys of the first texts of rows, of the second ones, and so on, (rows,) each."""
    return [exact_keys(pa.array(side, pa.large_string())) for side in zip(*rows, strict=True)]


def row_keys(rows: Sequence[tuple[str, ...]]) -> NDArray[np.uint64]:
    """Return such a key of each row of one, two or more texts."""
    sides = side_keys(rows)
    return random_keys(0, "row", *sides) if sides else np.empty(0, np.uint64)


class _Tokens(dict[str, str]):
    """Caches the normalized forms of what stands between two spaces."""

    def __missing__(self, token: str) -> str:
        if len(self) >= _TOKENS_KEPT:
            self.clear()
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", token).casefold())
        mapped = folded.translate(_PUNCTUATION)
        if len(token) <= _LONGEST_TOKEN_KEPT:
            self[token] = mapped
        return mapped


_TOKENS = _Tokens()


def _by_token(text: str) -> str:
    """Return `normalize_text` of a text, token by token: nothing in it reaches across a space."""
    mapped = " ".join(map(_TOKENS.__getitem__, text.split(" ")))
    return " ".join(mapped.split()) or normalize_text(text)


def bytes_of(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of texts in UTF-8, and where each begins in them and the end."""
    texts = texts.cast(pa.large_string())
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, starts, data = texts.buffers()
    starts = np.frombuffer(starts, np.int64)[texts.offset :][: len(texts) + 1]
    raw = np.frombuffer(b"" if data is None else data, np.uint8)
    return raw[starts[0] : starts[-1]], starts - starts[0]
