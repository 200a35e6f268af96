"""What a teacher says of each row, and how sure it is.

A row's classes are the likeliest class; of any number of classes those that are likelier than
not; of tags the types of entity in the sentence. Rows without any, of the latter two, are one
more class, the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.metrics.scores import positive

if TYPE_CHECKING:
    from tilth.models.classifier import Kind

Probabilities: TypeAlias = "NDArray[np.float32] | Sequence[NDArray[np.float32]]"

NONE = ""  # the name of the class of rows without any


def classes_of(kind: Kind, labels: Sequence[str]) -> list[str]:
    """Return the names of the classes that ratios are of.

    Args:
        kind: what a label is of.
        labels: the classes or tags.

    Example:
        >>> classes_of("tags", ["O", "B-city", "I-city", "B-name", "I-name"])
        ['city', 'name', '']
    """
    if kind == "class":
        return list(labels)
    if kind == "multi":
        return [*labels, NONE]
    return [*dict.fromkeys(tag[2:] for tag in labels if tag != "O"), NONE]


def members_of(
    probabilities: Probabilities, kind: Kind, labels: Sequence[str]
) -> NDArray[np.bool_]:
    """Tell which classes a teacher says each row has, (rows, classes).

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags).
        kind: what a label is of.
        labels: the classes or tags, in the order of the probabilities.
    """
    classes = classes_of(kind, labels)
    found = np.zeros((len(probabilities), len(classes)), bool)
    if not len(found):
        return found
    if kind == "class":
        found[np.arange(len(found)), np.asarray(probabilities).argmax(axis=1)] = True
        return found
    if kind == "multi":
        found[:, :-1] = positive(np.asarray(probabilities))
    else:
        types = np.array([len(classes) - 1 if tag == "O" else classes.index(tag[2:])
                          for tag in labels])  # (tags,)  # fmt: skip
        tags = np.concatenate([tokens.argmax(axis=1) for tokens in probabilities])  # (tokens,)
        found[
            np.repeat(np.arange(len(found)), [len(row) for row in probabilities]), types[tags]
        ] = True
    found[:, -1] = ~found[:, :-1].any(axis=1)
    return found


def confidence_of(
    probabilities: Probabilities, *, kind: Kind, of_tokens: str = "mean"
) -> NDArray[np.float32]:
    """Return how sure a teacher is of each row, 0 to 1, (rows,).

    Of a class it is its probability; of any number of classes that of the least sure yes or no;
    of tags the mean or the least over the tokens of the likeliest tag's.

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags).
        kind: what a label is of.
        of_tokens: `mean` or `least`.
    """
    if kind == "tags":
        return _over_tokens([tokens.max(axis=1) for tokens in probabilities], of_tokens)
    values = np.asarray(probabilities, np.float32)  # (rows, labels)
    if kind == "multi":
        return np.asarray(np.maximum(values, 1 - values).min(axis=1), np.float32)
    return np.asarray(values.max(axis=1), np.float32)


def margin_of(
    probabilities: Probabilities, *, kind: Kind, of_tokens: str = "mean"
) -> NDArray[np.float32]:
    """Return how far each row's label is ahead of the next likely, 0 to 1, (rows,).

    Args:
        probabilities: (rows, labels); for tags of each row (tokens, tags).
        kind: what a label is of.
        of_tokens: `mean` or `least`.
    """
    if kind == "tags":
        return _over_tokens([_lead(tokens) for tokens in probabilities], of_tokens)
    values = np.asarray(probabilities, np.float32)  # (rows, labels)
    if kind == "multi":
        return np.asarray(np.abs(2 * values - 1).min(axis=1), np.float32)
    return _lead(values)


def _lead(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    two = np.partition(probabilities, -2, axis=1)[:, -2:]  # (rows, 2)
    return np.asarray(two[:, 1] - two[:, 0], np.float32)


def _over_tokens(values: list[NDArray[np.float32]], of_tokens: str) -> NDArray[np.float32]:
    """Return one value for each sentence, 0 for one without tokens, (rows,)."""
    joined = np.mean if of_tokens == "mean" else np.min
    return np.array([joined(row) if len(row) else 0 for row in values], np.float32)
