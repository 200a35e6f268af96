"""Normalized texts: without case, punctuation and further white space."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.hashing import text_hashes


class _PunctuationToSpace(dict[int, int]):
    """Translates the code points of punctuation to a space."""

    def __missing__(self, code: int) -> int:
        mapped = ord(" ") if unicodedata.category(chr(code)).startswith("P") else code
        self[code] = mapped
        return mapped


_PUNCTUATION = _PunctuationToSpace()
_BYTES_AT_ONCE = 1 << 18
_TOKENS_KEPT = 1 << 17
_LONGEST_TOKEN_KEPT = 40
# Translates the bytes of ASCII texts as `normalize_text` does.
_PLAIN_BYTES = bytes(
    ord(" ") if char.isspace() or unicodedata.category(char).startswith("P") else ord(char.lower())
    for char in map(chr, range(128))
) + bytes(range(128, 256))


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
    spaced, offsets, left = _spaced(texts)
    found = pa.LargeStringArray.from_buffers(
        len(texts), pa.py_buffer(offsets), pa.py_buffer(spaced)
    )
    left |= np.diff(offsets) == 0  # also those of nothing but punctuation
    if not left.any():
        return found
    rest = [_by_token(text) for text in texts.filter(pa.array(left)).to_pylist()]
    return pc.replace_with_mask(found, pa.array(left), pa.array(rest, pa.large_string()))


def exact_keys(texts: pa.Array) -> NDArray[np.uint64]:
    """Return a 64-bit key of each text, equal for texts that `normalize_texts` makes equal.

    Among 100 million texts, two different ones have the same key with a probability of 0.03%.
    """
    return text_hashes(normalize_texts(texts))  # (texts,)


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


def _spaced(texts: pa.LargeStringArray) -> tuple[bytes, NDArray[np.int64], NDArray[np.bool_]]:
    """Normalize texts in ASCII with dashes and quotation marks.

    Returns:
        The texts, concatenated; others are invalid.
        Where each begins, and the end. # (texts + 1,)
        Which are others. # (texts,)
    """
    starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    raw = np.frombuffer(b"" if data is None else data, np.uint8)
    # In blocks that fit the processor's cache.
    cuts = np.searchsorted(starts, np.arange(starts[0], starts[-1], _BYTES_AT_ONCE))
    cuts = np.unique(np.append(cuts, [0, len(texts)]))
    parts, lengths = [], [np.zeros(1, np.int64)]
    odd = np.zeros(len(texts), np.bool_)
    for begin, end in pairwise(cuts.tolist()):
        part = np.frombuffer(
            raw[starts[begin] : starts[end]].tobytes().translate(_PLAIN_BYTES), np.uint8
        )
        places = starts[begin : end + 1] - starts[begin]
        if len(others := np.flatnonzero(part > 0x7F)):
            part = part.copy()
            mark = others[:-2][_is_mark(part[others[:-2]], part[others[1:-1]], part[others[2:]])]
            for byte in range(3):
                part[mark + byte] = ord(" ")
            others = others[part[others] > 0x7F]
            odd[begin + np.searchsorted(places, others, "right") - 1] = True
        kept, length = _squeezed(part, places)
        parts.append(kept.tobytes())
        lengths.append(length)
    return b"".join(parts), np.cumsum(np.concatenate(lengths)), odd


def _is_mark(
    one: NDArray[np.uint8], two: NDArray[np.uint8], three: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Tell which three bytes are U+2010 to U+2027, all punctuation, but not U+2017.

    NFKC turns U+2017 into a combining mark.
    """
    found: NDArray[np.bool_] = (
        (one == 0xE2) & (two == 0x80) & (three >= 0x90) & (three <= 0xA7) & (three != 0x97)
    )
    return found


def _squeezed(
    text: NDArray[np.uint8], starts: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts with single spaces, and the length of each."""
    full = np.diff(starts) > 0
    space = text == ord(" ")
    # The first space of a run stays, unless it begins its text.
    before = np.empty_like(space)
    before[1:] = space[:-1]
    before[starts[:-1][full]] = True
    keep = ~(space & before)
    counts = np.append(0, np.cumsum(keep))[starts]
    kept = text[keep]
    # A space at the end of a text goes, too.
    ends = counts[1:][counts[1:] > counts[:-1]] - 1
    trailing = ends[kept[ends] == ord(" ")]
    counts -= np.searchsorted(trailing, counts)
    return np.delete(kept, trailing), np.diff(counts)
