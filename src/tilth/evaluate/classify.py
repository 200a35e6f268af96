"""Evaluates classifiers: accuracy and F1 with intervals, calibration, paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Source
from tilth.errors import InputError, TilthError
from tilth.evaluate.expected_labels import check_kind, names_in, read_gold
from tilth.metrics import scores as metrics
from tilth.metrics.scores import calibration, positive
from tilth.metrics.significance import (
    RESAMPLES,
    Metrics,
    UniqueRows,
    bootstrap_scores,
    check_resamples,
    compare_scores,
    mcnemar,
    unique_rows,
)
from tilth.models.names import loaded

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

Kind: TypeAlias = Literal["class", "multi"]
Probabilities: TypeAlias = NDArray[np.floating[Any]]

_METRICS: dict[Kind, Metrics] = {
    "class": {"accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1},
    "multi": {
        "accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1, "micro_f1": metrics.micro_f1,
    },
}  # fmt: skip


def evaluate_classifier(
    classifier: Classifier | str | Path,
    data: Source,
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    precision: str = "auto",
) -> dict[str, Any]:
    """Evaluate a classifier on labelled texts or pairs.

    Labels compare as texts; the result is that of `classify_scores`.

    Args:
        classifier: what `load_classifier` returns, or its name.
        text: the column of texts, or the two of pairs; None: the usual names.
        label: the column of labels; None: the usual names.
        bootstrap: resamples for the 95% intervals; 0: no intervals.
        precision: `auto`, `float32`, `bfloat16` or `float16`.

    Raises:
        InputError: an argument or the data is wrong, or it holds a label that the classifier does
            not have; the message names file and line.
        TilthError: the classifier returns NaN.
    """
    check_resamples(bootstrap, seed)
    model: Classifier = loaded(
        classifier, "classifier", "tilth.models.classifier:load_classifier", "probabilities"
    )
    check_kind(model, "classify")
    examples, gold = read_gold(model, data, text=text, label=label, split=split)
    return classify_scores(
        gold,
        model.probabilities(examples.texts, precision=precision),
        names_in(model, examples),
        kind=kind_of(model),
        bootstrap=bootstrap,
        seed=seed,
    )


def classify_scores(
    gold: NDArray[Any],
    probabilities: Probabilities,
    labels: Sequence[str],
    *,
    kind: Kind = "class",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Score probabilities against the expected labels; scores are x 100.

    Args:
        gold: label indices, (rows,); for `multi` 0 or 1, (rows, labels).
        probabilities: 0 to 1. # (rows, labels)
        kind: `class`: the most probable label is predicted; `multi`: each above 0.5.
        bootstrap: resamples of rows for the 95% intervals; 0: no intervals.
        seed: the intervals do not depend on the order of rows.

    Returns:
        n (rows); accuracy (`multi`: all labels of a row right), macro_f1 (mean over the labels
        that occur or are predicted) and for `multi` micro_f1, each value, low, high; classes:
        label -> precision, recall, f1 (None: undefined), n, predicted; confusion (`class` only):
        rows of the expected label, columns of the predicted; calibration of the predictions, or
        for `multi` of every label.

    Example:
        >>> import numpy as np
        >>> said = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
        >>> found = classify_scores(np.array([0, 1, 1, 1]), said, ["sad", "glad"], bootstrap=0)
        >>> found["accuracy"]["value"], found["confusion"]
        (75.0, [[1, 0], [1, 2]])
    """
    check_resamples(bootstrap, seed)
    _check(gold, probabilities, labels, kind)
    answers = answered(probabilities, kind)
    rows = _unique_rows(kind, len(labels), gold, answers)
    scores: dict[str, Any] = {
        "n": len(gold),
        **bootstrap_scores(rows, _METRICS[kind], resamples=bootstrap, seed=seed),
        "classes": metrics.scores_by_label(metrics.Counts.of(rows.times @ rows.counts[0]), labels),
    }
    if kind == "class":
        scores["confusion"] = confusion(gold, answers, len(labels)).tolist()
        scores["calibration"] = calibration(probabilities.max(1), answers == gold)
    else:
        scores["calibration"] = calibration(probabilities.ravel(), gold.ravel() == 1)
    return scores


def compare_classify_scores(
    gold: NDArray[Any],
    first: Probabilities,
    second: Probabilities,
    labels: Sequence[str],
    *,
    kind: Kind = "class",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare two classifiers on the same rows; differences are x 100.

    Returns:
        accuracy, macro_f1 and for `multi` micro_f1: value (first less second), low, high (95%,
        paired bootstrap), p (two-sided: McNemar for accuracy, approximate randomisation for F1);
        mcnemar: rows that only first, only second gets right, and p.
    """
    check_resamples(bootstrap, seed)
    for probabilities in (first, second):
        _check(gold, probabilities, labels, kind)
    answers = answered(first, kind), answered(second, kind)
    rows = _unique_rows(kind, len(labels), gold, *answers)
    found: dict[str, Any] = dict(
        compare_scores(rows, _METRICS[kind], resamples=bootstrap, seed=seed)
    )
    right = [_right(gold, one) for one in answers]
    found["mcnemar"] = mcnemar(*right)
    found["accuracy"]["p"] = found["mcnemar"]["p"]
    return found


def answered(probabilities: Probabilities, kind: Kind) -> NDArray[np.int64]:
    """Return the predictions: label indices, (rows,); for `multi` 0 or 1, (rows, labels)."""
    if kind == "multi":
        return positive(probabilities).astype(np.int64)
    return np.asarray(probabilities.argmax(1))


def named(answer: Any, labels: Sequence[str]) -> str | list[str]:
    """Return the label of a prediction, or for `multi` the list of its labels."""
    if np.ndim(answer):
        return [labels[place] for place in np.flatnonzero(answer).tolist()]
    return labels[int(answer)]


def kind_of(classifier: Classifier) -> Kind:
    """Return whether a classifier assigns one label or any number."""
    return "multi" if classifier.kind == "multi" else "class"


def confusion(gold: NDArray[Any], answers: NDArray[Any], labels: int) -> NDArray[np.int64]:
    """Return the confusion matrix, (expected, predicted)."""
    counts = np.bincount(gold * labels + answers, minlength=labels * labels)
    return counts.reshape(labels, labels)


def most_wrong_rows(
    texts: Sequence[tuple[str, ...]],
    gold: NDArray[Any],
    probabilities: Probabilities,
    labels: Sequence[str],
    *,
    kind: Kind = "class",
    count: int,
) -> list[dict[str, Any]]:
    """Return at most `count` wrong rows, by falling confidence.

    Returns:
        Dicts of texts, gold and predicted (a label; for `multi` lists), probability: of the wrong
        prediction; for `multi` of the label decision with the largest error.
    """
    answers = answered(probabilities, kind)
    wrong = np.flatnonzero(~_right(gold, answers))
    confidence = probabilities.max(1) if kind == "class" else np.abs(probabilities - gold).max(1)
    order = wrong[np.argsort(-confidence[wrong], kind="stable")][:count]
    return [
        {
            "texts": list(texts[row]),
            "gold": named(gold[row], labels),
            "predicted": named(answers[row], labels),
            "probability": float(confidence[row]),
        }
        for row in order.tolist()
    ]


def aligned(
    probabilities: Probabilities, labels: Sequence[str], wanted: Sequence[str]
) -> Probabilities:
    """Return probabilities in the order of `wanted`, a superset of `labels`; 0 for other labels."""
    placed = np.zeros((len(probabilities), len(wanted)), probabilities.dtype)
    placed[:, [wanted.index(name) for name in labels]] = probabilities
    return placed


def _unique_rows(kind: Kind, labels: int, gold: NDArray[Any], *answers: NDArray[Any]) -> UniqueRows:
    parts = [gold, *answers]
    if kind == "class":
        times, (right, *said) = unique_rows(*(part[:, None] for part in parts))
        counts = [metrics.class_counts(right[:, 0], one[:, 0], labels) for one in said]
    else:
        times, (right, *said) = unique_rows(*parts)
        counts = [metrics.label_counts(right, one) for one in said]
    return UniqueRows(times, counts)


def _right(gold: NDArray[Any], answers: NDArray[Any]) -> NDArray[np.bool_]:
    same = np.asarray(gold == answers)
    return same if same.ndim == 1 else np.asarray(same.all(1))  # (rows,)


def _check(
    gold: NDArray[Any], probabilities: Probabilities, labels: Sequence[str], kind: str
) -> None:
    if kind not in _METRICS:
        raise InputError(f"kind {kind!r} is unknown: use class or multi")
    rows, width = len(gold), len(labels)
    if probabilities.shape != (rows, width):
        raise InputError(
            f"probabilities have the shape {probabilities.shape}: give ({rows}, {width}), a row "
            "for each of gold and a column for each label"
        )
    if not rows:
        raise InputError("there are no rows to measure on: give one or more")
    if kind == "multi" and gold.shape != (rows, width):
        raise InputError(f"gold has the shape {gold.shape}: give ({rows}, {width}), 0 or 1")
    if kind == "class" and (gold.ndim != 1 or gold.min() < 0 or gold.max() >= width):
        raise InputError(f"gold holds something else than indices of labels: give 0 to {width - 1}")
    if not np.isfinite(probabilities).all():
        raise TilthError(
            "the classifier returned NaN probabilities: train it again, with a lower learning rate"
        )
