"""Static sentence encoders: the normalised means of token vectors, read and encoded without torch.

The token ids of chunks of text are cached.
"""

from __future__ import annotations

import hashlib
import json
import string
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tilth.errors import InputError
from tilth.models.names import ENCODER, starter_path

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Floats = NDArray[np.float32]
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
_MODULES = "sentence_transformers."
_SENTENCE = "sentence_embedding"  # what a Normalize module reads and writes
_SAMPLED = 256  # values of a tensor


def read_static(name: str, device: str = "auto") -> StaticEncoder | None:
    """Read a static encoder by name; None for any other encoder, and for files that do not read.

    `load_encoder` takes these, and says what is wrong. The vectors are those of `fast_static`.

    Args:
        name: a shipped name, a folder or the run of a training; a hub id is another encoder.
        device: for any but `auto` and `cpu` the answer is None, too: `load_encoder` checks it.
    """
    if device not in ("auto", "cpu"):
        return None
    folder = Path(name).expanduser()
    if name in ENCODER.starters:
        folder = starter_path(ENCODER.starters[name])
    elif (folder / "run.json").is_file():
        folder /= "model"
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        if not _is_static(folder, modules):
            return None
        first = folder / modules[0]["path"]
        tokenizer = Tokenizer.from_file(str(first / "tokenizer.json"))
        weights = _read_weights(first / "model.safetensors")
        config = _read_json(folder / "config_sentence_transformers.json")
        is_prompted = (config.get("prompts") or {}).get(config.get("default_prompt_name") or "")
        vocabulary = tokenizer.get_vocab()
        if is_prompted or not 0 <= max(vocabulary.values(), default=-1) < len(weights):
            return None
        if not splits_at_spaces(tokenizer):
            return None
        vectors = np.ascontiguousarray(weights[:, : config.get("truncate_dim")])
    except Exception:  # a folder's files are input: the libraries raise whatever they meet
        return None
    return StaticEncoder(tokenizer, vectors, _fingerprint(vocabulary, weights, len(modules) - 1))


def _is_static(folder: Path, modules: list[dict[str, str]]) -> bool:
    """Return whether a model's modules are one of token vectors and any that normalise."""
    kinds = [module["type"] for module in modules]
    if not all(kind.startswith(_MODULES) for kind in kinds):
        return False
    paths = [Path(module["path"]) for module in modules]
    if any(".." in path.parts or path.is_absolute() for path in paths):
        return False
    for module in modules[1:]:
        config = _read_json(folder / module["path"] / "config.json")
        named = {config.get(f"module_{end}_name") or _SENTENCE for end in ("input", "output")}
        if not module["type"].endswith(".Normalize") or named != {_SENTENCE}:
            return False
    return kinds[0].endswith(".StaticEmbedding")


def _read_json(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _read_weights(file: Path) -> Floats:
    from safetensors.numpy import load_file

    found: Floats = load_file(file)["embedding.weight"].astype(np.float32)
    return found  # (tokens, width)


def _fingerprint(vocabulary: dict[str, int], weights: Floats, normalized: int) -> str:
    """Return what `fingerprint_encoder` returns of the loaded model."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(repr(sorted(vocabulary.items())).encode())
    digest.update(np.ascontiguousarray(weights).view(np.uint8).data)
    digest.update(b"StaticEmbedding[]")
    config = [("module_input_name", _SENTENCE), ("module_output_name", _SENTENCE)]
    for _ in range(normalized):
        digest.update(f"Normalize{config!r}".encode())
    digest.update(f"0.embedding.weight{weights.shape}".encode())
    flat = weights.reshape(-1)
    digest.update(flat[:: max(1, flat.size // _SAMPLED)][:_SAMPLED].tobytes())
    return digest.hexdigest()


def fast_static(encoder: SentenceTransformer) -> StaticEncoder | None:
    """Return a fast encoder of a static model; None where it would not be exact.

    Vectors equal `encoder.encode(texts, normalize_embeddings=True)` to float32 rounding. The model
    must be one `StaticEmbedding` without a prompt, with a tokenizer that `splits_at_spaces`.
    """
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from tilth.models.encoder import fingerprint_encoder

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
    vectors = bag.weight.detach().float().cpu()[:, : encoder.truncate_dim].contiguous()
    return StaticEncoder(module.tokenizer, vectors.numpy(), fingerprint_encoder(encoder))


class StaticEncoder:
    """Encode texts as the normalised means of their token vectors.

    Pickling leaves the cache out.

    Args:
        tokenizer: one that `splits_at_spaces`.
        vectors: of the tokens. # (tokens, dimension)
        fingerprint: as `fingerprint_encoder` returns it.
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Floats, fingerprint: str) -> None:
        self.tokenizer, self.vectors, self.fingerprint = tokenizer, vectors, fingerprint
        self.dimension: int = vectors.shape[1]
        self.cache = TokenCache(tokenizer)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticEncoder, (self.tokenizer, self.vectors, self.fingerprint)

    def encode(self, texts: pa.Array | Sequence[str]) -> Floats:
        """Return unit vectors, (texts, dimension); zeros for a text without tokens.

        Batches of tens of thousands of texts are fastest.
        """
        from tilth.models.kernels import mean_vectors  # numba, which other encoders do without

        vectors = np.empty((len(texts), self.dimension), np.float32)
        data, bounds = _text_bytes(texts)
        start = 0
        while start < len(texts):
            # As many whole texts as fit, at least one.
            fits = int(np.searchsorted(bounds, bounds[start] + _BYTES_AT_ONCE, "right")) - 1
            stop = min(max(fits, start + 1), len(texts))
            some = bounds[start : stop + 1]
            ids, offsets = self.cache.tokenize(data[some[0] : some[-1]], some - some[0])
            mean_vectors(ids, np.append(offsets, len(ids)), self.vectors, vectors[start:stop])
            start = stop
        return vectors


def _text_bytes(
    texts: pa.Array | Sequence[str],
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of texts and their offsets, (texts + 1,)."""
    if isinstance(texts, pa.Array):
        if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
            raise InputError(f"texts are of type {texts.type}: give an Arrow array of strings")
        missing = texts.null_count
    else:
        missing = sum(text is None for text in texts)
    if missing:
        raise InputError(f"{missing} texts are missing: give '' for an empty text")
    if not isinstance(texts, pa.Array):  # not by `pa.array`, which imports pandas
        encoded = [text.encode() for text in texts]
        bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), bounds
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
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32)[: len(chunks)]
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
