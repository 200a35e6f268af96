"""Small sets drawn from large ones, and what the scores of several draws say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.keys import keyed, text_hashes
from tilth.errors import InputError
from tilth.metrics.answers import likely
from tilth.metrics.intervals import of_mean
from tilth.selftrain.rows import strata

if TYPE_CHECKING:
    from tilth.selftrain.rows import Rows

Texts = Collection[tuple[str, ...]]


def draw(
    rows: Rows,
    per_class: int | None = 20,
    *,
    sentences: int = 200,
    seed: int = 0,
    without: Texts = (),
) -> NDArray[np.int64]:  # fmt: skip
    """Draw a small training set: as many rows of each class, or so many tagged sentences.

    Which rows are drawn follows from seed and content, not from their order. Equal texts are
    drawn once. A class with fewer rows has them all drawn.

    Args:
        rows: the large training set.
        per_class: rows of each class; where a row has any number of classes it counts for each.
            None: all rows that may be drawn.
        sentences: drawn altogether where tokens have tags, in the set's shares of types.
        seed: another one draws others.
        without: texts that are not drawn, such as those of a test set.

    Returns:
        Places of the rows, ascending.

    Raises:
        InputError: a class has no row that may be drawn, or a number is below 1.

    Reference:
        Du et al. 2021, section 3.3, "Few-shot learning experiments".
    """
    if min(sentences, sentences if per_class is None else per_class) < 1:
        raise InputError(
            f"per_class is {per_class}, sentences {sentences}: draw at least one of each"
        )
    order = _drawn_order(rows, f"few-shot/{seed}", without)
    if per_class is None:
        if not len(order):
            raise InputError("every row is in the test or validation set: give other rows")
        return np.sort(order)
    if isinstance(rows.targets, list):
        return np.sort(_in_shares(strata(rows), order, sentences))
    has = likely(rows.targets[order])  # (rows, labels)
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
    rows: Rows, count: int = 200, *, seed: int = 0, without: Texts = ()
) -> NDArray[np.int64]:
    """Draw validation rows with the set's shares of labels; all rows where there are fewer.

    Args:
        rows: the large validation set.
        count: rows drawn.
        seed: another one draws others.
        without: texts that are not drawn, such as those of a test set.

    Returns:
        Places of the rows, ascending.

    Raises:
        InputError: no row can be drawn.

    Reference:
        Du et al. 2021, section 3.3.
    """
    order = _drawn_order(rows, f"few-shot validation/{seed}", without)
    if count < 1 or not len(order):
        raise InputError(f"{count} validation rows of {len(order)}: at least one is needed")
    return np.sort(_in_shares(strata(rows), order, count))


def _drawn_order(rows: Rows, purpose: str, without: Texts) -> NDArray[np.int64]:
    """Return the rows that may be drawn, each text once, in an order that their texts decide."""
    barred = set(without)
    first: dict[tuple[str, ...], int] = {}
    for place, texts in enumerate(rows.texts):
        if texts not in barred:
            first.setdefault(texts, place)
    places = np.fromiter(first.values(), np.int64, len(first))
    if not len(places):
        return places
    keys = [text_hashes(pa.array(side, pa.large_string())) for side in zip(*first, strict=True)]
    return places[np.argsort(keyed(0, purpose, *keys), kind="stable")]


def _in_shares(
    groups: NDArray[np.int64], order: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Take the first rows of an order, of each group its share.

    Args:
        groups: of all rows. # (rows,)
        order: places of the rows that can be taken.
        count: how many are taken.
    """
    own = groups[order]
    found, sizes = np.unique(own, return_counts=True)
    wanted = shares(sizes, count)
    chosen = [order[own == group][:size] for group, size in zip(found, wanted, strict=True)]
    return np.concatenate(chosen)


def shares(sizes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Divide a count in proportion to sizes; what is over goes to the largest fractions.

    Args:
        sizes: of the groups. # (groups,)
        count: to be divided; all where there are fewer.

    Example:
        >>> import numpy as np
        >>> shares(np.array([60, 30, 10]), 9).tolist()
        [5, 3, 1]
    """
    total = int(sizes.sum())
    if count >= total:
        return sizes
    exact = sizes * (count / total)  # (groups,)
    whole: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    left = count - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:left]] += 1
    return whole


def best_of(validation: Sequence[float], test: Sequence[float], best: int = 3) -> float:
    """Return the mean test score of the trainings that are best by validation.

    Args:
        validation: score of each training; of equal ones the first count as better.
        test: of the same trainings.
        best: how many count.

    Reference:
        Du et al. 2021, section 3.3.

    Example:
        >>> best_of([80.0, 90.0, 85.0], [70.0, 74.0, 78.0], best=2)
        76.0
    """
    return float(np.mean([test[place] for place in highest(validation, best)]))


def highest(scores: Sequence[float], count: int) -> list[int]:
    """Return the places of the highest scores, highest first; of equal ones the first."""
    return sorted(range(len(scores)), key=lambda place: -scores[place])[:count]


@dataclass(frozen=True, slots=True)
class OverDraws:
    """A figure of several draws.

    Attributes:
        mean: over the draws.
        deviation: over the draws (n - 1); None for one.
        low: lower end of the 95% interval of the mean (Student's t); None for one draw.
        high: its upper end.
        draws: the figure of each.
    """

    mean: float
    deviation: float | None
    low: float | None
    high: float | None
    draws: tuple[float, ...]


def over_draws(values: Sequence[float]) -> OverDraws:
    """Return mean, deviation and interval of figures of draws."""
    found = of_mean(values)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return OverDraws(found.value, deviation, found.low, found.high, tuple(values))


def gain(before: Sequence[float], after: Sequence[float]) -> OverDraws:
    """Return by how much the second is higher, draw by draw.

    Args:
        before: score of each draw.
        after: score of the same draws.
    """
    return over_draws([new - old for old, new in zip(before, after, strict=True)])
