"""Count and sample the sentences of a `tilth augment` run by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.data.labels import label_text
from tilth.data.parquet import schema_class_names
from tilth.data.sources import folder_configs
from tilth.errors import InputError
from tilth.metrics.scores import are_tags, spans
from tilth.report.quality import by_count
from tilth.report.run_reader import (
    counts_of,
    database,
    part_files,
    read_run,
    read_tables,
    row_keys,
    select,
)
from tilth.runs import read_results

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN_QUERIES = 12
SHOWN_SENTENCES = 4  # of each list
BINS = 20  # of histograms, from 0 to 1
# Lists of a class's sentences: title -> config and order; drop reasons take turns.
LISTS = {
    "Kept, the teacher is surest": ("default", "confidence DESC, key"),
    "Kept, the teacher is least sure": ("default", "confidence, key"),
    "Kept, nearest to the query": ("default", "similarity DESC, key"),
    "Dropped, sampled by the seed": ("dropped", "turn, reason"),
}
LABELS = ("tags", "label", "labels")
_NONE, _NO_ENTITY = "none", "no entity"
_COLUMNS = (
    "tokens", "text", *LABELS, "confidence", "similarity", "query", "source", "drop_reason",
)  # fmt: skip
_SENTENCES = pa.schema(
    {
        "row": pa.int64(),
        "key": pa.uint64(),  # of samples: the smallest are taken
        "config": pa.string(),
        "text": pa.string(),
        "label": pa.string(),  # of tags the entities
        "classes": pa.list_(pa.string()),  # of tags the types of entity
        "confidence": pa.float64(),
        "similarity": pa.float64(),
        "query": pa.string(),
        "source": pa.string(),
        "reason": pa.string(),
    }
)
_HITS = pa.schema(
    {
        "row": pa.int64(),
        "query": pa.string(),
        "query_label": pa.string(),
        "similarity": pa.float64(),
        "text": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class RetrievedSentence:
    """A sentence with the teacher's label and confidence, and its similarity to the query."""

    text: str
    label: str
    confidence: float
    similarity: float
    query: str
    reason: str | None


@dataclass(slots=True)
class ClassCounts:
    """Counts and examples of a class or an entity type.

    Attributes:
        labelled: training rows of the class.
        retrieved: sentences that its queries found; None where queries belong to no class.
        predicted: sentences the teacher assigned to it.
        kept: predicted sentences that were kept.
        confidence: histogram of the kept sentences. # (20,)
        examples: key of `LISTS` -> its sentences.
    """

    name: str
    labelled: int = 0
    retrieved: int | None = None
    predicted: int = 0
    kept: int = 0
    confidence: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    examples: dict[str, list[RetrievedSentence]] = field(
        default_factory=lambda: {name: [] for name in LISTS}
    )


@dataclass(frozen=True, slots=True)
class AugmentReport:
    """The content of the page of a `tilth augment` run.

    Attributes:
        labelled: rows of the training set.
        retrieved: distinct sentences.
        kept: retrieved sentences that were kept.
        drops: reason -> sentences, the most frequent first.
        sources: source -> kept sentences, the most frequent first.
        similarity: histograms of the retrieved and of the kept sentences. # (20,) each
        queries: some queries, each with its nearest sentences.
        query_count: queries that found something.
        is_tagged: whether tokens have tags.
        has_one_label: whether a sentence has exactly one class.
        students: folder -> its results.json, of trainings on this run.
        notices: problems found in the folder.
    """

    run: dict[str, Any]
    results: dict[str, Any]
    classes: list[ClassCounts]
    labelled: int
    retrieved: int
    kept: int
    drops: dict[str, int]
    sources: dict[str, int]
    similarity: dict[str, NDArray[np.int64]]
    queries: list[tuple[str, list[str]]]
    query_count: int
    is_tagged: bool
    has_one_label: bool
    students: dict[str, dict[str, Any]]
    notices: list[str]


def read_augmentation(folder: Path) -> AugmentReport:
    """Read a finished run of `tilth augment`."""
    run = read_run(folder, "augment")
    configs = folder_configs(folder / "dataset")
    if "default" not in configs:
        raise InputError(
            f"{folder}: the run is not finished: the same tilth augment command goes on where it "
            "stopped"
        )
    notices: list[str] = []
    files = {name: [*chain.from_iterable(splits.values())] for name, splits in configs.items()}
    kind, labels = _label_names(files["default"][0])
    seed = int(run["settings"].get("seed") or 0)
    sentences = _sentences(files, labels, seed, notices)
    hits = _hits(part_files(folder / "hits"), notices)
    with database(sentences=(_SENTENCES, sentences), hits=(_HITS, hits)) as engine:
        counts = counts_of(engine, "SELECT config, count(*) FROM sentences GROUP BY config")
        drops = "SELECT reason, count(*) FROM sentences WHERE config = 'dropped' GROUP BY reason"
        sources = (
            "SELECT source, count(*) FROM sentences WHERE config = 'default' AND source IS NOT NULL"
            " GROUP BY source"
        )
        queries, query_count = _queries(engine)
        return AugmentReport(
            run=run,
            results=read_results(folder) or {},
            classes=_classes(engine, labels),
            labelled=counts.get("labelled", 0),
            retrieved=counts.get("default", 0) + counts.get("dropped", 0),
            kept=counts.get("default", 0),
            drops=by_count(counts_of(engine, drops)),
            sources=by_count(counts_of(engine, sources)),
            similarity={
                "retrieved": _histogram(engine, "config <> 'labelled'"),
                "kept": _histogram(engine, "config = 'default'"),
            },
            queries=queries,
            query_count=query_count,
            is_tagged=are_tags(labels),
            has_one_label=not kind.startswith(("list", "large_list")),
            students=_students(folder, run),
            notices=notices,
        )


def _label_names(file: Path) -> tuple[str, list[str]]:
    """Return the type of a file's label column and its class names by number."""
    schema = pq.read_schema(file)
    column = next(name for name in LABELS if name in schema.names)
    return str(schema.field(column).type), schema_class_names(schema).get(column, [])


def _sentences(
    files: Mapping[str, Sequence[Path]], labels: Sequence[str], seed: int, notices: list[str]
) -> Iterator[pa.Table]:
    """Yield tables with the columns of `_SENTENCES`."""
    first = 0
    for config in ("labelled", "default", "dropped"):
        for table in read_tables(files.get(config, ()), _COLUMNS, notices):
            rows = [_described(row, labels) for row in table.to_pylist()]
            columns: dict[str, Any] = {
                name: [row.get(name) for row in rows] for name in _SENTENCES.names
            }
            columns["row"] = range(first, first + len(rows))
            columns["key"] = row_keys(first, len(rows), seed)
            columns["config"] = [config] * len(rows)
            yield pa.table(columns, schema=_SENTENCES)
            first += len(rows)


def _described(row: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Return a row with label and classes as names."""
    tokens = row.get("tokens")
    value = next((row[name] for name in LABELS if row.get(name) is not None), None)
    names = [label_text(one, labels) for one in (value if isinstance(value, list) else [value])]
    label, classes = ", ".join(names) or _NONE, names or [_NONE]
    if tokens is not None:
        found = entities(tokens, names)
        label = "; ".join(f"{kind}: {text}" for kind, text in found) or _NO_ENTITY
        classes = list(dict.fromkeys(kind for kind, _ in found)) or [_NO_ENTITY]
    return {
        "text": row.get("text") or " ".join(tokens or ()),
        "label": label,
        "classes": classes,
        "confidence": row.get("confidence") or 0.0,
        "similarity": row.get("similarity") or 0.0,
        "query": row.get("query") or "",
        "source": row.get("source"),
        "reason": row.get("drop_reason"),
    }


def entities(tokens: Sequence[str], tags: Sequence[str]) -> list[tuple[str, str]]:
    """Return type and text of each entity in IOB tags."""
    return [(kind, " ".join(tokens[start:end])) for kind, start, end in spans(tags)]


def _hits(parts: Sequence[Path], notices: list[str]) -> Iterator[pa.Table]:
    """Yield tables with the columns of `_HITS`."""
    first = 0
    for table in read_tables(parts, _HITS.names, notices):
        rows = pa.array(np.arange(first, first + len(table)))
        yield table.append_column("row", rows).select(_HITS.names)
        first += len(table)


def _classes(engine: DuckDBPyConnection, labels: Iterable[str]) -> list[ClassCounts]:
    names = list(labels)
    if are_tags(names):
        names = [label.partition("-")[2] for label in names if label != "O"]
        names.append(_NO_ENTITY)
    found = {name: ClassCounts(name) for name in names}
    engine.execute("CREATE VIEW members AS SELECT *, unnest(classes) AS class FROM sentences")
    counts = (
        "SELECT class, count(*) FILTER (config = 'labelled') AS labelled,"
        " count(*) FILTER (config <> 'labelled') AS predicted,"
        " count(*) FILTER (config = 'default') AS kept FROM members GROUP BY class"
        " ORDER BY min(row)"
    )
    for row in select(engine, counts):
        one = found.setdefault(row["class"], ClassCounts(row["class"]))
        one.labelled, one.predicted, one.kept = row["labelled"], row["predicted"], row["kept"]
    by_label = counts_of(
        engine,
        "SELECT query_label, count(*) FROM hits WHERE query_label IS NOT NULL GROUP BY ALL "
        "ORDER BY min(row)",
    )
    for name in by_label:
        found.setdefault(name, ClassCounts(name))
    for name, one in found.items():
        one.retrieved = by_label.get(name, 0) if by_label else None
        one.confidence += _histogram(engine, "config = 'default' AND class = ?", name)
    for title, (config, order) in LISTS.items():
        rows = select(
            engine,
            "SELECT class, text, label, confidence, similarity, query, reason FROM (SELECT *,"
            " row_number() OVER (PARTITION BY class, reason ORDER BY key) AS turn FROM members"
            f" WHERE config = ?) QUALIFY row_number() OVER (PARTITION BY class ORDER BY {order})"
            f" <= ? ORDER BY {order}",
            config,
            SHOWN_SENTENCES,
        )
        for row in rows:
            found[row.pop("class")].examples[title].append(RetrievedSentence(**row))
    return list(found.values())


def _queries(engine: DuckDBPyConnection) -> tuple[list[tuple[str, list[str]]], int]:
    """Return evenly spaced queries with their nearest hits, and the number of queries."""
    every = [
        *counts_of(engine, "SELECT query, min(row) FROM hits GROUP BY query ORDER BY min(row)")
    ]
    few = min(len(every), SHOWN_QUERIES)
    chosen = [every[place * len(every) // few] for place in range(few)]
    rows = engine.execute(
        "SELECT query, similarity, text FROM hits WHERE list_contains(?, query) QUALIFY"
        " row_number() OVER (PARTITION BY query ORDER BY similarity DESC, text) <= ?"
        " ORDER BY similarity DESC, text",
        (chosen, SHOWN_SENTENCES),
    )
    nearest: dict[str, list[str]] = {name: [] for name in chosen}
    for query, similarity, text in rows.fetchall():
        nearest[query].append(f"{similarity:.2f} {text}")
    return list(nearest.items()), len(every)


def _histogram(engine: DuckDBPyConnection, where: str, *values: str) -> NDArray[np.int64]:
    """Count sentences by similarity, or a class's sentences by confidence, (20,)."""
    column, table = ("confidence", "members") if values else ("similarity", "sentences")
    found = np.zeros(BINS, np.int64)
    place = f"greatest(least(floor({column} * {BINS}), {BINS - 1}), 0)::INTEGER"
    query = f"SELECT {place} AS place, count(*) FROM {table} WHERE {where} GROUP BY place"
    for place_, count in engine.execute(query, values).fetchall():
        found[place_] = count
    return found


def _students(folder: Path, run: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results of trainings inside the run folder that used this run."""
    found = {}
    for file in sorted(folder.glob("*/results.json")):
        results = read_results(file.parent) or {}
        if results.get("tested") and results.get("start") == run.get("start", ""):
            found[file.parent.name] = results
    return found
