"""Counts the rows of a run of `tilth augment`, a table at a time, and keeps a few to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.labels import class_names
from tilth.data.sources import folder_configs
from tilth.errors import InputError
from tilth.metrics.entity_spans import spans
from tilth.report.row_samples import row_keys
from tilth.report.run_reader import part_files, read_run_json, read_tables
from tilth.runs import read_results

COMMAND = "augment"
SHOWN_QUERIES = 12
_COLUMNS = ("confidence", "similarity", "query", "source", "drop_reason")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A run as its folder tells it.

    Attributes:
        asked: its run.json.
        results: its results.json.
        groups: the classes or types of entity.
        labelled: rows of the training set.
        retrieved: distinct sentences.
        kept: those kept of them.
        drops: reason -> sentences, the most frequent first.
        sources: source -> kept sentences, the most frequent first.
        similarity: kept sentences and all by similarity. # (20,) each
        queries: a query, and the sentences nearest to it.
        queries_in_all: how many queries found something.
        tagged: whether tokens have tags.
        plain: whether a sentence is in one group, which says its label.
        students: name of the folder -> its results.json, of trainings on this very run.
        notices: what is wrong with the folder.
    """

    asked: dict[str, Any]
    results: dict[str, Any]
    groups: list[Group]
    labelled: int
    retrieved: int
    kept: int
    drops: dict[str, int]
    sources: dict[str, int]
    similarity: tuple[NDArray[np.int64], NDArray[np.int64]]
    queries: list[tuple[str, list[tuple[float, str]]]]
    queries_in_all: int
    tagged: bool
    plain: bool
    students: dict[str, dict[str, Any]]
    notices: list[str]


def gather_augmented(run_folder: str | Path) -> Gathered:
    """Read a finished run of `tilth augment`.

    Raises:
        InputError: the folder holds no such run, or it is not finished.
        TilthError: its run.json cannot be read.
    """
    folder = Path(run_folder)
    asked = read_run_json(folder, command=COMMAND)
    configs = folder_configs(folder / "dataset")
    if "default" not in configs:
        raise InputError(
            f"{folder}: the run is not finished: the same tilth augment command goes on where it "
            "stopped"
        )
    notices = list[str]()
    tally = Tally(int(asked["settings"].get("seed") or 0))
    labels = _names(next(chain.from_iterable(configs["default"].values())))
    tally.groups(labels)
    for config in ("labelled", "default", "dropped"):
        files = [file for some in configs.get(config, {}).values() for file in some]
        for table in read_tables(files, (*TEXTS, *LABELS, *_COLUMNS), notices):
            tally.add(table, config, _names(files[0]) or labels)
    queries, in_all = _queries(folder / "hits", tally, notices)
    tally.finish()
    return Gathered(
        asked, read_results(folder) or {}, list(tally.found.values()), tally.labelled,
        tally.retrieved, tally.kept, _ordered(tally.drops), _ordered(tally.sources),
        (tally.similar, tally.similar_all), queries, in_all, "O" in labels, tally.plain,
        _students(folder, asked), notices,
    )  # fmt: skip


def _names(file: Path) -> list[str]:
    """Return the names of the classes or tags that a file's label column holds by number."""
    from datasets import Features

    features = Features.from_arrow_schema(pq.read_schema(file))
    column = next((name for name in LABELS if name in features), None)
    names = class_names(features[column]) if column else None
    return [str(name) for name in names or ()]


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _queries(
    hits: Path, tally: Tally, notices: list[str]
) -> tuple[list[tuple[str, list[tuple[float, str]]]], int]:
    """Count hits by the class of their query; return some queries with their nearest hits."""
    parts = part_files(hits)
    found: dict[str, None] = {}
    by_label: Counter[str | None] = Counter()
    for table in read_tables(parts, ("query", "query_label"), notices):
        found.update(dict.fromkeys(map(str, pc.unique(table["query"]).to_pylist())))
        if "query_label" in table.column_names:
            for one in pc.value_counts(table["query_label"].combine_chunks()).to_pylist():
                by_label[one["values"]] += one["counts"]
    for name, count in by_label.items():
        if name is not None:
            group = tally.group(str(name))
            group.retrieved = (group.retrieved or 0) + count
    if any(name is not None for name in by_label):
        for group in tally.found.values():
            group.retrieved = group.retrieved or 0
    chosen = dict.fromkeys(_spread(list(found), SHOWN_QUERIES))
    nearest: dict[str, list[tuple[float, str]]] = {name: [] for name in chosen}
    for table in read_tables(parts, ("query", "similarity", "text"), []):
        here = table.filter(pc.is_in(table["query"], value_set=pa.array(list(chosen), pa.string())))
        for row in here.sort_by([("similarity", "descending")]).to_pylist():
            held = nearest[str(row["query"])]
            held.append((float(row["similarity"]), str(row["text"])))
            if len(held) > 4 * SHOWN:
                held[:] = _best(held)
    return [(name, _best(held)) for name, held in nearest.items()], len(found)


def _best(hits: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    return nsmallest(SHOWN, hits, key=lambda hit: (-hit[0], hit[1]))


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return some names, as far apart as can be."""
    if len(names) <= count:
        return list(names)
    return [names[place * len(names) // count] for place in range(count)]


def _students(folder: Path, asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of trainings inside the run's folder that learned from this very run."""
    found = {}
    for file in sorted(folder.glob("*/results.json")):
        results = read_results(file.parent) or {}
        if results.get("tested") and results.get("start") == asked.get("start", ""):
            found[file.parent.name] = results
    return found


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
    return [(kind, " ".join(tokens[start:end])) for kind, start, end in spans(tags)]


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
