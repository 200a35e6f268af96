"""The sentences of a labelled set as vectors, each distinct one encoded once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Examples
from tilth.errors import TilthError
from tilth.runs.progress import Progress

log = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 4096  # sorted by length before, so that a block pads little


class Encodes(Protocol):
    """What an encoder must be able to do; a SentenceTransformer can."""

    def encode(self, sentences: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return one vector per sentence, (sentences, dimension)."""


Encoder: TypeAlias = Encodes | Callable[[list[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Every text of a set: distinct ones by the alphabet, and where each stands.

    In that order sums and clusters follow from what the set holds, not from how it is ordered.

    Attributes:
        texts: distinct. # (texts,)
        vectors: of length 1; zero where the encoder knows no word. # (texts, dimension)
        known: whether the vector is not zero. # (texts,)
        codes: which of `texts`, through the rows and their columns. # (occurrences,)
        rows: in which row. # (occurrences,)
    """

    texts: list[str]
    vectors: NDArray[np.float32]
    known: NDArray[np.bool_]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]


def embed(examples: Examples, encoder: Encoder) -> Embedded:
    """Encode every distinct text of a set once.

    Raises:
        TilthError: the encoder gives no finite vector, or not one per text.
    """
    every = examples.sentences
    texts = sorted(set(every))
    places = {text: place for place, text in enumerate(texts)}
    codes = np.array([places[text] for text in every], np.int64)
    rows = np.repeat(np.arange(len(examples)), len(examples.columns))
    vectors = _vectors(texts, encoder)  # (texts, dimension)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise TilthError(
            f"the encoder gives no finite vector for {texts[int(np.argmin(finite))]!r:.200}: its "
            "weights may be broken; load another"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (texts, 1)
    known = lengths[:, 0] > 0  # (texts,)
    unknown = int((~known[codes]).sum())
    if unknown:
        log.warning(
            "%d of %d sentences have no vector (the encoder knows no word of them): they are left "
            "out of the queries",
            unknown,
            len(codes),
        )
    vectors /= np.where(lengths == 0, 1, lengths)
    return Embedded(texts, vectors, known, codes, rows)


def _vectors(texts: list[str], encoder: Encoder) -> NDArray[np.float32]:
    """Return a copy of what the encoder makes of texts, (texts, dimension)."""
    encode = getattr(encoder, "encode", None)
    if encode is None:  # a function batches and reports by itself
        found = _checked(encoder(texts), len(texts))  # type: ignore[operator]
        return np.array(found, np.float32)
    order = sorted(range(len(texts)), key=lambda place: (-len(texts[place]), place))
    vectors: NDArray[np.float32] | None = None
    quiet = len(texts) <= _TEXTS_AT_ONCE
    with Progress(len(texts), quiet=quiet, what="sentences") as progress:
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            block = order[start : start + _TEXTS_AT_ONCE]
            found = encode([texts[place] for place in block], show_progress_bar=False)
            found = _checked(found, len(block))
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), np.float32)
            vectors[block] = found
            progress.advance(len(block))
    assert vectors is not None  # a set has texts
    return vectors


def _checked(found: Any, count: int) -> NDArray[Any]:
    vectors = np.asarray(found)
    if vectors.ndim != 2 or len(vectors) != count:
        raise TilthError(
            f"the encoder gives an array {vectors.shape} for {count} texts: it must give one "
            "vector per text, (texts, dimension)"
        )
    return vectors
