"""Static sentence encoders: the normalised means of token vectors, read and encoded without torch.

The token ids of chunks of text are cached.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tilth.errors import InputError
from tilth.models.names import ENCODER, starter_path
from tilth.object_code import Compiled

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Floats = NDArray[np.float32]
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
_BYTES_AT_ONCE = 1 << 20
_MODULES = "sentence_transformers."
_SENTENCE = "sentence_embedding"  # what a Normalize module reads and writes
_SAMPLED = 256  # values of a tensor

_KERNELS = "tilth.models.static_kernels"
find_chunks = Compiled(_KERNELS, "find_chunks")
number_pieces = Compiled(_KERNELS, "number_pieces")
word_pieces = Compiled(_KERNELS, "word_pieces")
spread_ids = Compiled(_KERNELS, "spread_ids")
mean_vectors = Compiled(_KERNELS, "mean_vectors")


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
        vectors = np.empty((len(texts), self.dimension), np.float32)
        table = self.vectors if len(texts) < _FEW else self._narrow
        data, bounds = _text_bytes(texts)
        start = 0
        while start < len(texts):
            # As many whole texts as fit, at least one.
            fits = int(np.searchsorted(bounds, bounds[start] + _BYTES_AT_ONCE, "right")) - 1
            stop = min(max(fits, start + 1), len(texts))
            some = bounds[start : stop + 1]
            ids, offsets = self.cache.tokenize(data[some[0] : some[-1]], some - some[0])
            mean_vectors(ids, offsets, table, vectors[start:stop])
            start = stop
        return vectors

    @cached_property
    def _narrow(self) -> NDArray[np.uint16] | Floats:
        """Return the token vectors as the bits of halves, where those are all of them."""
        with np.errstate(over="ignore"):
            halves = self.vectors.astype(np.float16)
        is_exact = bool(np.array_equal(halves.astype(np.float32), self.vectors))
        return halves.view(np.uint16) if is_exact else self.vectors


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
        return _joined([text.encode() for text in texts])
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset :][: len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds


def _joined(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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
        if 2 * most <= len(self._slots):
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
        data, bounds = _joined(pieces)
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
