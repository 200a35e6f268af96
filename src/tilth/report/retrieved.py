"""Counts the rows of a run of `tilth augment`, a table at a time, and keeps a few to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.report.draw import row_keys

TEXTS, LABELS = ("tokens", "text"), ("tags", "label", "labels")
BINS = 20  # of histograms, from 0 to 1
SHOWN = 4  # sentences of each list
_NONE, _NO_ENTITY = "none", "no entity"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A retrieved sentence, to read.

    Attributes:
        text: the sentence.
        label: the teacher's; of tags the entities.
        confidence: the teacher's, 0 to 1.
        similarity: to the query, a cosine.
        query: what found it.
        reason: why it was dropped; empty when it was kept.
        key: of the draw.
    """

    text: str
    label: str
    confidence: float
    similarity: float
    query: str
    reason: str
    key: int


@dataclass(slots=True)
class Group:
    """A class, or the sentences with a type of entity.

    Attributes:
        name: of the class or type.
        labelled: rows of it in the training set.
        retrieved: sentences that its queries found; None where queries are of no class.
        said: sentences to which the teacher gave it.
        kept: those kept of them.
        confidence: kept sentences by confidence. # (20,)
        surest: kept sentences of which the teacher is surest.
        least: those of which it is least sure.
        nearest: those nearest to their query.
        dropped: a draw of the others, of each reason some.
    """

    name: str
    labelled: int = 0
    retrieved: int | None = None
    said: int = 0
    kept: int = 0
    confidence: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    surest: list[Sentence] = field(default_factory=list)
    least: list[Sentence] = field(default_factory=list)
    nearest: list[Sentence] = field(default_factory=list)
    dropped: list[Sentence] = field(default_factory=list)


def entities(tokens: Sequence[str], tags: Sequence[str]) -> list[tuple[str, str]]:
    """Return type and text of the entities in IOB tags."""
    found: list[tuple[str, list[str]]] = []
    before = "O"
    for token, tag in zip(tokens, tags, strict=True):
        if tag[0] == "I" and before[2:] == tag[2:] and found:
            found[-1][1].append(token)
        elif tag != "O":
            found.append((tag[2:], [token]))
        before = tag
    return [(kind, " ".join(words)) for kind, words in found]


class Tally:
    """Counts the rows of a run, a table at a time, and keeps a few of them to read."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.found: dict[str, Group] = {}
        self.plain = True
        self.labelled = self.retrieved = self.kept = 0
        self.drops: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.similar, self.similar_all = np.zeros((2, BINS), np.int64)
        self._dropped: dict[tuple[str, str], list[Sentence]] = {}

    def groups(self, labels: Sequence[str]) -> None:
        """Make a group of each class or type of entity, in their order."""
        tags = "O" in labels
        for label in labels:
            if label != "O":
                self.group(label[2:] if tags else label)
        if tags:
            self.group(_NO_ENTITY)

    def group(self, name: str) -> Group:
        """Return the group of a name."""
        return self.found.setdefault(name, Group(name))

    def add(self, table: pa.Table, config: str, labels: Sequence[str]) -> None:
        """Take in rows of a config."""
        self.plain &= not any(
            _is_list(table[name].type) for name in LABELS if name in table.column_names
        )
        rows, given = _members(table, labels)  # (members,) each, names in `given`
        if config == "labelled":
            self.labelled += len(table)
            for name, count in Counter(given).items():
                self.group(name).labelled += count
            return
        keys = row_keys(self.retrieved, len(table), self._seed)
        confidence, similarity = (_numbers(table, name) for name in ("confidence", "similarity"))
        self.retrieved += len(table)
        self.similar_all += _binned(similarity)
        dropped = config == "dropped"
        if dropped:
            self.drops.update(map(str, table["drop_reason"].to_pylist()))
        else:
            self.kept += len(table)
            self.similar += _binned(similarity)
            if "source" in table.column_names:
                self.sources.update(map(str, table["source"].to_pylist()))
        names = np.array(given, object)
        for name in dict.fromkeys(given):
            members = rows[names == name]
            group = self.group(name)
            group.said += len(members)
            read = _Reader(table, labels, keys)
            if dropped:
                self._draw(name, table, members, keys, read)
                continue
            group.kept += len(members)
            group.confidence += _binned(confidence[members])
            for held, order in (
                (group.surest, -confidence[members]),
                (group.least, confidence[members]),
                (group.nearest, -similarity[members]),
            ):
                best = members[np.lexsort((keys[members], order))][:SHOWN]
                held += read.sentences(best)

    def _draw(
        self, name: str, table: pa.Table, members: NDArray[np.int64], keys: NDArray[np.uint64],
        read: _Reader,
    ) -> None:  # fmt: skip
        reasons = table["drop_reason"].to_numpy()[members]
        for reason in dict.fromkeys(reasons.tolist()):
            some = members[reasons == reason]
            first = some[np.argsort(keys[some])][:SHOWN]
            held = self._dropped.setdefault((name, str(reason)), [])
            held[:] = nsmallest(SHOWN, chain(held, read.sentences(first)), key=lambda one: one.key)

    def finish(self) -> None:
        """Cut every list to what is shown."""
        for group in self.found.values():
            group.surest = nsmallest(SHOWN, group.surest, key=lambda s: (-s.confidence, s.key))
            group.least = nsmallest(SHOWN, group.least, key=lambda s: (s.confidence, s.key))
            group.nearest = nsmallest(SHOWN, group.nearest, key=lambda s: (-s.similarity, s.key))
            drawn = [held for (name, _), held in self._dropped.items() if name == group.name]
            turns = (one for turn in zip_longest(*drawn) for one in turn if one is not None)
            group.dropped = list(turns)[:SHOWN]


class _Reader:
    """Makes sentences of some rows of a table."""

    def __init__(self, table: pa.Table, labels: Sequence[str], keys: NDArray[np.uint64]) -> None:
        self._table, self._labels, self._keys = table, labels, keys

    def sentences(self, places: NDArray[np.int64]) -> Iterator[Sentence]:
        for place in places.tolist():
            row = self._table.slice(place, 1).to_pylist()[0]
            tokens = row.get("tokens")
            yield Sentence(
                text=str(row.get("text") or " ".join(tokens or ())),
                label=self._label(row, tokens),
                confidence=float(row.get("confidence") or 0.0),
                similarity=float(row.get("similarity") or 0.0),
                query=str(row.get("query") or ""),
                reason=str(row.get("drop_reason") or ""),
                key=int(self._keys[place]),
            )

    def _label(self, row: Mapping[str, Any], tokens: Sequence[str] | None) -> str:
        value = next((row[name] for name in LABELS if row.get(name) is not None), None)
        if not isinstance(value, list):
            return _name(value, self._labels)
        names = [_name(one, self._labels) for one in value]
        if tokens is None:
            return ", ".join(names) or _NONE
        return "; ".join(f"{kind}: {text}" for kind, text in entities(tokens, names)) or _NO_ENTITY


def _members(table: pa.Table, labels: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return of each member of a group the row, and the group's name."""
    column = table[next(name for name in LABELS if name in table.column_names)]
    values = column.to_pylist()
    if not _is_list(column.type):
        return np.arange(len(values)), [_name(value, labels) for value in values]
    rows, names = [], []
    tags = "tokens" in table.column_names
    for row, several in enumerate(values):
        given = [_name(value, labels) for value in several or ()]
        if tags:
            given = list(dict.fromkeys(tag[2:] for tag in given if tag != "O"))
        for name in given or [_NO_ENTITY if tags else _NONE]:
            rows.append(row)
            names.append(name)
    return np.array(rows, np.int64), names


def _name(value: Any, labels: Sequence[str]) -> str:
    if isinstance(value, int) and 0 <= value < len(labels):
        return labels[value]
    return "" if value is None else str(value)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    if name not in table.column_names:
        return np.zeros(len(table))
    found: NDArray[np.float64] = pc.fill_null(table[name].cast(pa.float64()), 0.0).to_numpy()
    return found


def _binned(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.histogram(np.clip(values, 0.0, 1.0), bins=BINS, range=(0.0, 1.0))[0]
