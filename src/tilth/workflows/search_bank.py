"""Search a bank with texts, a file of texts or a labelled set; keep the hits as a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilth.bank import Bank, Hits, Queries, task_queries
from tilth.data import Card, DatasetWriter
from tilth.data.examples import Examples, open_rows, prefer_curated, read_examples
from tilth.data.hashing import hash_of
from tilth.data.readers import read_texts
from tilth.data.sources import split_names
from tilth.errors import InputError
from tilth.runs import RESULTS, Run, read_results, refuse_inside
from tilth.runs.cluster import Cluster
from tilth.selftrain.retrieve import SLOW_COMPARISONS, bank_fingerprints
from tilth.urls import url_of
from tilth.workflows.settings import WAYS, QuerySource, SearchSettings

if TYPE_CHECKING:
    from datasets import Features

_BATCH_ROWS = 50_000
_LABELS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class SearchResults:
    """Hits of each query.

    Attributes:
        labels: of each query; None: it has none.
        sentences: number of sentences that each query averages.
    """

    hits: Hits
    labels: list[str | None]
    sentences: list[int]

    def summary(self, query: int) -> dict[str, Any]:
        """Return a query, its number of hits, and their similarities."""
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
        """Return all queries and hits."""
        queries = [
            {**self.summary(query), "hits": self.found(query)} for query in range(len(self.hits))
        ]
        return {"removed": self.hits.removed, "queries": queries}


def search_to_run(
    bank: Bank,
    source: QuerySource,
    settings: SearchSettings,
    out: Path,
    *,
    threads: int | None = None,
    cluster: Cluster | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Search a bank and keep the hits as a data set in a run folder; the same call reads it.

    Args:
        out: the run folder: dataset/ and results.json.
        overwrite: restart the run.
        say: called before a search that takes long.

    Returns:
        The content of results.json: each query with its number of hits, and what was removed.
    """
    if Path(os.path.realpath(bank.path)) in Path(os.path.realpath(out)).parents:
        raise InputError(f"{out}: lies in the bank's own folder: choose another --out")
    refuse_inside(out, str(bank.path), source.queries, source.task, *settings.without)
    job = BankSearch(bank, source, settings)
    run = Run.open(
        out,
        command="bank search",
        settings={
            "bank": url_of(bank.path) or str(bank.path.resolve()), **source.recorded(),
            **asdict(settings), "without": list(settings.without),
        },
        fingerprints=job.fingerprints(),
        parts=0,
        outputs=("dataset", RESULTS),
        overwrite=overwrite,
    )  # fmt: skip
    with run:
        if (kept := _kept(run.path)) is not None:
            return kept
        results = job.run(threads, cluster, say)
        found = {
            "removed": results.hits.removed,
            "queries": [results.summary(query) for query in range(len(results.hits))],
        }
        with DatasetWriter(run.path / "dataset", {"default": _features()}) as writer:
            for table in _tables(results):
                writer.write(table)
            writer.write_card(_card(run, bank, found))
        run.write_results(found)
    return found


def _kept(path: Path) -> dict[str, Any] | None:
    """Return the results of a finished search; None if a file is missing or damaged."""
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


def _sentences(source: str, text: str | Sequence[str] | None) -> list[str]:
    """Return the sentences of a set, those of all its splits.

    Args:
        text: the column of the queries' texts, if it was named, which the set may have, too.
    """
    place = str(prefer_curated(source))
    splits = split_names(place, filled=True) or ["train"]
    if text is not None:
        wanted = {text} if isinstance(text, str) else set(text)
        text = text if wanted <= set(open_rows(place, splits[0])[0].column_names) else None
    return [
        sentence
        for split in splits
        for sentence in read_examples(source, text=text, need_label=False, split=split).sentences
    ]


class BankSearch:
    """One search: reads the queries and the sentences to exclude, then searches."""

    def __init__(self, bank: Bank, source: QuerySource, settings: SearchSettings) -> None:
        self.bank, self.source, self.settings = bank, source, settings
        self.queries: list[str] | Examples
        if source.task is not None:
            needed = source.task_settings["kind"] == "label-average"
            self.queries = read_examples(
                source.task, text=source.text, label=source.label, need_label=needed
            )
        elif source.queries is not None:
            self.queries = list(read_texts(source.queries, column=source.column)["text"])
        elif source.texts:
            self.queries = list(source.texts)
        else:
            raise InputError(f"no query is given: {WAYS}")
        named = source.column or source.text
        self.excluded = {name: _sentences(name, named) for name in settings.without}

    def fingerprints(self) -> dict[str, str]:
        """Return hashes of the bank, the queries, the sentences to exclude and the index."""
        content: Any = self.queries
        if isinstance(content, Examples):
            content = content.texts, content.labels and content.labels.values
        return {
            **bank_fingerprints(self.bank, index=self.settings.index),
            "queries": hash_of(content), "sentences to leave out": hash_of(self.excluded),
        }  # fmt: skip

    def run(
        self, threads: int | None, cluster: Cluster | None, say: Callable[[str], None]
    ) -> SearchResults:
        """Search the bank; `say` is called before a search that takes long."""
        queries: list[str] | Queries
        if isinstance(self.queries, Examples):
            queries = self._task_queries(self.queries)
            labels, sentences = queries.labels, queries.sentences
        else:
            queries = self.queries
            labels, sentences = [None] * len(queries), [1] * len(queries)
        comparisons = len(queries) * len(self.bank)
        if not self.settings.index and comparisons > SLOW_COMPARISONS:
            say(f"comparing {len(queries):,} queries with {len(self.bank):,} sentences")
        options = {**asdict(self.settings), "without": self.excluded or None}
        hits = self.bank.search(queries, **options, threads=threads, cluster=cluster)
        return SearchResults(hits, labels, sentences)

    def _task_queries(self, examples: Examples) -> Queries:
        source = self.source
        try:
            return task_queries(
                examples, encoder=self.bank.encode, **source.task_settings,
            )  # fmt: skip
        except InputError as error:
            raise InputError(f"{source.task}: {error}") from error


def _tables(results: SearchResults) -> Iterator[pa.Table]:
    """Yield the hits of a few queries at a time, so that not all texts are in memory at once."""

    def labelled(query: int) -> pa.Table:
        table = results.hits.table(query)
        labels = pa.array([results.labels[query]] * len(table), pa.string())
        return table.add_column(1, "label", labels)

    ends = np.cumsum(results.hits.counts)
    query = 0
    while query < len(ends):
        before = int(ends[query - 1]) if query else 0
        stop = max(query + 1, int(np.searchsorted(ends, before + _BATCH_ROWS, "right")))
        yield pa.concat_tables(labelled(number) for number in range(query, stop))
        query = stop


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
