"""Draw a sample of rows to annotate: at random, alike for each label, or the lowest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.examples import TOKENS
from tilth.data.formats import as_number
from tilth.data.hashing import random_keys
from tilth.data.labels import label_text
from tilth.errors import InputError
from tilth.metrics.scores import spans
from tilth.view.annotations import (
    CLASS,
    CLASSES,
    GRADE,
    LOWEST,
    NO_LABEL,
    SAME,
    SPANS,
    SampleItem,
    touched_words,
)
from tilth.view.rows import (
    detail_of,
    details_of,
    label_column,
    label_names,
    listed_labels,
    row_key,
)
from tilth.view.runs import RunEntry
from tilth.view.store import RowFilter, RowStore

RANDOM, BY_LABEL = "random", "alike for each label"


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows of a sample; label -> rows it was drawn from, where labels were drawn alike."""

    items: list[SampleItem]
    shares: dict[str, int]


def draws_of(store: RowStore) -> list[str]:
    """Return the ways to draw from a run's rows; tags are no label that rows have alike."""
    by_label = [BY_LABEL] if len(store.values_of("label")) > 1 and not _has_tokens(store) else []
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
    found = store.fetch(rows[:count].tolist())
    made: list[Any] = [None] * len(found)
    if task in (CLASSES, SPANS):
        made = _made_of(store, rows[:count], [row["text"] for row in found], task)
    items = [
        SampleItem(
            row=row["row"], key=row_key(row["first"], row["text"], row["label"]),
            first=row["first"], text=row["text"], label=row["label"], reason=row["reason"],
            made=one,
        )
        for row, one in zip(found, made, strict=True)
    ]  # fmt: skip
    return Drawn(items, shares)


def _alike(
    store: RowStore, rows: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Return rows that take turns by label, and the rows of each label."""
    codes = store.codes["label"]
    found = codes.rows[rows]
    shares, turns = dict[str, int](), np.zeros(len(rows), np.int64)
    for code in np.unique(found).tolist():
        own = np.flatnonzero(found == code)
        turns[own] = np.arange(len(own))
        label = (codes.values[code] if code >= 0 else "") or NO_LABEL
        shares[label] = shares.get(label, 0) + len(own)
    order = np.argsort(turns, kind="stable")[:count]  # of one turn, labels stand in random order
    return rows[order], shares


def _made_of(
    store: RowStore, rows: NDArray[np.int32], texts: Sequence[str], task: str
) -> list[list[Any]]:
    """Return each row's classes or spans; a file's rows are read together."""
    places: dict[Path, dict[int, int]] = {}  # file -> offset -> place in the result
    for place, row in enumerate(rows.tolist()):
        at = store.file_of(row)
        assert at is not None
        places.setdefault(at[0], {})[at[1]] = place
    found: list[list[Any]] = [[] for _ in rows]
    for path, own in places.items():
        names, column = label_names(path), label_column(pq.read_schema(path)) or ""
        details = details_of(path, sorted(own), (column, *TOKENS))
        for offset, detail in zip(sorted(own), details, strict=True):
            place = own[offset]
            labels = _labels(detail, column, names, task)
            found[place] = labels if task == CLASSES else _spans(texts[place], detail, labels)
    return found


def _labels(detail: Mapping[str, Any], column: str, names: Sequence[str], task: str) -> list[str]:
    """Return a row's classes or tags."""
    value = _list_of(detail, [column])
    some = [one for one in value if one is not None or task == SPANS]
    return ["O" if one is None else label_text(one, names) for one in some]


def _spans(text: str, detail: Mapping[str, Any], tags: Sequence[str]) -> list[Any]:
    """Return a row's spans of the words of its text, of which a token may be a part, or several."""
    tokens = [str(token) for token in _list_of(detail, TOKENS)]
    if len(tokens) != len(tags):
        return [[first, last, kind] for kind, first, last in spans(tags)]
    places, at = [], 0
    for token in tokens:
        start = text.find(token, at)
        if start < 0:  # its text is not what was tagged
            return _spans(" ".join(tokens), detail, tags)
        at = start + len(token)
        places.append((start, at))
    found = [(places[first][0], places[last - 1][1], kind) for kind, first, last in spans(tags)]
    return touched_words(text, found)


def _list_of(detail: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """Return the first of some columns that holds a list; none: an empty one."""
    return next((detail[name] for name in columns if isinstance(detail.get(name), list)), [])


def _has_tokens(store: RowStore) -> bool:
    """Tell whether the rows are tokens with tags."""
    found = store.file_of(0)
    detail = {} if found is None else detail_of(*found)
    return any(isinstance(detail.get(name), list) for name in TOKENS)


def usual_task(entry: RunEntry, store: RowStore) -> str:
    """Return the task that fits the rows best."""
    found = store.file_of(0)
    if found is None:
        return CLASS
    if _has_tokens(store):
        return SPANS
    detail = detail_of(*found)
    if isinstance(detail.get(label_column(pq.read_schema(found[0])) or ""), list):
        return CLASSES
    is_pair = store.fetch([0])[0]["first"] is not None
    if entry.command == "paraphrase" or (is_pair and not store.values_of("label")):
        return SAME
    labels = store.values_of("label")
    numeric = all(as_number(label) is not None for label in labels)
    return GRADE if is_pair and labels and numeric else CLASS


def usual_labels(store: RowStore, task: str) -> list[str]:
    """Return the labels to choose from: of tags the types, of lists the classes."""
    found = store.file_of(0)
    if task not in (CLASSES, SPANS) or found is None:
        return store.values_of("label")
    names = label_names(found[0]) or listed_labels(found[0])
    if task == CLASSES:
        return names
    return list(dict.fromkeys(name.partition("-")[2] for name in names if "-" in name))
