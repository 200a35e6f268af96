"""Entity spans of IOB tags, as conlleval finds them, and their counts by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tilth.metrics.scores import Numbers

Span: TypeAlias = tuple[str, int, int]

_BEGINS, _ENDS = "BSU", "OESLU"  # S and U: a span of one token, in BIOES and BILOU


def iob2(tags: Sequence[str]) -> list[str]:
    """Convert tags (IOB1, IOB2, BIOES, BILOU) to IOB2: spans begin with B-, continue with I-.

    A tag begins a span when it says so, or when the tag before it cannot continue in it: `O`, the
    end of a span, another type. So I-X without B-X counts, as in IOB1.

    Reference:
        conlleval of the CoNLL shared tasks, and seqeval's default mode.

    Example:
        >>> iob2(["I-PER", "I-PER", "B-PER", "O", "S-LOC", "E-LOC"])
        ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-LOC']
    """
    written, before = [], "O"
    for tag in tags:
        begins = tag[0] in _BEGINS or before[0] in _ENDS or tag[2:] != before[2:]
        written.append("O" if tag == "O" else f"{'B' if begins else 'I'}-{tag[2:]}")
        before = tag
    return written


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the entities of a sentence, in order: type, first token, token after the last.

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


def entity_types(tags: Sequence[Sequence[str]]) -> list[str]:
    """Return the entity types in the tags of sentences, sorted."""
    return sorted({tag[2:] for row in tags for tag in row if tag != "O"})


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], types: Sequence[str]
) -> Numbers:
    """Return each sentence's spans by type and right tokens, (sentences, 3 types + 2).

    Args:
        types: every entity type in either.
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
