"""Cosines of an encoder's vectors for the pairs of sets, each sentence encoded once."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tilth.errors import TilthError
from tilth.evaluate.sets import StsSet

BATCH = 64
# Cosines are rounded to this: identical texts tie at 1 instead of differing in the 16th digit.
DECIMALS = 12


class Encoder(Protocol):
    """What a sentence encoder must be able to do; a SentenceTransformer can."""

    def encode(self, sentences: list[str], /) -> Any:
        """Return one vector per sentence, (sentences, width)."""


def pair_cosines(encoder: Encoder, sets: Sequence[StsSet], batch: int) -> list[NDArray[np.float64]]:
    """Return each set's cosines; every distinct sentence of all sets is encoded once.

    Args:
        encoder: gives the vectors.
        sets: with the texts.
        batch: texts encoded at once, 1 or more.

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
    vectors = _encode(encoder, texts, batch)  # (texts, width)
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


def _encode(encoder: Encoder, texts: list[str], batch: int) -> NDArray[np.float64]:
    """Return vectors in float64, (texts, width)."""
    encode: Any = encoder.encode
    options = inspect.signature(encode).parameters
    if "batch_size" in options:  # a SentenceTransformer sorts by length and batches itself
        quiet = {"show_progress_bar": False} if "show_progress_bar" in options else {}
        blocks = [encode(texts, batch_size=batch, **quiet)]
        order = np.arange(len(texts))
    else:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        chunks = [order[start : start + batch] for start in range(0, len(order), batch)]
        blocks = [encode([texts[place] for place in chunk]) for chunk in chunks]
    found = np.concatenate([np.asarray(block, np.float64) for block in blocks])
    if found.ndim != 2 or len(found) != len(texts):
        raise TilthError(
            f"the encoder gives an array {found.shape} for {len(texts)} texts: encode must return "
            "one vector per text, (texts, width)"
        )
    vectors = np.empty_like(found)
    vectors[order] = found
    return vectors  # (texts, width)
