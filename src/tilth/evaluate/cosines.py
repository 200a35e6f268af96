"""Cosines of an encoder's vectors for the pairs of sets, each sentence encoded once."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilth.errors import TilthError
from tilth.evaluate.sets import StsSet

if TYPE_CHECKING:
    from tilth.models.scorer import Steps

BATCH = 64
_BATCHES_AT_ONCE = 16  # what a SentenceTransformer is given between two signs of progress
# Cosines are rounded to this: identical texts tie at 1 instead of differing in the 16th digit.
DECIMALS = 12


class Encoder(Protocol):
    """What a sentence encoder must be able to do; a SentenceTransformer can."""

    def encode(self, sentences: list[str], /) -> Any:
        """Return one vector per sentence, (sentences, width)."""


def pair_cosines(
    encoder: Encoder, sets: Sequence[StsSet], batch: int, progress: Steps | None = None
) -> list[NDArray[np.float64]]:
    """Return each set's cosines; every distinct sentence of all sets is encoded once.

    Args:
        encoder: gives the vectors.
        sets: with the texts.
        batch: texts encoded at once, 1 or more.
        progress: is told how many pairs of texts were encoded, of those of `sets`.

    Returns:
        For each set its pairs' cosines, (pairs,), -1 to 1; 0 where a vector is zero.

    Raises:
        TilthError: the encoder gives a vector that is not finite, or not one vector per text.
    """
    places: dict[str, int] = {}
    for sts in sets:
        for text in (*sts.texts_a, *sts.texts_b):
            places.setdefault(text, len(places))
    texts = list(places)
    pairs = sum(map(len, sets))
    vectors = _encode(encoder, texts, batch, pairs, progress)  # (texts, width)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise TilthError(
            f"the encoder gives no finite vector for {texts[int(np.argmin(finite))]!r:.200}: "
            "its weights may be broken: train it again with a smaller learning rate, or load "
            "another"
        )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(norms == 0, 1.0, norms)
    found = []
    for sts in sets:
        one = vectors[[places[text] for text in sts.texts_a]]  # (pairs, width)
        two = vectors[[places[text] for text in sts.texts_b]]  # (pairs, width)
        found.append(np.round(np.einsum("pw,pw->p", one, two), DECIMALS))  # (pairs,)
    return found


def _encode(
    encoder: Encoder, texts: list[str], batch: int, pairs: int, progress: Steps | None
) -> NDArray[np.float64]:
    """Return vectors in float64, (texts, width)."""
    encode: Any = encoder.encode
    options = inspect.signature(encode).parameters
    given: dict[str, Any] = {}
    size = batch
    if "batch_size" in options:  # a SentenceTransformer sorts by length and batches itself
        given = {"batch_size": batch}
        given |= {"show_progress_bar": False} if "show_progress_bar" in options else {}
        size = batch * _BATCHES_AT_ONCE
    order = np.argsort([-len(text) for text in texts], kind="stable")
    blocks, done = [], 0
    for start in range(0, len(order), size):
        blocks.append(encode([texts[place] for place in order[start : start + size]], **given))
        if progress is not None:
            before, done = done, min(start + size, len(order)) * pairs // len(order)
            progress.advance(done - before)
    found = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    if found.ndim != 2 or len(found) != len(texts):
        raise TilthError(
            f"the encoder gives an array {found.shape} for {len(texts)} texts: encode must return "
            "one vector per text, (texts, width)"
        )
    vectors = np.empty_like(found)
    vectors[order] = found
    return vectors  # (texts, width)
