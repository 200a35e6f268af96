"""Encoders without a model, and writers of small STS sets in every layout."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from tests.tiny import put

Pair = tuple[str, str, float]

WORDS = ["wren", "barley", "plough", "orchard", "frost", "miller", "lantern", "thaw", "hedge"]


def pairs_of(count: int, *, begin: int = 0, high: float = 5.0) -> list[Pair]:
    """Return pairs of invented sentences; scores go round in steps of a half."""
    steps = int(high * 2) + 1
    return [
        (
            f"The {WORDS[n % 9]} waits, number {n}.",
            f"A {WORDS[(n * 4 + 1) % 9]} stays near {n}.",
            (n * 7 % steps) / 2,
        )
        for n in range(begin, begin + count)
    ]


class HashEncoder:
    """Gives each text a random vector that follows from the text; remembers what it was asked."""

    def __init__(self, width: int = 8) -> None:
        self.width = width
        self.calls: list[list[str]] = []

    def encode(self, sentences: list[str], /) -> np.ndarray:
        self.calls.append(list(sentences))
        return np.stack([self.vector(text) for text in sentences]).astype(np.float32)

    def vector(self, text: str) -> np.ndarray:
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        return np.random.default_rng(seed).normal(size=self.width)

    def cosine(self, one: str, two: str) -> float:
        a, b = (self.vector(text).astype(np.float32).astype(np.float64) for text in (one, two))
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def jsonl(path: Path, pairs: Sequence[Pair], subsets: Sequence[str] | None = None) -> Path:
    rows = [
        {
            "text_a": one,
            "text_b": two,
            "score": score,
            **({"subset": subsets[n]} if subsets else {}),
        }
        for n, (one, two, score) in enumerate(pairs)
    ]
    return put(path, "".join(json.dumps(row) + "\n" for row in rows))


def semeval(folder: Path, subset: str, pairs: Sequence[Pair], year: str = "") -> None:
    """Write STS.input.* and STS.gs.* of a subset."""
    texts = "".join(f"{one}\t{two}\n" for one, two, _ in pairs)
    put(folder / f"STS{year}.input.{subset}.txt", texts)
    scores = "".join(f"{score}\n" for _, _, score in pairs)
    put(folder / f"STS{year}.gs.{subset}.txt", scores)


def benchmark(path: Path, pairs: Sequence[Pair]) -> Path:
    rows = (
        f"main-news\theadlines\t2013\t{n:04}\t{score}\t{one}\t{two}\n"
        for n, (one, two, score) in enumerate(pairs)
    )
    return put(path, "".join(rows))


def sick(path: Path, pairs: Sequence[Pair]) -> Path:
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    rows = (f"{n}\t{one}\t{two}\t{score}\tNEUTRAL\n" for n, (one, two, score) in enumerate(pairs))
    return put(path, head + "".join(rows))
