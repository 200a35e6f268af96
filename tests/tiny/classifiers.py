"""Classifiers and taggers without weights: what they answer is written down, or follows a text."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

from tilth.models.classifier import Classifier


@dataclass
class Fake:
    """Gives each text random probabilities that follow from it; remembers what it was asked."""

    labels: list[str]
    kind: str = "class"
    name: str = "fake"
    seed: int = 0
    texts_per_input: int | None = None
    word_rules: dict[str, Any] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    def probabilities(self, texts: Sequence[Any], **options: Any) -> np.ndarray:
        self.asked.append(options)
        rows = [self._row("\n".join(text)) for text in texts]
        return np.array(rows, np.float32).reshape(len(rows), len(self.labels))

    def tag_probabilities(self, tokens: Sequence[Any], **options: Any) -> list[np.ndarray]:
        self.asked.append(options)
        return [np.stack([self._row(token) for token in row]).astype(np.float32) for row in tokens]

    answers = Classifier.answers

    def _row(self, text: str) -> np.ndarray:
        digest = blake2b(f"{self.seed}{text}".encode(), digest_size=8).digest()
        random = np.random.default_rng(int.from_bytes(digest, "big"))
        if self.kind == "multi":
            return random.random(len(self.labels))
        return random.dirichlet(np.ones(len(self.labels)))


def are_same(one: Classifier, two: Classifier) -> bool:
    """Tell whether two classifiers have equal weights."""
    other = two.model.state_dict()
    return all(torch.equal(value, other[name]) for name, value in one.model.state_dict().items())
