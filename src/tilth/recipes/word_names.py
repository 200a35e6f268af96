"""Word vectors by the names that the command line takes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_WORDS: dict[str, Literal["idf", "sif"] | None] = {
    "words": None, "words-idf": "idf", "words-sif": "sif",
}  # fmt: skip


def is_words(name: str, *, fitted: bool = False) -> bool:
    """Say whether a name is of word vectors; with `fitted`, of such as need sentences."""
    kind, _, file = name.partition(":")
    kinds = ("words-idf", "usif") if fitted else (*_WORDS, "usif")
    return bool(file) and kind in kinds


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
        file, weights=_WORDS[kind], sentences=sentences if kind == "words-idf" else None
    )
