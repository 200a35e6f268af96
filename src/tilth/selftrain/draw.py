"""Draws small training and validation sets for few-shot experiments."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples, strata
from tilth.data.hashing import random_keys, text_hashes
from tilth.errors import InputError
from tilth.metrics.scores import positive
from tilth.selftrain.select import largest_remainder

Texts = Collection[tuple[str, ...]]


def draw(
    rows: LabeledExamples,
    per_class: int | None = 20,
    *,
    sentences: int = 200,
    seed: int = 0,
    exclude: Texts = (),
) -> NDArray[np.int64]:  # fmt: skip
    """Draw a small training set: some rows of each class, or some tagged sentences.

    The draw follows from seed and content, not from the order of rows. Equal texts are drawn
    once. A class with fewer rows has them all drawn.

    Args:
        per_class: where a row has any number of classes it counts for each. None: all rows that
            may be drawn.
        sentences: total drawn where tokens have tags, stratified by entity types.
        exclude: texts that are not drawn, such as those of a test set.

    Returns:
        Indices of the rows, ascending.

    Reference:
        Du et al. 2021, section 3.3, "Few-shot learning experiments".
    """
    if min(sentences, sentences if per_class is None else per_class) < 1:
        raise InputError(
            f"per_class is {per_class}, sentences {sentences}: draw at least one of each"
        )
    order = _drawn_order(rows, f"few-shot/{seed}", exclude)
    if per_class is None:
        if not len(order):
            raise InputError("every row is in the test or validation set: give other rows")
        return np.sort(order)
    if isinstance(rows.targets, list):
        return np.sort(_in_shares(strata(rows), order, sentences))
    has = positive(rows.targets[order])  # (rows, labels)
    if rows.kind == "class":
        has = rows.targets[order].argmax(axis=1)[:, None] == np.arange(len(rows.labels))
    chosen = []
    for place, label in enumerate(rows.labels):
        own = order[has[:, place]][:per_class]
        if not len(own):
            raise InputError(f"label {label!r}: no row of it can be drawn: leave it out")
        chosen.append(own)
    return np.unique(np.concatenate(chosen))


def draw_validation(
    rows: LabeledExamples, count: int = 200, *, seed: int = 0, exclude: Texts = ()
) -> NDArray[np.int64]:
    """Draw validation rows, stratified by label; all rows where there are fewer.

    Args:
        exclude: texts that are not drawn, such as those of a test set.

    Returns:
        Indices of the rows, ascending.

    Reference:
        Du et al. 2021, section 3.3.
    """
    order = _drawn_order(rows, f"few-shot validation/{seed}", exclude)
    if count < 1 or not len(order):
        raise InputError(f"{count} validation rows of {len(order)}: at least one is needed")
    return np.sort(_in_shares(strata(rows), order, count))


def _drawn_order(rows: LabeledExamples, purpose: str, exclude: Texts) -> NDArray[np.int64]:
    """Return the indices of distinct texts that may be drawn, in an order by their hashes."""
    excluded = set(exclude)
    first: dict[tuple[str, ...], int] = {}
    for place, texts in enumerate(rows.texts):
        if texts not in excluded:
            first.setdefault(texts, place)
    places = np.fromiter(first.values(), np.int64, len(first))
    if not len(places):
        return places
    keys = [text_hashes(pa.array(side, pa.large_string())) for side in zip(*first, strict=True)]
    return places[np.argsort(random_keys(0, purpose, *keys), kind="stable")]


def _in_shares(
    groups: NDArray[np.int64], order: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the first `count` rows of an order, divided among groups by their shares."""
    if count >= len(order):
        return order
    own = groups[order]
    found, sizes = np.unique(own, return_counts=True)
    wanted = largest_remainder(sizes, count / len(order))
    chosen = [order[own == group][:size] for group, size in zip(found, wanted, strict=True)]
    return np.concatenate(chosen)
