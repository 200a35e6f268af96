"""How well answers agree with labels: the one number that chooses the best weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.5


def likely(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return which labels a text has that may have any number: those likelier than not.

    A probability of one half is no yes, as a logit of 0 is none.

    Args:
        probabilities: of any shape.
    """
    return probabilities > THRESHOLD


def accuracy(gold: NDArray[np.int64], answers: NDArray[np.int64]) -> float:
    """Return the share of rows whose class is right, x 100."""
    return 100 * float(np.mean(gold == answers))


def macro_f1(gold: NDArray[np.bool_], answers: NDArray[np.bool_]) -> float:
    """Return the mean F1 of the labels that occur or are answered, x 100.

    Args:
        gold: whether each row has each label. # (rows, labels)
        answers: whether it was said to. # (rows, labels)
    """
    hits, said = (gold & answers).sum(axis=0), gold.sum(axis=0) + answers.sum(axis=0)
    occurs = said > 0
    return 100 * float(np.mean(2 * hits[occurs] / said[occurs])) if occurs.any() else 0.0


def span_f1(gold: Sequence[Sequence[str]], answers: Sequence[Sequence[str]]) -> float:
    """Return F1 over spans of tags, right in type, begin and end, x 100.

    An I- that nothing before it goes on into begins a span, as in conlleval.

    Args:
        gold: IOB tags of each sentence.
        answers: likewise.
    """
    hits = total = 0
    for true, said in zip(gold, answers, strict=True):
        one, two = _spans(true), _spans(said)
        hits += len(one & two)
        total += len(one) + len(two)
    return 200 * hits / total if total else 0.0


def _spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return type, first token and token after the last of each span."""
    found, kind, first = set(), "", 0
    for place, tag in enumerate([*tags, "O"]):
        if tag[0] == "I" and tag[2:] == kind:
            continue
        if kind:
            found.add((kind, first, place))
        kind, first = tag[2:], place
    return found
