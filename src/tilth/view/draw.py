"""Draw a sample of rows to annotate: at random, alike for each label, or the lowest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.data.examples import TOKENS
from tilth.data.hashing import random_keys
from tilth.errors import InputError
from tilth.metrics.scores import spans
from tilth.view.annotations import CLASS, CLASSES, GRADE, SAME, SPANS, SampleItem
from tilth.view.rows import detail_of, label_names, plain_label, row_key
from tilth.view.runs import RunEntry
from tilth.view.store import RowFilter, RowStore

RANDOM, BY_LABEL, LOWEST = "random", "alike for each label", "lowest "
_TAGS = ("tags", "ner_tags", "labels", "label")
_LISTS = ("labels", "label")


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of a sample; label -> rows it was drawn from, where labels were drawn alike."""

    items: list[SampleItem]
    shares: dict[str, int]


def draws_of(store: RowStore) -> list[str]:
    """Return the ways to draw from a run's rows."""
    by_label = [BY_LABEL] if len(store.values_of("label")) > 1 else []
    return [*by_label, RANDOM, *(f"{LOWEST}{name}" for name in store.numbers)]


def draw_sample(
    store: RowStore, chosen: RowFilter, *, task: str, draw: str, count: int, seed: int
) -> Drawn:
    """Draw rows of a filter: the same seed and rows, the same sample in the same order.

    Raises:
        InputError: no row passes the filter, or the way to draw is unknown.
    """
    rows = np.sort(store.select(chosen))
    if not len(rows):
        raise InputError("no row passes the filter: take another one")
    if draw not in draws_of(store):
        raise InputError(f"draw is {draw[:60]!r}: use {', '.join(draws_of(store))}")
    keys = random_keys(seed, "annotate", rows.astype(np.uint64))  # (rows,)
    rows = rows[np.argsort(keys, kind="stable")]
    shares: dict[str, int] = {}
    if draw == BY_LABEL:
        rows, shares = _alike(store, rows, count)
    elif draw.startswith(LOWEST):
        values = store.numbers[draw.removeprefix(LOWEST)][rows]
        lowest = np.sort(np.argsort(values, kind="stable")[:count])  # shown in random order
        rows = rows[lowest[~np.isnan(values[lowest])]]
        if not len(rows):
            raise InputError(f"no row of the filter has the number: draw {RANDOM}")
    return Drawn([_item(store, row, task) for row in store.fetch(rows[:count].tolist())], shares)


def _alike(
    store: RowStore, rows: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Return rows that take turns by label, and the rows of each label."""
    codes = store.codes["label"]
    found = codes.rows[rows]
    shares, turns = {}, np.zeros(len(rows), np.int64)
    for code in np.unique(found).tolist():
        own = np.flatnonzero(found == code)
        turns[own] = np.arange(len(own))
        shares[codes.values[code] if code >= 0 else ""] = len(own)
    order = np.argsort(turns, kind="stable")[:count]  # of one turn, labels stand in random order
    return rows[order], shares


def _item(store: RowStore, row: Mapping[str, Any], task: str) -> SampleItem:
    made: Any = None
    if task in (CLASSES, SPANS):
        place = store.file_of(row["row"])
        assert place is not None
        made = _made(detail_of(*place), label_names(place[0]), task)
    key = row_key(row["first"], row["text"], row["label"])
    return SampleItem(
        row=row["row"], key=key, first=row["first"], text=row["text"], label=row["label"],
        reason=row["reason"], made=made,
    )  # fmt: skip


def _made(detail: Mapping[str, Any], names: Sequence[str], task: str) -> list[Any]:
    """Return a row's classes, or its spans."""
    columns = _TAGS if task == SPANS else _LISTS
    value: list[Any] = next(
        (detail[name] for name in columns if isinstance(detail.get(name), list)), []
    )
    labels = [names[one] if isinstance(one, int) and one < len(names) else str(one)
              for one in value]  # fmt: skip
    if task == CLASSES:
        return labels
    return [[first, last, kind] for kind, first, last in spans(labels)]


def usual_task(entry: RunEntry, store: RowStore) -> str:
    """Return the task that fits the rows best."""
    found = store.file_of(0)
    if found is None:
        return CLASS
    detail = detail_of(*found)
    if any(isinstance(detail.get(name), list) for name in TOKENS):
        return SPANS
    if any(isinstance(detail.get(name), list) for name in _LISTS):
        return CLASSES
    is_pair = store.fetch([0])[0]["first"] is not None
    if entry.command == "paraphrase" or (is_pair and not store.values_of("label")):
        return SAME
    labels = store.values_of("label")
    numeric = all((plain_label(label) or "").replace(".", "").isdigit() for label in labels)
    return GRADE if is_pair and labels and numeric else CLASS


def usual_labels(store: RowStore, task: str) -> list[str]:
    """Return the labels to choose from: of tags the types, of lists the classes."""
    found = store.file_of(0)
    if task not in (CLASSES, SPANS) or found is None:
        return store.values_of("label")
    names = label_names(found[0])
    if task == CLASSES:
        return names
    return list(dict.fromkeys(name.partition("-")[2] for name in names if "-" in name))
