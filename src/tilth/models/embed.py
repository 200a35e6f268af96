"""Compute sentence vectors of many texts, on every core and without padding."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from tilth.models.cores import share_weights, take_turns
from tilth.models.device import choose_precision
from tilth.models.packed_weights import with_packed_weights
from tilth.models.unpadded import unpadded

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.runs import Progress

_BATCH = 64
_AT_ONCE = 4 * _BATCH  # texts that a core takes


def embed(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    *,
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Return the vectors of texts as the encoder makes them, (texts, dimension).

    Args:
        dtype: of matrix products; None: the device's fastest.
    """
    device = torch.device(encoder.device)
    dtype = dtype or choose_precision("auto", device)
    order = np.argsort([len(text) for text in texts], kind="stable")
    parts = [order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)]
    found = np.zeros((len(texts), int(encoder.get_embedding_dimension() or 0)), np.float32)
    lock = Lock()

    def run(ours: Any, number: int) -> None:
        rows = parts[number]
        some = [texts[row] for row in rows]
        found[rows] = ours.encode(some, batch_size=_BATCH, show_progress_bar=False)
        if progress is not None:
            with lock:
                progress.advance(len(rows))

    is_cast = dtype is not torch.float32
    if dtype is torch.bfloat16 and len(parts) > 1:
        encoder = with_packed_weights(encoder, is_cast=True)
    cores = min(torch.get_num_threads(), len(parts)) if device.type == "cpu" else 1
    with unpadded(encoder), torch.autocast(device.type, dtype, enabled=is_cast):
        if cores > 1:
            take_turns([share_weights(encoder) for _ in range(cores)], len(parts), run)
        else:
            for number in range(len(parts)):
                run(encoder, number)
    return found


def cut_texts(encoder: SentenceTransformer, texts: Sequence[str]) -> tuple[int, int]:
    """Return how many texts are longer than an encoder reads, and how many tokens that is."""
    limit = encoder.max_seq_length
    if limit is None or not np.isfinite(limit):
        return 0, 0
    long = [text for text in texts if len(text.encode()) > limit - 2]  # no token is below a byte
    tokenizer: Any = encoder.tokenizer
    found = tokenizer(long, truncation=False, verbose=False)["input_ids"] if long else []
    return sum(len(ids) > limit for ids in found), int(limit)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors of length 1; a zero vector stays one, and one that is not finite."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        found: NDArray[np.float32] = vectors / np.where(lengths == 0, np.float32(1), lengths)
    return found
