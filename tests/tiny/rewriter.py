"""A rewriter whose model and scorer are tables, so that a test says what comes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.tiny import tiny_tokenizer
from tilth.models.lm import Seq2Seq
from tilth.models.scorer import Scorer
from tilth.paraphrase.rewriter import MOST_TRIES, Rewriter
from tilth.paraphrase.search import BeamSearch
from tilth.paraphrase.tags import TAGS

Fake = Callable[..., tuple[Rewriter, "Outputs"]]


@dataclass
class Outputs:
    """Stands in for `decode`: (text, try from 0) -> outputs; notes what it was asked."""

    write: Callable[[str, int], list[str]]
    calls: list[tuple[str, list[str], BeamSearch, int]] = field(default_factory=list)

    def __call__(
        self, seq2seq: Seq2Seq, texts: Sequence[str], search: BeamSearch, *, seed: int = 0, **_: Any
    ) -> list[list[str]]:
        self.calls.append((seq2seq.prefix, list(texts), search, seed))
        most = search.returned * max(1, len(search.copy_costs))
        return [self.write(text, seed % MOST_TRIES)[:most] for text in texts]


def fake_scorer(score: Callable[[str, str], float]) -> Scorer:
    """Return a scorer that is a function."""

    def scores(first: list[str], second: list[str]) -> NDArray[np.float32]:
        pairs = zip(first, second, strict=True)
        return np.array([score(one, two) for one, two in pairs], np.float32)

    return Scorer("fake", "cross-encoder", "f" * 16, scores)


def fake_polarity(is_flip: Callable[[str, str], bool]) -> Any:
    """Return a polarity check that is a function."""

    def flips(first: Sequence[str], second: Sequence[str]) -> NDArray[np.bool_]:
        return np.array([is_flip(*pair) for pair in zip(first, second, strict=True)], np.bool_)

    return SimpleNamespace(flips=flips, fingerprint="p" * 16)


def fake_rewriter(
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[str, int], list[str]],
    score: Callable[[str, str], float] = lambda _, __: 96.0,
) -> tuple[Rewriter, Outputs]:
    """Return a rewriter that writes and scores by functions, and what it was asked."""
    outputs = Outputs(write)
    monkeypatch.setattr("tilth.paraphrase.rewriter.decode", outputs)
    return Rewriter(fake_model(TAGS), fake_scorer(score)), outputs


def fake_model(tags: Sequence[str]) -> Seq2Seq:
    """Return what looks like a loaded model whose vocabulary has some tags."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(list(tags), special_tokens=True)
    model: Any = torch.nn.Linear(1, 1)
    return Seq2Seq("fake", model, tokenizer, torch.device("cpu"), "float32")
