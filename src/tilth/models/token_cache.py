"""Tokenize texts by looking up their chunks, whose token ids are cached."""

from __future__ import annotations

import json
import string
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tilth.object_code import Compiled

# Cached chunks: natural text repeats few of its chunks often.
_CACHED = 1 << 19
# Up to this many new chunks are left to the tokenizer: a table of its pieces is not made.
_FEW = 1_000
_NO_LIMIT = 1 << 40
_SPACE = 0x20
_PUNCTUATION = np.isin(np.arange(256), list(string.punctuation.encode()))
_PLAIN = np.isin(np.arange(256), np.arange(0x21, 0x7F)).astype(np.uint8)
# Normalizers that change characters one by one, or none across a space.
_NORMALIZERS = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD")
# Those that join a mark to a punctuation character before it.
_COMPOSING = ("NFC", "NFKC")
# Pre-tokenizers that never join across a space, when they come first.
_SPLITTERS = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
# Post-processors that add nothing but special tokens.
_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")

_KERNELS = "tilth.models.static_kernels"
find_chunks = Compiled(_KERNELS, "find_chunks")
number_pieces = Compiled(_KERNELS, "number_pieces")
word_pieces = Compiled(_KERNELS, "word_pieces")
spread_ids = Compiled(_KERNELS, "spread_ids")


def join_bytes(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts one after the other, and where each begins and the end."""
    bounds = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), bounds


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Tell whether a tokenizer provably treats space-separated chunks independently.

    It must normalise characters one by one and split at white space first.
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


@lru_cache(maxsize=1)
def _described(tokenizer: str) -> dict[str, Any]:
    """Return the parts of a tokenizer from its text, which is long."""
    found: dict[str, Any] = json.loads(tokenizer)
    return found


def _steps(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    if part is None:
        return []
    for members in ("normalizers", "pretokenizers", "processors"):
        if members in part:
            return [step for member in part[members] for step in _steps(member)]
    return [part]


class TokenCache:
    """Tokenize texts, with a cache of the token ids of chunks.

    Texts are cut at spaces, and at ASCII punctuation where the tokenizer always does. The cache is
    cleared beyond half a million chunks. Chunks are compared by 64 bits of a hash. The tokenizer
    must split at spaces (`splits_at_spaces`); its truncation is kept.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        made = _described(tokenizer.to_str())
        self.limit: int | None = (made["truncation"] or {}).get("max_length")
        self.tokenizer = tokenizer
        if made["truncation"] or made["padding"]:
            self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
        # The tokenizer looks for these in the raw text, before anything else.
        self.whole = [token["content"].encode() for token in made["added_tokens"]]
        raw = not any(token["normalized"] for token in made["added_tokens"])
        normalizers = _steps(made["normalizer"])
        lowers = raw and any(
            step["type"] == "Lowercase" or step.get("lowercase") for step in normalizers
        )
        cuts = (
            raw
            and _steps(made["pre_tokenizer"])[0]["type"] == "BertPreTokenizer"
            and not any(step["type"] in _COMPOSING for step in normalizers)
        )
        self._lower = np.arange(256, dtype=np.uint8)
        self._lower[ord("A") : ord("Z") + 1] += np.uint8(32 * lowers)
        self._kinds = (np.arange(256) == _SPACE) + _PUNCTUATION * np.uint8(2 * cuts)
        self._model = made["model"] if cuts and _is_word_piece(made["model"]) else None
        self._clear()

    def _clear(self) -> None:
        self.known = 0
        self._slots = np.zeros(0, np.uint64)
        # Where the token ids of each known chunk begin among all, and how many they are.
        self._starts, self._lengths = np.empty(0, np.int64), np.empty(0, np.int64)
        self._ids = np.empty(0, np.int32)

    def tokenize(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return token ids, (tokens,), and where those of each text begin and end, (texts + 1,).

        Args:
            data: concatenated texts in UTF-8. # (bytes,)
            bounds: byte offsets of the texts. # (texts + 1,)
        """
        codes, first = self._chunks(data, bounds)
        ids = np.empty(self._lengths[codes].sum(), np.int32)
        offsets = np.empty(len(bounds), np.int64)
        spread_ids(
            codes,
            first,
            self._starts,
            self._lengths,
            self._ids,
            self.limit or _NO_LIMIT,
            ids,
            offsets,
        )
        return ids[: offsets[-1]], offsets

    def _chunks(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the numbers of the chunks, and the first chunk of each text and the end."""
        if self.known > _CACHED or len(self._ids) > 8 * _CACHED:
            self._clear()
        # Lower-cased where the tokenizer does it, so that case variants share a cache entry.
        raw = data.tobytes()
        plain = not any(token in raw for token in self.whole)
        kinds = self._kinds if plain else self._kinds & np.uint8(1)
        lower = self._lower if plain else np.arange(256, dtype=np.uint8)
        self._make_room(self.known + len(data))
        codes, known = np.empty(len(data), np.int32), np.array([self.known])
        begins, ends = np.empty((2, len(data)), np.int64)
        first = np.empty(len(bounds), np.int64)
        find_chunks(
            data, bounds, kinds, lower, self._bits, self._slots, known, codes, first, begins, ends
        )
        new = int(known[0]) - self.known
        self._tokenize_new(data, begins[:new].copy(), ends[:new].copy(), lower, plain=plain)
        self.known += new
        return codes[: first[-1]], first

    @cached_property
    def _pieces(self) -> _Pieces:
        assert self._model is not None
        return _Pieces(self._model)

    def _make_room(self, most: int) -> None:
        """Make the table large enough for `most` chunks."""
        if len(self._slots) and 2 * most <= len(self._slots):
            return
        self._clear()
        self._bits = max(most, _FEW).bit_length()
        self._slots = np.zeros(1 << (self._bits + 1), np.uint64)

    def _tokenize_new(
        self,
        data: NDArray[np.uint8],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        lower: NDArray[np.uint8],
        *,
        plain: bool,
    ) -> None:
        """Append the token ids of new chunks."""
        lengths = np.full(len(begins), -1, np.int64)
        ids = np.empty(0, np.int32)
        if plain and self._model is not None and len(begins) > _FEW:
            ids = self._pieces.split(data, begins, ends, lower, lengths)
        rest = np.flatnonzero(lengths < 0)
        raw, starts = lower[data].tobytes() if len(rest) else b"", np.cumsum(np.maximum(lengths, 0))
        starts += len(self._ids) - np.maximum(lengths, 0)
        texts = [raw[begins[place] : ends[place]].decode() for place in rest]
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        others = [np.array(one.ids, np.int32) for one in found]
        lengths[rest] = [len(one) for one in others]
        begun = len(self._ids) + len(ids)
        starts[rest] = begun + np.cumsum(lengths[rest]) - lengths[rest]
        self._starts = np.concatenate([self._starts, starts])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._ids = np.concatenate([self._ids, ids, *others])


def _is_word_piece(model: dict[str, Any]) -> bool:
    return model["type"] == "WordPiece" and model["unk_token"] in model["vocab"]


class _Pieces:
    """The vocabulary of a WordPiece model, for chunks of plain letters, digits and marks."""

    def __init__(self, model: dict[str, Any]) -> None:
        prefix, vocabulary = model["continuing_subword_prefix"], model["vocab"]
        self._unknown, self._most = (
            vocabulary[model["unk_token"]],
            model["max_input_chars_per_word"],
        )
        continuing = [piece.startswith(prefix) for piece in vocabulary]
        pieces = [
            piece[len(prefix) * more :].encode()
            for piece, more in zip(vocabulary, continuing, strict=True)
        ]
        self._longest = max(map(len, pieces))
        self._bits = max(vocabulary.values()).bit_length() + 1
        self._slots = np.zeros(1 << (self._bits + 1), np.uint64)
        data, bounds = join_bytes(pieces)
        number_pieces(
            data, bounds, np.array(continuing, np.uint8),
            np.array(list(vocabulary.values()), np.int64), self._bits, self._slots,
        )  # fmt: skip

    def split(
        self,
        data: NDArray[np.uint8],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        lower: NDArray[np.uint8],
        lengths: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Return the token ids of plain chunks; write their numbers, -1 for other chunks."""
        ids = np.empty(int((ends - begins).sum()), np.int32)
        word_pieces(
            data, begins, ends, _PLAIN, lower, self._bits, self._slots, self._longest, self._most,
            self._unknown, lengths, ids,
        )  # fmt: skip
        return ids[: np.maximum(lengths, 0).sum()]
