"""Probabilities of classes and tags for many texts, as fast as the hardware allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier


def probabilities(
    classifier: Classifier, texts: Sequence[tuple[str, ...]], **options: Any
) -> NDArray[np.float32]:
    """Return the probabilities of classes for each text or pair, (texts, labels)."""
    raise NotImplementedError


def tag_probabilities(
    classifier: Classifier, tokens: Sequence[Sequence[str]], **options: Any
) -> list[NDArray[np.float32]]:
    """Return the probabilities of tags for each sentence, each (tokens, tags)."""
    raise NotImplementedError
