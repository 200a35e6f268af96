"""Entities in a sentence's tags, as conlleval finds them, and what a sentence adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tilth.data.labels import iob2
from tilth.metrics.counts import Numbers

Span: TypeAlias = tuple[str, int, int]


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the entities in tags: type, first token, token after the last; in order.

    Args:
        tags: IOB1, IOB2, BIOES or BILOU; see `tilth.data.labels.iob2`.

    Example:
        >>> spans(["B-PER", "I-PER", "O", "I-LOC", "I-ORG"])
        [('PER', 0, 2), ('LOC', 3, 4), ('ORG', 4, 5)]
    """
    found: list[Span] = []
    first = 0
    written = iob2(tags)
    for place, tag in enumerate(written):
        if tag[0] == "B":
            first = place
        if tag != "O" and written[place + 1 : place + 2] != [f"I-{tag[2:]}"]:
            found.append((tag[2:], first, place + 1))
    return found


def types_of(tags: Sequence[Sequence[str]]) -> list[str]:
    """Return the types of entity in the tags of sentences, by the alphabet."""
    return sorted({tag[2:] for row in tags for tag in row if tag != "O"})


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str]
) -> Numbers:
    """Return what each sentence adds to a tally: spans by type, tokens that are right.

    Args:
        gold: tags of each sentence.
        predicted: as many of each.
        types: every type of entity in either.

    Returns:
        Counts as of `tilth.metrics.counts`, (sentences, 3 types + 2).
    """
    places, width = {name: place for place, name in enumerate(types)}, len(types)
    counts = np.zeros((len(gold), 3 * width + 2))
    for row, (true, said) in enumerate(zip(gold, predicted, strict=True)):
        wanted, answered = set(spans(true)), set(spans(said))
        for block, some in enumerate((wanted & answered, answered, wanted)):
            for kind, _, _ in some:
                counts[row, block * width + places[kind]] += 1
        counts[row, -2] = sum(map(str.__eq__, true, said))
        counts[row, -1] = len(true)
    return counts
