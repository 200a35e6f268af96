"""Accuracy, precision, recall, F1 and calibration of classifiers and taggers; entity spans.

Figures are computed from sums of counts by row, so that thousands of resamples of a test set need
one matrix product (`tilth.metrics.significance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.float64]

THRESHOLD = 0.5
BINS = 15
Span: TypeAlias = tuple[str, int, int]

_BEGINS, _ENDS = "BSU", "OESLU"  # S and U: a span of one token, in BIOES and BILOU


def positive(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Return the predicted labels of multi-label rows: above one half, as logits > 0."""
    return probabilities > THRESHOLD


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Hold sums over rows of one data set, or of many resamples of it.

    Attributes:
        hits: true positives by label. # (..., labels)
        predicted: predictions by label. # (..., labels)
        gold: gold labels. # (..., labels)
        right: correct rows, or tokens. # (...)
        total: rows, or tokens. # (...)
    """

    hits: Numbers
    predicted: Numbers
    gold: Numbers
    right: Numbers
    total: Numbers

    @classmethod
    def of(cls, sums: NDArray[Any]) -> Counts:
        """Name the columns that `label_counts` makes, or their sums, (..., 3 labels + 2)."""
        sums = np.asarray(sums, float)
        labels = (sums.shape[-1] - 2) // 3
        hits, predicted, gold, rest = np.split(sums, [labels, 2 * labels, 3 * labels], axis=-1)
        return cls(hits, predicted, gold, rest[..., 0], rest[..., 1])


def class_counts(gold: NDArray[Any], predicted: NDArray[Any], labels: int) -> Numbers:
    """Return each row's counts for one class a row, (rows, 3 labels + 2).

    Args:
        gold: class indices, (rows,).
        predicted: class indices, (rows,).
        labels: number of classes.
    """
    one_hot = np.eye(labels)
    return label_counts(one_hot[gold], one_hot[predicted])


def label_counts(gold: NDArray[Any], predicted: NDArray[Any]) -> Numbers:
    """Return each row's counts for any number of labels a row, (rows, 3 labels + 2).

    A row is right when all its labels are.

    Args:
        gold: 1 where a row has the label, 0 elsewhere, (rows, labels).
        predicted: likewise, (rows, labels).
    """
    right = (gold == predicted).all(1, keepdims=True)  # (rows, 1)
    parts = [gold * predicted, predicted, gold, right, np.ones_like(right)]
    return np.hstack(parts, dtype=float)


def accuracy(counts: Counts) -> Numbers:
    """Return the share of rows or tokens that are right, (...)."""
    return _ratio(counts.right, counts.total)


def precision(counts: Counts) -> Numbers:
    """Return precision by label, (..., labels); nan for a label that is never predicted."""
    return _ratio(counts.hits, counts.predicted)


def recall(counts: Counts) -> Numbers:
    """Return recall by label, (..., labels); nan for a label without gold rows."""
    return _ratio(counts.hits, counts.gold)


def f1(counts: Counts) -> Numbers:
    """Return F1 by label, (..., labels); nan for a label that is neither gold nor predicted."""
    return _ratio(2 * counts.hits, counts.predicted + counts.gold)


def macro_f1(counts: Counts) -> Numbers:
    """Return the mean F1 of the labels that are gold or predicted anywhere, (...)."""
    of_labels = f1(counts)
    occurs = ~np.isnan(of_labels)
    return _ratio(np.where(occurs, of_labels, 0.0).sum(-1), occurs.sum(-1))


def micro_f1(counts: Counts) -> Numbers:
    """Return F1 over the predictions of all labels, (...)."""
    return _ratio(2 * counts.hits.sum(-1), counts.predicted.sum(-1) + counts.gold.sum(-1))


def micro_precision(counts: Counts) -> Numbers:
    """Return precision over the predictions of all labels, (...)."""
    return _ratio(counts.hits.sum(-1), counts.predicted.sum(-1))


def micro_recall(counts: Counts) -> Numbers:
    """Return recall over all gold labels, (...)."""
    return _ratio(counts.hits.sum(-1), counts.gold.sum(-1))


def scores_by_label(counts: Counts, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return precision, recall and F1 x 100 (None: undefined), n (gold) and predicted by label."""
    figures = {"precision": precision(counts), "recall": recall(counts), "f1": f1(counts)}
    return {
        name: {
            **{key: times_100(values[place]) for key, values in figures.items()},
            "n": int(counts.gold[place]),
            "predicted": int(counts.predicted[place]),
        }
        for place, name in enumerate(labels)
    }


def times_100(share: float | Numbers) -> float | None:
    """Return a share x 100; None for nan."""
    return None if np.isnan(share) else 100 * float(share)


def calibration(probability: NDArray[np.floating[Any]], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the expected calibration error and the reliability diagram.

    Args:
        probability: of each decision, 0 to 1, (decisions,).
        right: whether the decision was right, (decisions,).

    Returns:
        error: expected calibration error, 0 to 1; bins: low, high, n, probability (mean) and
        right (share) of each bin that is not empty.

    Reference:
        Guo et al. 2017, arXiv:1706.04599, section 2; 15 bins as there.
    """
    probability = np.asarray(probability, float)
    places = np.clip(np.ceil(probability * BINS).astype(int) - 1, 0, BINS - 1)  # (low, high]
    held = np.bincount(places, minlength=BINS)  # (BINS,)
    filled = np.flatnonzero(held)
    means = np.bincount(places, weights=probability, minlength=BINS)[filled] / held[filled]
    shares = np.bincount(places, weights=right, minlength=BINS)[filled] / held[filled]
    error = float(np.abs(means - shares) @ held[filled] / len(probability))
    return {
        "error": error,
        "bins": [
            {"low": at / BINS, "high": (at + 1) / BINS, "n": int(held[at]),
             "probability": float(mean), "right": float(share)}
            for at, mean, share in zip(filled.tolist(), means, shares, strict=True)
        ],
    }  # fmt: skip


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Numbers:
    """Divide; nan where the denominator is 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    undefined = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=whole > 0))


def iob2(tags: Sequence[str]) -> list[str]:
    """Convert tags (IOB1, IOB2, BIOES, BILOU) to IOB2: spans begin with B-, continue with I-.

    A tag begins a span when it says so, or when the tag before it cannot continue in it: `O`, the
    end of a span, another type. So I-X without B-X counts, as in IOB1. An empty tag is `O`.

    Reference:
        conlleval of the CoNLL shared tasks, and seqeval's default mode.

    Example:
        >>> iob2(["I-PER", "I-PER", "B-PER", "O", "S-LOC", "E-LOC"])
        ['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'B-LOC']
    """
    written, before = [], "O"
    for tag in (one or "O" for one in tags):
        begins = tag[0] in _BEGINS or before[0] in _ENDS or tag[2:] != before[2:]
        written.append("O" if tag == "O" else f"{'B' if begins else 'I'}-{tag[2:]}")
        before = tag
    return written


def are_tags(labels: Iterable[str]) -> bool:
    """Tell whether labels are tags of tokens, no classes of which one is named `O`.

    Example:
        >>> are_tags(["O", "B-PER", "I-PER"]), are_tags(["A", "B", "AB", "O"])
        (True, False)
    """
    names = set(labels)
    return "O" in names and all(name[1:2] == "-" for name in names - {"O"})


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
    return sorted({tag[2:] for row in tags for tag in row if tag not in ("", "O")})


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
        counts[row, -2] = sum(map(str.__eq__, iob2(true), iob2(said)))
        counts[row, -1] = len(true)
    return counts
