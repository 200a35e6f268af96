"""Word vectors by the names that the command line takes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tilth.models.names import FITTED, WORDS

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_WEIGHTS: dict[str, Literal["idf", "sif"]] = {"words-idf": "idf", "words-sif": "sif"}


def is_words(name: str, *, fitted: bool = False) -> bool:
    """Say whether a name is of word vectors; with `fitted`, of such as need sentences."""
    kind, _, file = name.partition(":")
    return bool(file) and kind in (FITTED if fitted else WORDS)


def open_words(name: str, sentences: Sequence[str]) -> SentenceTransformer:
    """Load word vectors by a name of which `is_words` holds.

    Args:
        name: see `open_encoder`.
        sentences: what idf counts and uSIF is fitted on.
    """
    from tilth.encoders.usif import usif
    from tilth.encoders.words import word_vectors

    kind, _, file = name.partition(":")
    if kind == "usif":
        return usif(file, sentences=sentences)
    return word_vectors(
        file, weights=_WEIGHTS.get(kind), sentences=sentences if kind in FITTED else None
    )
