"""Static sentence encoders: normalised means of token vectors, read and encoded without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tilth.errors import InputError
from tilth.models.names import ENCODER, starter_path
from tilth.models.token_cache import TokenCache, join_bytes, splits_at_spaces
from tilth.object_code import Compiled

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Floats = NDArray[np.float32]
# Up to this many texts the token vectors are not narrowed.
_FEW = 1_000
_BYTES_AT_ONCE = 1 << 20
_MODULES = "sentence_transformers."
_SENTENCE = "sentence_embedding"  # what a Normalize module reads and writes

mean_vectors = Compiled("tilth.models.static_kernels", "mean_vectors")


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
    digest.update(b"StaticEmbedding[]")
    config = [("module_input_name", _SENTENCE), ("module_output_name", _SENTENCE)]
    for _ in range(normalized):
        digest.update(f"Normalize{config!r}".encode())
    digest.update(f"0.embedding.weight{weights.shape}".encode())
    digest.update(np.ascontiguousarray(weights).view(np.uint8).data)
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
        return join_bytes([text.encode() for text in texts])
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset :][: len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds
