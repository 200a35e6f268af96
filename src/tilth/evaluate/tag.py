"""Evaluates taggers: F1 of entities with intervals, calibration, paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import Source
from tilth.errors import InputError, TilthError
from tilth.evaluate.expected_labels import check_kind, read_gold
from tilth.metrics import scores as metrics
from tilth.metrics.scores import calibration, entity_types, iob2, span_counts, spans
from tilth.metrics.significance import (
    RESAMPLES,
    Metrics,
    UniqueRows,
    bootstrap_scores,
    check_resamples,
    compare_scores,
    unique_rows,
)
from tilth.models.names import loaded

if TYPE_CHECKING:
    from tilth.models.classifier import Classifier

Tags: TypeAlias = Sequence[Sequence[str]]
Floats: TypeAlias = NDArray[np.floating[Any]]

_METRICS: Metrics = {
    "f1": metrics.micro_f1,
    "precision": metrics.micro_precision,
    "recall": metrics.micro_recall,
    "accuracy": metrics.accuracy,
}


def evaluate_tagger(
    tagger: Classifier | str | Path,
    data: Source,
    *,
    text: str | None = None,
    label: str | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    precision: str = "auto",
) -> dict[str, Any]:
    """Evaluate a tagger on tokens with IOB tags; sentences are resampled.

    The options are those of `evaluate_classifier`, the result that of `tag_scores`.

    Args:
        text: None: the column `tokens` or `words`.
        label: None: the column `tags`, `ner_tags` or `labels`.

    Raises:
        InputError: an argument or the data is wrong, or it holds a type of entity that the
            tagger does not have; the message names file and line.
        TilthError: the tagger returns NaN.
    """
    check_resamples(bootstrap, seed)
    model: Classifier = loaded(
        tagger, "tagger", "tilth.models.classifier:load_classifier", "probabilities"
    )
    check_kind(model, "tag")
    examples, gold = read_gold(model, data, text=text, label=label, split=split)
    tags, sure = best_tags(
        model.tag_probabilities(examples.tokens or [], precision=precision), model.labels
    )
    return tag_scores(gold, tags, sure=sure, bootstrap=bootstrap, seed=seed)


def tag_scores(
    gold: Tags,
    predicted: Tags,
    *,
    sure: Sequence[Floats] | None = None,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Score predicted tags against the expected ones; scores are x 100.

    An entity counts when its type and both its ends are right, as in conlleval.

    Args:
        sure: probability of each predicted tag, (tokens,) a sentence; None: no calibration.
        bootstrap: resamples of sentences for the 95% intervals; 0: no intervals.
        seed: the intervals do not depend on the order of sentences.

    Returns:
        n (sentences), tokens; f1, precision, recall (of entities) and accuracy (of tokens), each
        value, low, high, None where undefined; classes: type of entity -> precision, recall, f1,
        n, predicted; calibration of the tokens' tags.

    Example:
        >>> gold, said = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "O", "O", "B-LOC"]]
        >>> found = tag_scores(gold, said, bootstrap=0)
        >>> found["f1"]["value"], found["accuracy"]["value"]
        (50.0, 75.0)
    """
    check_resamples(bootstrap, seed)
    _check(gold, predicted)
    types = entity_types([*gold, *predicted])
    times, parts = unique_rows(span_counts(gold, predicted, types))
    rows = UniqueRows(times, parts)
    scores: dict[str, Any] = {
        "n": len(gold),
        "tokens": sum(map(len, gold)),
        **bootstrap_scores(rows, _METRICS, resamples=bootstrap, seed=seed),
        "classes": metrics.scores_by_label(metrics.Counts.of(rows.times @ rows.counts[0]), types),
    }
    if sure is not None:
        written = [np.concatenate([iob2(one) for one in tags]) for tags in (gold, predicted)]
        right = np.equal(*written)  # (tokens,)
        scores["calibration"] = calibration(np.concatenate(sure), right)
    return scores


def compare_tag_scores(
    gold: Tags,
    first: Tags,
    second: Tags,
    *,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare two taggers on the same sentences; differences are x 100.

    Returns:
        f1, precision, recall, accuracy: value (first less second), low, high (95%, paired
        bootstrap of sentences), p (two-sided, approximate randomisation).
    """
    check_resamples(bootstrap, seed)
    for tags in (first, second):
        _check(gold, tags)
    types = entity_types([*gold, *first, *second])
    times, parts = unique_rows(*(span_counts(gold, tags, types) for tags in (first, second)))
    return dict(compare_scores(UniqueRows(times, parts), _METRICS, resamples=bootstrap, seed=seed))


def best_tags(
    probabilities: Sequence[Floats], labels: Sequence[str]
) -> tuple[list[list[str]], list[Floats]]:
    """Return the most probable tag of each token, and its probability.

    `probabilities` holds an array for each sentence, (tokens, labels).
    """
    if not all(np.isfinite(one).all() for one in probabilities):
        raise TilthError(
            "the tagger returned NaN probabilities: train it again, with a lower learning rate"
        )
    tags = [[labels[place] for place in one.argmax(1).tolist()] for one in probabilities]
    return tags, [one.max(1) for one in probabilities]


def most_wrong_sentences(
    tokens: Sequence[Sequence[str]],
    gold: Tags,
    predicted: Tags,
    sure: Sequence[Floats],
    *,
    count: int,
) -> list[dict[str, Any]]:
    """Return at most `count` sentences with wrong entities, by falling confidence.

    Returns:
        Dicts of text, missed and invented (lists of "TYPE: text" of entities), probability: the
        highest of a wrong tag.
    """
    found: list[dict[str, Any]] = []
    for row, (expected, tags) in enumerate(zip(gold, predicted, strict=True)):
        wanted, answered = spans(expected), spans(tags)
        if wanted == answered:
            continue
        words = tokens[row]
        missed, invented = (
            [
                f"{kind}: {' '.join(words[start:end])}"
                for kind, start, end in some
                if (kind, start, end) not in others
            ]
            for some, others in ((wanted, answered), (answered, wanted))
        )
        pairs = zip(iob2(expected), iob2(tags), strict=True)
        wrong = [index for index, (one, other) in enumerate(pairs) if one != other]
        found.append({
            "text": " ".join(words), "missed": missed, "invented": invented,
            "probability": max(float(sure[row][index]) for index in wrong),
        })  # fmt: skip
    found.sort(key=lambda one: -one["probability"])  # stable
    return found[:count]


def _check(gold: Tags, predicted: Tags) -> None:
    if len(gold) != len(predicted):
        raise InputError(
            f"{len(gold)} sentences are right, {len(predicted)} predicted: give as many"
        )
    if not gold:
        raise InputError("there are no sentences to measure on: give one or more")
    for row, (true, said) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(said):
            raise InputError(
                f"row {row}: {len(true)} tags are right, {len(said)} predicted: give each token one"
            )
