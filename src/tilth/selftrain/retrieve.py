"""Retrieves the sentences of a bank that are nearest to a task, without its held-out texts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.queries import Queries, task_queries
from tilth.bank.search.decontaminate import Exclusion, find_excluded
from tilth.data.hashing import hash_of
from tilth.errors import InputError
from tilth.runs import RESULTS, Progress, Run, finished_results, read_results
from tilth.runs.cluster import Cluster
from tilth.selftrain.settings import Augmentation

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.data.examples import Examples

log = logging.getLogger(__name__)

# Sentences of a part: some seconds of labelling, which is what a stopped run loses.
PART = 4096
_FILTERS = ("min_similarity", "sources", "near", "index")
_ABOUT = {"sentences": int, "left_out": dict, "queries": list}  # keys of results.json
_HITS_AT_ONCE = 20_000_000  # of one search: 240 MB
_HITS_KEPT = 4_000_000  # of several searches, until one of each sentence is kept: 130 MB
_QUERIES_AT_ONCE = 256
# Queries share some of their hits: so many more are searched at first.
_MORE = 1.5
SLOW_COMPARISONS = 3e9  # comparisons of a query with a sentence that take some seconds
_RANDOM = "random"
_TRAINING = "the training set's own texts"


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Hold distinct sentences, the nearest of every query first.

    Attributes:
        table: query and query_label (of the nearest query that found it), similarity to it, id,
            text, source and document.
        excluded: reason -> sentences excluded from the result.
        queries: name, label, sentences (how many it averages) and hits (rows of the table of which
            it is the nearest query) of each.
    """

    table: pa.Table
    excluded: dict[str, int]
    queries: list[dict[str, object]] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.table)


def retrieve(
    bank: Bank,
    examples: Examples,
    count: int,
    how: Augmentation | None = None,
    *,
    exclude: Mapping[str, Sequence[str]] | None = None,
    cluster: Cluster | None = None,
    quiet: bool = True,
) -> Retrieved:
    """Return the sentences of a bank that are nearest to any query of a task, each once.

    All queries have the same share: the nearest sentence of each comes first, then the second
    nearest. The texts that the queries were made from are excluded.

    Args:
        bank: its encoder makes the queries.
        examples: single texts or tokens.
        count: sentences wanted; fewer come where the bank has no more.
        how: queries and filters; None: the nearest to each label's average.
        exclude: name -> texts that are not retrieved, such as a test set's.
        cluster: where the bank is scanned; None: in this process, where an index is searched.
        quiet: show no progress; a short search shows none either.
    """
    how = how or Augmentation()
    _check_count(count)
    if examples.kind == "pair":
        raise InputError(
            f"the examples are pairs ({' and '.join(examples.columns)}): a bank holds single "
            "sentences; name one column of texts, or generate pairs with tilth generate"
        )
    queries = task_queries(
        examples, encoder=bank.encode, kind=how.query, clusters=how.clusters, seed=how.seed
    )
    quiet = quiet or how.index or len(queries) * len(bank) < SLOW_COMPARISONS
    exclusions = [
        Exclusion(name, texts, near=how.near, language=bank.language)
        for name, texts in (exclude or {}).items()
    ]
    exclusions.append(Exclusion(_TRAINING, queries.texts, near=False, language=bank.language))
    k = min(len(bank), int(np.ceil(count * _MORE / len(queries))))
    wanted = min(count, len(bank))
    with bank.on_cluster(None if how.index else cluster):
        while True:
            found = _search(bank, queries, k, how, quiet=quiet)
            excluded = find_excluded(bank, found.ids, exclusions)
            left = np.flatnonzero(~np.any([*excluded.values()], axis=0))
            is_all = not found.cut or len(bank) in (k, len(found.ids))
            if is_all or len(left) >= wanted:
                break
            k = min(len(bank), 2 * k)
    if not len(left):
        raise InputError(_none_left(bank, how, found, excluded))
    kept = left[:wanted]
    query = found.query[kept]
    table = _table(
        bank, found.ids[kept], found.similarity[kept], [queries.names[place] for place in query],
        [queries.labels[place] for place in query],
    )  # fmt: skip
    hits = np.bincount(query, minlength=len(queries)).tolist()
    columns = (queries.names, queries.labels, queries.sentences, hits)
    about = [
        dict(zip(("query", "label", "sentences", "hits"), one, strict=True))
        for one in zip(*columns, strict=True)
    ]
    # Excluded sentences that rank before the last kept one would have been among them.
    before = {reason: int(mask[: kept[-1] + 1].sum()) for reason, mask in excluded.items()}
    return Retrieved(table, before, about)


def retrieve_in_run(
    path: Path,
    bank: Bank,
    examples: Examples,
    count: int,
    how: Augmentation,
    *,
    exclude: Mapping[str, Sequence[str]],
    cluster: Cluster | None = None,
    quiet: bool = False,
) -> Run:
    """Retrieve sentences into the parts of a run; the same call resumes, or opens them.

    Parts after the last sentence are empty; results.json holds the queries and the number of
    excluded sentences.
    """
    filters = {name: getattr(how, name) for name in _FILTERS}
    run = Run.open(
        path,
        command="augment hits",
        settings={"kind": how.query, "count": count, "clusters": how.clusters, "seed": how.seed,
                  "part": PART, **filters},
        fingerprints={
            **bank_fingerprints(bank, index=how.index),
            "training set": hash_of(examples.texts, examples.labels and examples.labels.values),
            "texts to leave out": hash_of(dict(exclude)),
        },
        parts=-(-count // PART),
        outputs=(RESULTS,),
    )  # fmt: skip
    with run:
        if run.missing() or read_results(run.path, _ABOUT) is None:
            found = retrieve(
                bank, examples, count, how, exclude=exclude, cluster=cluster, quiet=quiet
            )
            for index in run.missing():
                run.write_part(index, found.table.slice(index * PART, PART).combine_chunks())
            about = {
                "sentences": len(found), "left_out": found.excluded, "queries": found.queries
            }  # fmt: skip
            run.write_results(about)
    sentences = results_of(run)["sentences"]
    if sentences < count:
        log.warning(
            "%s sentences were found, %s were wanted: the bank has no more that are near enough "
            "and not left out", f"{sentences:,}", f"{count:,}",
        )  # fmt: skip
    return run


def results_of(run: Run) -> dict[str, Any]:
    """Return the results.json of a finished run of `retrieve_in_run`."""
    return finished_results(run.path, _ABOUT)


def read_columns(run: Run, names: Sequence[str]) -> pa.Table:
    """Return some columns of all parts of a finished run."""
    parts = [run.read_part(index).select(list(names)) for index in range(run.parts)]
    return pa.concat_tables(parts)


def bank_fingerprints(bank: Bank, *, index: bool) -> dict[str, str]:
    """Return hashes of what a bank holds, and of its index if that is searched."""
    found = {"bank": hash_of(bank.manifest.fingerprint, [s.files for s in bank.manifest.shards])}
    return found | ({"index": bank.index.info.digest} if index else {})


def random_sentences(
    bank: Bank, count: int, exclude: Mapping[str, Sequence[str]] | None = None, seed: int = 0
) -> pa.Table:
    """Return random distinct sentences of a bank: the baseline of retrieval.

    The columns are those of `retrieve`; query is `random`, query_label and similarity are null.

    Args:
        count: sentences wanted; fewer come where the bank has no more.
        exclude: name -> texts that are not drawn, nor near duplicates, such as a test set's.
    """
    _check_count(count)
    exclusions = [
        Exclusion(name, texts, language=bank.language) for name, texts in (exclude or {}).items()
    ]
    random = np.random.default_rng([seed, *_RANDOM.encode()])
    drawn = min(len(bank), count + count // 10 + 100)
    while True:
        ids = random.choice(len(bank), drawn, replace=False)
        masks = find_excluded(bank, ids, exclusions).values()
        left = ids[~np.any([*masks], axis=0)] if exclusions else ids
        if len(left) >= count or drawn == len(bank):
            break
        drawn = min(len(bank), 2 * drawn)
    some = left[:count]
    unknown = np.full(len(some), np.nan, np.float32)
    return _table(bank, some, unknown, [_RANDOM] * len(some), [None] * len(some))


def _check_count(count: int) -> None:
    if count < 1:
        raise InputError(f"count is {count}: ask for 1 sentence or more")


@dataclass(frozen=True, slots=True)
class _Hits:
    """Distinct hits, ordered by best rank, then by their similarity to the query of that rank."""

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32]
    query: NDArray[np.int64]
    cut: bool


def _firsts(
    ids: NDArray[np.int64], first: NDArray[np.generic], then: NDArray[np.generic]
) -> NDArray[np.int64]:
    """Return the index of each id's occurrence that is lowest in two orders, by ascending id."""
    order = np.lexsort((then, first, ids))
    return order[np.unique(ids[order], return_index=True)[1]]


def _search(bank: Bank, queries: Queries, k: int, how: Augmentation, *, quiet: bool) -> _Hits:
    """Return the sentences among the k nearest of any query; memory holds some searches' hits."""
    at_once = max(1, min(_QUERIES_AT_ONCE, _HITS_AT_ONCE // k))
    # Of hits: id, best rank, similarity there, greatest similarity, and the query of that.
    found: list[list[NDArray[Any]]] = []
    cut = False
    with Progress(len(queries), quiet=quiet, what="queries") as progress:
        for start in range(0, len(queries), at_once):
            some = queries.vectors[start : start + at_once]
            hits = bank.search(
                some, k, min_similarity=how.min_similarity, sources=how.sources, index=how.index
            )
            cut |= k < len(bank) and bool((hits.ids[:, -1] >= 0).any())
            query, rank = np.nonzero(hits.ids >= 0)
            cosine = hits.similarity[query, rank]
            found.append([hits.ids[query, rank], rank, cosine, cosine, query + start])
            if sum(len(one[0]) for one in found[1:]) > max(_HITS_KEPT, len(found[0][0])):
                found = [_best_of(found)]
            progress.advance(len(some))
    ids, rank, at_rank, cosine, query = _best_of(found)
    order = np.lexsort((ids, -at_rank, rank))
    return _Hits(ids[order], cosine[order], query[order], cut)


def _best_of(hits: Sequence[list[NDArray[Any]]]) -> list[NDArray[Any]]:
    """Reduce ids, ranks, similarities there, similarities and queries to one of each id."""
    ids, rank, at_rank, cosine, query = map(np.concatenate, zip(*hits, strict=True))
    first, nearest = _firsts(ids, rank, -at_rank), _firsts(ids, -cosine, query)
    return [ids[first], rank[first], at_rank[first], cosine[nearest], query[nearest]]


def _table(
    bank: Bank,
    ids: NDArray[np.int64],
    similarity: NDArray[np.float32],
    names: list[str],
    labels: Sequence[str | None],
) -> pa.Table:
    rows = bank.rows(ids)
    columns = {
        "query": pa.array(names, pa.string()),
        "query_label": pa.array(labels, pa.string()),
        "similarity": pa.array(similarity, pa.float32(), mask=np.isnan(similarity)),
        "id": pa.array(ids, pa.int64()),
    }
    return pa.table({**columns, **{name: rows[name] for name in rows.column_names}})


def _none_left(
    bank: Bank, how: Augmentation, found: _Hits, excluded: Mapping[str, NDArray[np.bool_]]
) -> str:
    if len(found.ids):
        counts = [f"{mask.sum():,}: {reason}" for reason, mask in excluded.items() if mask.any()]
        return (
            f"{bank.path}: every near sentence was left out ({'; '.join(counts)}): take a larger "
            "bank"
        )
    if how.min_similarity is None:
        return f"{bank.path}: no sentence was found: name other sources, or take a larger bank"
    return (
        f"{bank.path}: no sentence is near enough (similarity of {how.min_similarity} or "
        "more): lower --min-similarity, or take a larger bank"
    )
