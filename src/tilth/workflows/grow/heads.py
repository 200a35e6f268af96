"""Puts other heads on one encoder, which reads every text once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilth.classifiers.collate import encode
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.logistic import (
    Head,
    fit_head,
    head_inputs,
    probabilities,
    set_head,
    some_rows,
)

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier


@dataclass
class Heads:
    """An encoder of mean-pooled embeddings, with what a head reads of the texts it has encoded.

    Attributes:
        make: trains the encoder; called when a text is new and no encoder is in memory.
        rows: single texts that it is trained on.
    """

    make: Callable[[], Classifier]
    rows: LabeledExamples
    _encoder: Classifier | None = None
    _vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @property
    def encoder(self) -> Classifier:
        """The encoder, with any head."""
        if self._encoder is None:
            self._encoder = self.make()
        return self._encoder

    def forget(self) -> None:
        """Free the encoder's memory; what it has read stays."""
        self._encoder = None

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return what a head reads of single texts, (texts, width)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if new:
            model = self.encoder
            none = np.zeros((len(new), len(model.labels)), np.float32)
            rows = LabeledExamples("class", model.labels, [(text,) for text in new], None, none)
            encoded = encode(model, rows, bfloat16=False)
            found = head_inputs(model, encoded, np.arange(len(new)))
            self._vectors.update(zip(new, found, strict=True))
        return np.stack([self._vectors[text] for text in texts])

    @cached_property
    def own(self) -> Head:
        """Logistic regression of the rows that the encoder is trained on."""
        return self.fit(self.rows)

    def fit(self, rows: LabeledExamples, counts: NDArray[np.int64] | None = None) -> Head:
        """Return logistic regression of single texts.

        Args:
            counts: how often each row counts; None: once. # (rows,)
        """
        some = some_rows(len(rows))
        vectors = self.vectors([rows.texts[row][0] for row in some])
        counts = None if counts is None else counts[some]
        return fit_head(vectors, np.asarray(rows.targets)[some], "class", counts)

    def answer(self, head: Head, texts: Sequence[tuple[str, ...]]) -> NDArray[np.float32]:
        """Return the probabilities of single texts, (texts, labels)."""
        return probabilities(self.vectors([text for (text,) in texts]), head, "class")

    def classifier(self, head: Head) -> Classifier:
        """Return the encoder under a head."""
        model = copy.deepcopy(self.encoder)
        set_head(model, head)
        return model
