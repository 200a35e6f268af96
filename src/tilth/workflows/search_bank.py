"""Searches of a bank: queries from texts, files and labelled sets; hits shown or kept as a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilth.bank import Bank, Hits, Queries, task_queries
from tilth.data import Card, DatasetWriter
from tilth.data.examples import Examples, read_examples
from tilth.data.readers import read_texts
from tilth.errors import InputError
from tilth.limits import CLUSTERS, QUERY, SEED
from tilth.runs import RESULTS, Run, read_results, refuse_inside

if TYPE_CHECKING:
    from datasets import Features

_ROWS_AT_ONCE = 50_000
_LABELS_SHOWN = 50
# Comparisons of a query with a sentence that take some seconds.
_MANY = 3e9


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for: texts, a file of texts, or a task; one of the three.

    Attributes:
        texts: the queries themselves.
        queries: a file, folder or data set of them.
        column: of the texts in `queries`.
        task: a labelled set.
        kind: of the task's queries; see `tilth.limits.QUERY`.
        text: the task's column of texts, or two of pairs.
        label: its column of labels or tags.
        clusters: per label.
        seed: of the clusters.
    """

    texts: Sequence[str] = ()
    queries: str | None = None
    column: str | None = None
    task: str | None = None
    kind: str = "label-average"
    text: Sequence[str] | None = None
    label: str | None = None
    clusters: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        given = [bool(self.texts), self.queries is not None, self.task is not None]
        if sum(given) != 1:
            what = "no query is given" if not any(given) else "queries are given in several ways"
            raise InputError(f"{what}: give texts, or --queries FILE, or --task TRAIN")
        QUERY.check("kind", self.kind)
        CLUSTERS.check("clusters", self.clusters)
        SEED.check("seed", self.seed)

    def settings(self) -> dict[str, Any]:
        """Return what changes hits, but not what the texts are."""
        if self.task is None:
            return {"queries": self.queries, "column": self.column}
        return {
            "task": self.task, "kind": self.kind, "text": self.text, "label": self.label,
            "clusters": self.clusters, "seed": self.seed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filters:
    """Which hits count; see `Bank.search`, also for the defaults."""

    k: int
    min_similarity: float | None = None
    sources: Sequence[str] | None = None
    without: Sequence[str] = ()
    near: bool = True
    own: bool = True
    oversample: float | None = None
    index: bool = False
    nprobe: int | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found for each query.

    Attributes:
        hits: of each query.
        labels: what a query stands for, where it stands for one.
        sentences: how many sentences a query averages.
    """

    hits: Hits
    labels: list[str | None]
    sentences: list[int]

    def summary(self, query: int) -> dict[str, Any]:
        """Return a query and how many hits it has, how near."""
        count = int(self.hits.counts[query])
        similarity = self.hits.similarity[query, :count]
        return {
            "query": self.hits.names[query],
            "label": self.labels[query],
            "sentences": self.sentences[query],
            "hits": count,
            "nearest": round(float(similarity[0]), 4) if count else None,
            "farthest": round(float(similarity[-1]), 4) if count else None,
        }

    def found(self, query: int, most: int | None = None) -> list[dict[str, Any]]:
        """Return the hits of a query, nearest first, as rows."""
        count = int(self.hits.counts[query])
        ids = self.hits.ids[query, : count if most is None else min(count, most)]
        similarity = self.hits.similarity[query]
        return [
            {
                "rank": place + 1,
                "similarity": round(float(similarity[place]), 4),
                "id": int(ids[place]),
            }
            | row
            for place, row in enumerate(self.hits.bank.rows(ids).to_pylist())
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything."""
        queries = [
            {**self.summary(query), "hits": self.found(query)} for query in range(len(self.hits))
        ]
        return {"removed": self.hits.removed, "queries": queries}


def search(
    bank: Bank,
    wanted: Wanted,
    filters: Filters,
    *,
    threads: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Searched:
    """Search a bank.

    Args:
        bank: where.
        wanted: the queries.
        filters: which hits count.
        threads: see `Bank.search`.
        say: called before a search that takes long.

    Raises:
        InputError: a query or a filter is wrong.
        TilthError: a file of the bank is damaged.
    """
    return _search(bank, wanted, _read(wanted), filters, _excluded(filters), threads, say)


def search_to_run(
    bank: Bank,
    wanted: Wanted,
    filters: Filters,
    out: Path,
    *,
    threads: int | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Search a bank and keep the hits as a data set in a run folder; the same call reads it.

    Args:
        bank: where.
        wanted: the queries.
        filters: which hits count.
        out: the run folder: dataset/ and results.json.
        threads: see `Bank.search`.
        overwrite: begin the folder anew.
        say: called before a search that takes long.

    Returns:
        What results.json holds: each query with how many hits it has, and what was removed.

    Raises:
        InputError: a query or a filter is wrong, or `out` holds something else.
        TilthError: a file of the bank is damaged, or the disk is full.
    """
    if Path(os.path.realpath(bank.path)) in Path(os.path.realpath(out)).parents:
        raise InputError(f"{out}: lies in the bank's own folder: choose another --out")
    refuse_inside(out, str(bank.path), wanted.queries, wanted.task, *filters.without)
    read, excluded = _read(wanted), _excluded(filters)
    settings = {
        "bank": str(bank.path.resolve()),
        **wanted.settings(),
        "k": filters.k,
        "min_similarity": filters.min_similarity,
        "sources": filters.sources,
        "without": list(filters.without),
        "near": filters.near,
        "own": filters.own,
        "oversample": filters.oversample,
        "index": filters.index,
        "nprobe": filters.nprobe,
    }
    of_index = {"index": bank.index.info.digest} if filters.index else {}
    run = Run.open(
        out,
        command="bank search",
        settings=settings,
        fingerprints={
            "bank": _hash(
                [bank.manifest.fingerprint, *(shard.files for shard in bank.manifest.shards)]
            ),
            "queries": _hash(_content(read)),
            "sentences to leave out": _hash(excluded),
            **of_index,
        },
        parts=0,
        outputs=("dataset", RESULTS),
        overwrite=overwrite,
    )
    with run:
        if (kept := _kept(run.path)) is not None:
            return kept
        searched = _search(bank, wanted, read, filters, excluded, threads, say)
        found = {
            "removed": searched.hits.removed,
            "queries": [searched.summary(query) for query in range(len(searched.hits))],
        }
        _write(run, bank, searched, found)
        run.write_file(RESULTS, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


def _kept(path: Path) -> dict[str, Any] | None:
    """Return the results of a finished search; None where something of it is gone or damaged."""
    try:
        kept = read_results(path, {"queries": list, "removed": dict})
        if kept is None:
            return None
        hits = sum(query["hits"] for query in kept["queries"])
        rows = sum(pq.read_metadata(file).num_rows for file in path.glob("dataset/**/*.parquet"))
    except (OSError, pa.ArrowException, KeyError, TypeError):
        return None
    there = (path / "dataset" / "README.md").is_file() and rows == hits
    return kept if there else None


def _read(wanted: Wanted) -> list[str] | Examples:
    if wanted.task is not None:
        needed = wanted.kind == "label-average"
        return read_examples(wanted.task, text=wanted.text, label=wanted.label, need_label=needed)
    if wanted.queries is not None:
        return list(read_texts(wanted.queries, column=wanted.column)["text"])
    return list(wanted.texts)


def _excluded(filters: Filters) -> dict[str, list[str]]:
    """Read the sentences that no hit may be, whatever shape their sets have."""
    return {name: read_examples(name, need_label=False).sentences for name in filters.without}


def _search(
    bank: Bank,
    wanted: Wanted,
    read: list[str] | Examples,
    filters: Filters,
    excluded: dict[str, list[str]],
    threads: int | None,
    say: Callable[[str], None],
) -> Searched:
    queries: list[str] | Queries
    if isinstance(read, Examples):
        assert wanted.task is not None
        queries = _of_task(bank, wanted, read)
        labels, sentences = queries.labels, queries.sentences
    else:
        queries, labels, sentences = read, [None] * len(read), [1] * len(read)
    if not filters.index and len(queries) * len(bank) > _MANY:
        say(f"comparing {len(queries):,} queries with {len(bank):,} sentences")
    hits = bank.search(
        queries,
        filters.k,
        min_similarity=filters.min_similarity,
        sources=filters.sources,
        without=excluded or None,
        near=filters.near,
        own=filters.own,
        oversample=filters.oversample,
        index=filters.index,
        nprobe=filters.nprobe,
        threads=threads,
    )
    return Searched(hits, labels, sentences)


def _of_task(bank: Bank, wanted: Wanted, examples: Examples) -> Queries:
    try:
        return task_queries(
            examples,
            encoder=bank.encode,
            kind=wanted.kind,
            clusters=wanted.clusters,
            seed=wanted.seed,
        )
    except InputError as error:
        raise InputError(f"{wanted.task}: {error}") from error


def _content(read: list[str] | Examples) -> Any:
    if not isinstance(read, Examples):
        return read
    return [read.texts, read.labels.values if read.labels is not None else None]


def _hash(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _write(run: Run, bank: Bank, searched: Searched, found: dict[str, Any]) -> None:
    """Write all hits as a data set with its card."""
    with DatasetWriter(run.path / "dataset", {"default": _features()}) as writer:
        for table in _tables(searched):
            writer.write(table)
        writer.write_card(_card(run, bank, found))


def _tables(searched: Searched) -> Iterator[pa.Table]:
    """Yield the hits of some queries at a time: their texts never lie in memory all at once."""
    ends = np.cumsum(searched.hits.counts)
    query = 0
    while query < len(ends):
        before = int(ends[query - 1]) if query else 0
        stop = max(query + 1, int(np.searchsorted(ends, before + _ROWS_AT_ONCE, "right")))
        yield pa.concat_tables(_labelled(searched, number) for number in range(query, stop))
        query = stop


def _labelled(searched: Searched, query: int) -> pa.Table:
    table = searched.hits.table(query)
    labels = pa.array([searched.labels[query]] * len(table), pa.string())
    return table.add_column(1, "label", labels)


def _features() -> Features:
    from datasets import Features, Value

    kinds = {
        "query": "string", "label": "string", "rank": "int64", "similarity": "float32",
        "id": "int64", "text": "string", "source": "string", "document": "int64",
    }  # fmt: skip
    return Features({name: Value(kind) for name, kind in kinds.items()})


def _card(run: Run, bank: Bank, found: dict[str, Any]) -> Card:
    counts: dict[str, int] = {}
    for query in found["queries"]:
        label = query["label"] or ""
        counts[label] = counts.get(label, 0) + query["hits"]
    if len(counts) > _LABELS_SHOWN:
        counts = {"": sum(counts.values())}
    rows = sum(counts.values())
    language = bank.manifest.rules.get("language")
    return Card(
        title=f"Nearest sentences in {bank.path.name}",
        summary=(
            f"{rows:,} sentences, the nearest of {len(found['queries']):,} queries among "
            f"{len(bank):,} of a bank, by the cosine of their vectors (SentAugment, Du et al. "
            "2020, arXiv 2010.02194), found with tilth. They carry the licences of the bank's "
            "sources; `label` is that of the query, nobody has labelled the sentences."
        ),
        command=run.command,
        settings=run.settings,
        counts={"train": counts},
        drops={reason: count for reason, count in found["removed"].items() if count},
        language=[language] if language else [],
        texts="found in a bank",
        extra=[
            (
                "Columns",
                "`query` and its `label`; `rank` from 1 and `similarity` (cosine); `id` in the "
                "bank, `text`, its `source` and the line of its `document` there.",
            ),
            ("Encoder", f"`{bank.manifest.encoder}`, fingerprint {bank.manifest.fingerprint}"),
        ],
    )
