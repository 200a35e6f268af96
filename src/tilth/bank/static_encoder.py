"""Encoding with static models at full speed: texts to the means of their pieces' vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from tilth.bank.token_cache import Pieces, splits_at_spaces
from tilth.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_BYTES_AT_ONCE = 1 << 23
_ROWS_AT_ONCE = 4096  # their means stay in the cache until they are normalised


def fast_static(encoder: SentenceTransformer) -> StaticRows | None:
    """Return a fast way to encode with a static model; None where none is known to be exact.

    It gives what `encoder.encode(texts, normalize_embeddings=True)` gives, to float32 rounding.
    Known are models of one `StaticEmbedding`, normalised or not, without a prompt, whose
    tokenizer works on each stretch between spaces by itself.
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
    return StaticRows(module.tokenizer, vectors.contiguous())


class StaticRows:
    """Texts to unit vectors: the means of their pieces' vectors, normalised.

    It can be pickled, without the chunks it remembers.

    Args:
        tokenizer: of which `tilth.bank.token_cache.splits_at_spaces` holds.
        vectors: of its pieces, float32. # (pieces, dimension)
    """

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor) -> None:
        self.tokenizer = tokenizer
        self.vectors = vectors
        self.dimension: int = vectors.shape[1]
        self.pieces = Pieces(tokenizer)

    def __reduce__(self) -> tuple[Any, ...]:
        return StaticRows, (self.tokenizer, self.vectors)

    def encode(self, texts: pa.Array) -> NDArray[np.float32]:
        """Return the unit vectors of texts, (texts, dimension).

        A text without pieces has a row of zeros. A batch of tens of thousands of texts is fastest.

        Args:
            texts: an Arrow array of strings, none of them missing.

        Raises:
            InputError: it holds something else.
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
            ids, offsets = self.pieces.of(data[some[0] : some[-1]], some - some[0])
            self._means(ids, offsets, vectors[start:stop])
            start = stop
        return vectors

    def _means(
        self, ids: NDArray[np.int32], offsets: NDArray[np.int64], out: NDArray[np.float32]
    ) -> None:
        """Write the normalised means of texts' pieces, (texts, dimension)."""
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
    """Return the bytes of texts and where each begins in them, and the last one's end."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    array = texts.cast(pa.large_string())
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset :][: len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8), bounds
