"""Encode sentences with any encoder: others in their own batches, static ones at full speed.

A static model averages token vectors; the token ids of chunks of text are cached.
"""

from __future__ import annotations

import json
import string
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from tilth.bank.manifest import Manifest
from tilth.errors import InputError, TilthError
from tilth.models.device import choose_precision
from tilth.models.encoder import fingerprint_encoder, load_encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.runs import Progress

_TEXTS_AT_ONCE = 1024
_BATCH = 64
# Cached chunks, and the longest of them: natural text repeats few of its chunks often.
_CACHED = 1 << 19
_LONGEST = 64  # characters
_SPACE = 0x20
_PUNCTUATION = np.isin(np.arange(256), list(string.punctuation.encode()))
# Normalizers that change characters one by one, or none across a space.
_NORMALIZERS = ("BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD")
# Those that join a mark to a punctuation character before it.
_COMPOSING = ("NFC", "NFKC")
# Pre-tokenizers that never join across a space, when they come first.
_SPLITTERS = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")
# Post-processors that add nothing but special tokens.
_PROCESSORS = ("TemplateProcessing", "BertProcessing", "RobertaProcessing")
_BYTES_AT_ONCE = 1 << 23
_ROWS_AT_ONCE = 4096  # their means stay in the cache until they are normalised


class TextEncoder:
    """An encoder as a bank uses it.

    Attributes:
        static: fast encoder of a static model, cheap enough to go to every worker; else None.
    """

    def __init__(self, model: SentenceTransformer, name: str) -> None:
        self.model, self.name = model, name
        self.fingerprint = fingerprint_encoder(model)
        dimension = model.get_embedding_dimension()
        if not dimension:
            raise InputError(f"encoder {name!r} does not say how long its vectors are: use another")
        self.dimension = int(dimension)
        self.static = fast_static(model)
        if self.static is not None and not bool(self.static.vectors.isfinite().all()):
            raise TilthError(f"encoder {name!r} has weights that are not finite: use another")

    @classmethod
    def load(
        cls, encoder: str | SentenceTransformer | TextEncoder, *, device: str = "auto"
    ) -> TextEncoder:
        """Load an encoder by name, or wrap a loaded one."""
        if isinstance(encoder, TextEncoder):
            return encoder
        if not isinstance(encoder, str):
            described = getattr(encoder.model_card_data, "base_model", None)
            return cls(encoder, str(described or type(encoder).__name__))
        if encoder == "starter":  # the name that stays the same model
            encoder = "starter-encoder"
        return cls(load_encoder(encoder, device=device), encoder)

    def encode(self, texts: pa.Array, progress: Progress | None = None) -> NDArray[np.float32]:
        """Return unit vectors, (texts, dimension); zero where the encoder knows no word."""
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if self.static is None:
            vectors = self._encode_in_batches(texts, progress)
        else:
            vectors = self.static.encode(texts)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            text = texts[int(np.argmin(finite))].as_py()
            raise TilthError(
                f"encoder {self.name!r} gives no finite vector for {text!r:.200}: its weights may "
                "be broken; use another"
            )
        if progress is not None and self.static is not None:
            progress.advance(len(texts))
        return vectors

    def _encode_in_batches(self, texts: pa.Array, progress: Progress | None) -> NDArray[np.float32]:
        # Longest first over thousands of texts, so that batches pad little.
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        lengths = np.array([len(text) for text in texts.to_pylist()])
        order = np.argsort(-lengths, kind="stable")
        device = self.model.device
        is_low = choose_precision("auto", device) == torch.bfloat16
        with torch.autocast(device.type, torch.bfloat16, enabled=is_low):
            for start in range(0, len(order), _TEXTS_AT_ONCE):
                rows = order[start : start + _TEXTS_AT_ONCE]
                found: Any = self.model.encode(
                    texts.take(pa.array(rows)).to_pylist(),
                    batch_size=_BATCH,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
                vectors[rows] = np.asarray(found, np.float32)
                if progress is not None:
                    progress.advance(len(rows))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # a vector that is not finite stays so, to be found
            vectors /= np.where(lengths == 0, 1, lengths)
        return vectors


def load_bank_encoder(
    path: Path,
    manifest: Manifest,
    encoder: str | SentenceTransformer | TextEncoder | None,
    *,
    device: str,
) -> TextEncoder:
    """Load the encoder of a bank; None: the one that the manifest names."""
    if encoder is not None:
        found = TextEncoder.load(encoder, device=device)
    else:
        name = manifest.encoder
        if name == "starter":  # as it was called in banks before the starters were renamed
            name = "starter-static"
        try:
            found = TextEncoder.load(name, device=device)
        except InputError as error:
            raise InputError(
                f"{path}: its encoder {name!r} does not load ({error}): open the bank with "
                "the encoder that it was built with"
            ) from error
    if found.dimension != manifest.dimension:
        raise InputError(
            f"{path}: its vectors have {manifest.dimension} dimensions, those of encoder "
            f"{found.name!r} {found.dimension}: use {manifest.encoder!r}, or build a bank "
            "with this one"
        )
    if found.fingerprint != manifest.fingerprint:
        same = "; it may be the same one, if an earlier version fingerprinted it"
        raise InputError(
            f"{path}: was built with another encoder ({manifest.encoder!r}, fingerprint "
            f"{manifest.fingerprint}; {found.name!r} has {found.fingerprint}"
            f"{same if found.name == manifest.encoder else ''}): name the "
            "one it was built with, or build a bank with this one"
        )
    return found


def fast_static(encoder: SentenceTransformer) -> StaticEncoder | None:
    """Return a fast encoder of a static model; None where it would not be exact.

    Vectors equal `encoder.encode(texts, normalize_embeddings=True)` to float32 rounding. The model
    must be one `StaticEmbedding` without a prompt, with a tokenizer that `splits_at_spaces`.
    """
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    module, *others = list[Any](encoder)
    if type(module) is not StaticEmbedding or any(type(other) is not Normalize for other in others):
        return None
    bag = module.embedding
    if (bag.mode, bag.padding_idx, bag.max_norm) != ("mean", None, None):
        return None
    if encoder.prompts.get(encoder.default_prompt_name or ""):
        return None
    if not splits_at_spaces(module.tokenizer):
        return None
    vectors = bag.weight.detach().float().cpu()[:, : encoder.truncate_dim]
    return StaticEncoder(module.tokenizer, vectors.contiguous())


class StaticEncoder:
    """Encode texts as the normalised means of their token vectors.

    Pickling leaves the cache out.

    Args:
        tokenizer: one that `splits_at_spaces`.
        vectors: float32. # (tokens, dimension)
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor) -> None:
        self.tokenizer = tokenizer
        self.vectors = vectors
        self.dimension: int = vectors.shape[1]
        self.cache = TokenCache(tokenizer)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticEncoder, (self.tokenizer, self.vectors)

    def encode(self, texts: pa.Array) -> NDArray[np.float32]:
        """Return unit vectors, (texts, dimension); zeros for a text without tokens.

        Batches of tens of thousands of texts are fastest.
        """
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            raise InputError(f"texts are of type {texts.type}: give an Arrow array of strings")
        if texts.null_count:
            raise InputError(f"{texts.null_count} texts are missing: give '' for an empty text")
        vectors = np.empty((len(texts), self.dimension), np.float32)
        data, bounds = _text_bytes(texts)
        start = 0
        while start < len(texts):
            # As many whole texts as fit, at least one.
            fits = int(np.searchsorted(bounds, bounds[start] + _BYTES_AT_ONCE, "right")) - 1
            stop = min(max(fits, start + 1), len(texts))
            some = bounds[start : stop + 1]
            ids, offsets = self.cache.tokenize(data[some[0] : some[-1]], some - some[0])
            self._means(ids, offsets, vectors[start:stop])
            start = stop
        return vectors

    def _means(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], out: NDArray[np.float32]
    ) -> None:
        """Write the normalised means of texts' token vectors, (texts, dimension)."""
        edges = np.append(offsets, len(ids))  # (texts + 1,)
        for start in range(0, len(out), _ROWS_AT_ONCE):
            some = edges[start : start + _ROWS_AT_ONCE + 1]
            means = embedding_bag(
                torch.from_numpy(ids[some[0] : some[-1]]),
                self.vectors,
                torch.from_numpy((some[:-1] - some[0]).astype(np.int32)),
                mode="mean",
            )  # (rows, dimension)
            out[start : start + _ROWS_AT_ONCE] = normalize(means, dim=1).numpy()


def _text_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of texts and their offsets, (texts + 1,)."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset :][: len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


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
    cleared beyond half a million chunks. The tokenizer must split at spaces (`splits_at_spaces`);
    its truncation is kept.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        made = json.loads(tokenizer.to_str())
        self.limit: int | None = (made["truncation"] or {}).get("max_length")
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        # The tokenizer looks for these in the raw text, before anything else.
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
        # Where the token ids of each cached chunk begin among all, and how many they are.
        self._starts, self._lengths, self._flat = array("q"), array("q"), array("i")

    def tokenize(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return token ids, (tokens,), and the offset of each text's first, (texts,).

        Args:
            data: concatenated texts in UTF-8. # (bytes,)
            bounds: byte offsets of the texts. # (texts + 1,)
        """
        chunks, first = self._chunks(data, bounds)
        coded = chunks.dictionary_encode()
        starts, lengths, flat = self._look_up(coded.dictionary.to_pylist())
        codes = coded.indices.to_numpy()
        counts = lengths[codes]  # (chunks,)
        before = np.concatenate(([0], np.cumsum(counts)))  # (chunks + 1,)
        places = np.repeat(starts[codes] - before[:-1], counts)  # (tokens,)
        places += np.arange(len(places))
        return self._truncated(flat[places], before[first])

    def _chunks(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> tuple[pa.Array, NDArray[np.int64]]:
        """Cut texts before every space; return the chunks and the first chunk of each text."""
        # Lower-cased where the tokenizer does it, so that case variants share a cache entry.
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

    def _look_up(
        self, chunks: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
        """Return the offset and number of each chunk's token ids, and the ids."""
        if len(self.number) > _CACHED:
            self.number.clear()
            del self._starts[:], self._lengths[:], self._flat[:]
        numbers = [self.number.get(chunk, -1) for chunk in chunks]
        new = [place for place, number in enumerate(numbers) if number < 0]
        # Long chunks come last and are not kept: natural text repeats few of them.
        new.sort(key=lambda place: len(chunks[place]) > _LONGEST)
        kept, kept_ids = len(self._starts), len(self._flat)
        tokenized = self.tokenizer.encode_batch_fast(
            [chunks[place] for place in new], add_special_tokens=False
        )
        for place, found in zip(new, tokenized, strict=True):
            numbers[place] = len(self._starts)
            self._starts.append(len(self._flat))
            self._flat.extend(found.ids)
            self._lengths.append(len(self._flat) - self._starts[-1])
            if len(chunks[place]) <= _LONGEST:
                self.number[chunks[place]] = numbers[place]
                kept, kept_ids = len(self._starts), len(self._flat)
        rows = np.array(numbers, np.int64)  # (chunks,)
        starts, lengths = np.array(self._starts)[rows], np.array(self._lengths)[rows]
        flat = np.array(self._flat)  # (tokens,)
        del self._starts[kept:], self._lengths[kept:], self._flat[kept_ids:]
        return starts, lengths, flat

    def _truncated(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Truncate texts as the tokenizer does."""
        sizes = np.diff(offsets, append=len(ids))  # (texts,)
        if self.limit is None or not (sizes > self.limit).any():
            return ids, offsets
        kept = np.arange(len(ids)) - np.repeat(offsets, sizes) < self.limit
        ends = np.cumsum(np.minimum(sizes, self.limit))
        return ids[kept], np.concatenate(([0], ends[:-1]))  # (tokens,), (texts,)
