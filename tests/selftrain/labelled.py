"""Labelled sets of word salads whose labels a tiny model can learn, and a tiny base."""

import random
from collections.abc import Sequence
from typing import Any

from tests.tiny import WORDS
from tilth.classifiers.examples import LabeledExamples, labeled_examples

ANIMALS, WATERS = ("dog", "cat", "bird"), ("sea", "river", "boat")
_OTHERS = [word for word in WORDS if word not in (*ANIMALS, *WATERS)]


def classed(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return texts with an animal, a water or neither."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        label = ("animal", "water", "none")[number % 3]
        words = rng.sample(_OTHERS, rng.randint(3, 8))
        if label != "none":
            words.append(rng.choice(ANIMALS if label == "animal" else WATERS))
        rng.shuffle(words)
        rows.append({"text": " ".join(words), "label": label})
    return rows


def several(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return texts with an animal, a water, both or neither, as lists of labels."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        labels = [name for bit, name in enumerate(("animal", "water")) if number >> bit & 1]
        words = rng.sample(_OTHERS, rng.randint(1, 3))
        words += [rng.choice(ANIMALS if label == "animal" else WATERS) for label in labels]
        rng.shuffle(words)
        rows.append({"text": " ".join(words), "labels": labels})
    return rows


def tagged(count: int, *, seed: int = 0, longest: int = 8) -> list[dict[str, Any]]:
    """Return tokens in which an animal, with the colour before it, and a water have tags."""
    rng = random.Random(seed)
    colours = ("red", "green")
    words = [word for word in _OTHERS if word not in colours]
    rows = []
    for _ in range(count):
        tokens = rng.choices(words, k=rng.randint(3, longest))
        tags = ["O"] * len(tokens)
        if rng.random() < 0.6:
            at = rng.randint(0, len(tokens))
            tokens[at:at] = [rng.choice(colours), rng.choice(ANIMALS)]
            tags[at:at] = ["B-ANIMAL", "I-ANIMAL"]
        if rng.random() < 0.5:
            tokens.append(rng.choice(WATERS))
            tags.append("B-WATER")
        rows.append({"tokens": tokens, "tags": tags})
    return rows


def as_rows(rows: Sequence[dict[str, Any]]) -> LabeledExamples:
    """Return a set as rows to train on."""
    from tilth.data.examples import read_examples

    return labeled_examples(read_examples(rows))
