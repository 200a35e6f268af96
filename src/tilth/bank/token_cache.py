"""From many texts to the numbers of their pieces, each distinct chunk tokenised once."""

from __future__ import annotations

import json
import string
from array import array
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

# Chunks remembered, and the longest of them: natural text repeats few of its chunks often.
_REMEMBERED = 1 << 19
_LONGEST = 64  # characters
_SPACE = 0x20
_PUNCTUATION = np.isin(np.arange(256), list(string.punctuation.encode()))
# What changes characters one by one, or none across a space.
_NORMALIZERS = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD")
# Of these, what joins a mark to a punctuation character before it.
_COMPOSING = ("NFC", "NFKC")
# What never joins across a space, when it comes first.
_SPLITTERS = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
# What adds nothing where special tokens are not asked for.
_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Tell whether a text's pieces are those of its stretches between spaces, one after another.

    True where the settings prove it: characters are normalised one by one, and text is first of
    all split at white space.
    """
    made = json.loads(tokenizer.to_str())
    splitters = _steps(made["pre_tokenizer"])
    return (
        all(step["type"] in _NORMALIZERS for step in _steps(made["normalizer"]))
        and bool(splitters)
        and splitters[0]["type"] in _SPLITTERS
        and all(step["type"] in _PROCESSORS for step in _steps(made["post_processor"]))
        and not made["model"].get("dropout")
        and not any(" " in token["content"] for token in made["added_tokens"])
        and (made["truncation"] or {}).get("direction", "Right") == "Right"
    )


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    if part is None:
        return []
    for members in ("normalizers", "pretokenizers", "processors"):
        if members in part:
            return [step for member in part[members] for step in _steps(member)]
    return [part]


class Pieces:
    """Texts to the numbers of their pieces.

    Texts are cut at spaces, and at ASCII punctuation where the tokenizer is one that always does;
    each distinct chunk is tokenised once for as long as it is remembered. Half a million are, then
    all are forgotten.

    Args:
        tokenizer: of which `splits_at_spaces` holds; its truncation is kept.

    Attributes:
        number: of each chunk remembered.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        made = json.loads(tokenizer.to_str())
        self.limit: int | None = (made["truncation"] or {}).get("max_length")
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        # These are looked for in a text as it stands, before anything else.
        self.whole = [token["content"].encode() for token in made["added_tokens"]]
        raw = not any(token["normalized"] for token in made["added_tokens"])
        normalizers = _steps(made["normalizer"])
        self.lowers = raw and any(
            step["type"] == "Lowercase" or step.get("lowercase") for step in normalizers
        )
        self.cuts = (
            raw
            and _steps(made["pre_tokenizer"])[0]["type"] == "BertPreTokenizer"
            and not any(step["type"] in _COMPOSING for step in normalizers)
        )
        self.number: dict[str, int] = {}
        # Where the pieces of each remembered chunk begin among all of them, and how many they are.
        self._starts, self._lengths, self._flat = array("q"), array("q"), array("i")

    def of(self, data: Bytes, bounds: Numbers) -> tuple[NDArray[np.int32], Numbers]:
        """Return the pieces of texts, (pieces,), and where each text's begin, (texts,).

        Args:
            data: the texts in UTF-8, one after another. # (bytes,)
            bounds: where each begins in it, and the last one's end. # (texts + 1,)
        """
        chunks, first = self._chunks(data, bounds)
        coded = chunks.dictionary_encode()
        starts, lengths, flat = self._look_up(coded.dictionary.to_pylist())
        codes = coded.indices.to_numpy()
        counts = lengths[codes]  # (chunks,)
        before = np.concatenate(([0], np.cumsum(counts)))  # (chunks + 1,)
        places = np.repeat(starts[codes] - before[:-1], counts)  # (pieces,)
        places += np.arange(len(places))
        return self._truncated(flat[places], before[first])

    def _chunks(self, data: Bytes, bounds: Numbers) -> tuple[pa.Array, Numbers]:
        """Cut texts before every space; return the chunks and which of them each text begins with.

        A chunk that differs in case alone is tokenised again, so case is taken off here.
        """
        raw = data.tobytes()
        plain = not any(token in raw for token in self.whole)
        if plain and self.lowers:
            data = np.where(data - np.uint8(ord("A")) < 26, data | np.uint8(32), data)
        space = data == _SPACE
        begins = space.copy()
        if plain and self.cuts:
            mark = _PUNCTUATION[data]
            begins[1:] |= mark[:-1] | (mark[1:] & ~space[:-1])
        begins[bounds[:-1][np.diff(bounds) > 0]] = True
        edges = np.append(np.flatnonzero(begins), len(data))  # (chunks + 1,)
        chunks = pa.Array.from_buffers(
            pa.large_string(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
        )
        return chunks, np.searchsorted(edges, bounds[:-1])  # (texts,)

    def _look_up(self, chunks: list[str]) -> tuple[Numbers, Numbers, NDArray[np.int32]]:
        """Return where the pieces of each chunk begin, how many they are, and the pieces."""
        if len(self.number) > _REMEMBERED:
            self.number.clear()
            del self._starts[:], self._lengths[:], self._flat[:]
        numbers = [self.number.get(chunk, -1) for chunk in chunks]
        new = [place for place, number in enumerate(numbers) if number < 0]
        # The long come last, so that they are easily forgotten.
        new.sort(key=lambda place: len(chunks[place]) > _LONGEST)
        kept, kept_pieces = len(self._starts), len(self._flat)
        tokenised = self.tokenizer.encode_batch_fast(
            [chunks[place] for place in new], add_special_tokens=False
        )
        for place, found in zip(new, tokenised, strict=True):
            numbers[place] = len(self._starts)
            self._starts.append(len(self._flat))
            self._flat.extend(found.ids)
            self._lengths.append(len(self._flat) - self._starts[-1])
            if len(chunks[place]) <= _LONGEST:
                self.number[chunks[place]] = numbers[place]
                kept, kept_pieces = len(self._starts), len(self._flat)
        rows = np.array(numbers, np.int64)  # (chunks,)
        starts, lengths = np.array(self._starts)[rows], np.array(self._lengths)[rows]
        flat = np.array(self._flat)  # (pieces,)
        del self._starts[kept:], self._lengths[kept:], self._flat[kept_pieces:]
        return starts, lengths, flat

    def _truncated(
        self, ids: NDArray[np.int32], offsets: Numbers
    ) -> tuple[NDArray[np.int32], Numbers]:
        """Leave out what the tokenizer's truncation leaves out."""
        sizes = np.diff(offsets, append=len(ids))  # (texts,)
        if self.limit is None or not (sizes > self.limit).any():
            return ids, offsets
        kept = np.arange(len(ids)) - np.repeat(offsets, sizes) < self.limit
        ends = np.cumsum(np.minimum(sizes, self.limit))
        return ids[kept], np.concatenate(([0], ends[:-1]))  # (pieces,), (texts,)
