"""Finds the sentences of a bank that a task is to be augmented with: distinct, none of its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.queries import Queries, task_queries
from tilth.bank.search.decontaminate import Exclusion
from tilth.errors import InputError
from tilth.runs import Progress

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.data.examples import Examples

# Of all queries together, so that memory stays flat.
_HITS_AT_ONCE = 20_000_000
_QUERIES_AT_ONCE = 256
# Queries share some of their hits: so many more are looked for at first.
_MORE = 1.5
_RANDOM = "random"
_TRAINING = "the training set's own texts"


@dataclass(frozen=True, slots=True)
class Filters:
    """Which sentences of a bank may be hits; see `Bank.search`.

    Attributes:
        min_similarity: the least cosine.
        sources: only sentences of these.
        near: whether near duplicates of sentences to be left out are left out as well.
        index: whether to ask the bank's index.
        threads: of the scan.
    """

    min_similarity: float | None = None
    sources: Sequence[str] | None = None
    near: bool = True
    index: bool = False
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Distinct sentences, the nearest of every query first.

    Attributes:
        table: query and query_label (of the nearest query that found it), similarity to it, id,
            text, source and document.
        removed: why nearer sentences were left out -> how many.
        queries: of each its name, label, sentences (how many it averages) and hits (how many of
            the table it is the nearest query of).
    """

    table: pa.Table
    removed: dict[str, int]
    queries: list[dict[str, object]] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.table)


def retrieve(
    bank: Bank,
    examples: Examples,
    *,
    kind: str = "label-average",
    count: int,
    without: Mapping[str, Sequence[str]] | None = None,
    filters: Filters | None = None,
    clusters: int = 8,
    seed: int = 0,
) -> pa.Table:
    """Return the sentences of a bank that are nearest to a task; see `find`.

    Returns:
        query, query_label, similarity, id, text, source, document: `count` rows, or fewer where
        the bank has no more.
    """
    return find(
        bank, queries_of(bank, examples, kind=kind, clusters=clusters, seed=seed),
        count=count, without=without, filters=filters,
    ).table  # fmt: skip


def queries_of(
    bank: Bank, examples: Examples, *, kind: str, clusters: int = 8, seed: int = 0
) -> Queries:
    """Return the queries of a task, of the bank's own encoder.

    Raises:
        InputError: the examples are pairs, or do not go with the kind.
    """
    if examples.kind == "pair":
        raise InputError(
            f"the examples are pairs ({' and '.join(examples.columns)}): a bank holds single "
            "sentences; name one column of texts, or generate pairs with tilth generate"
        )
    return task_queries(examples, encoder=bank.encode, kind=kind, clusters=clusters, seed=seed)


def find(
    bank: Bank,
    queries: Queries,
    *,
    count: int,
    without: Mapping[str, Sequence[str]] | None = None,
    filters: Filters | None = None,
    quiet: bool = True,
) -> Retrieved:
    """Return the sentences that are nearest to any of some queries, each once.

    All queries have the same share: first come the nearest sentences of each, then the second
    nearest. The texts that the queries were made of are never among them.

    Args:
        bank: where.
        queries: of a task.
        count: sentences wanted.
        without: name -> texts that no sentence may be, such as a test set's.
        filters: which sentences may be hits.
        quiet: no progress.

    Raises:
        InputError: a number is wrong, or no sentence is left.
    """
    if count < 1:
        raise InputError(f"count is {count}: ask for 1 sentence or more")
    filters = filters or Filters()
    exclusions = [
        Exclusion(name, texts, near=filters.near) for name, texts in (without or {}).items()
    ]
    exclusions.append(Exclusion(_TRAINING, queries.texts, near=False))
    k = min(len(bank), int(np.ceil(count * _MORE / len(queries))))
    wanted = min(count, len(bank))
    while True:
        found = _Found.of(_searched(bank, queries, k, filters, quiet=quiet), len(bank))
        removed = _removed(bank, found.ids, exclusions)
        left = np.flatnonzero(~np.any([*removed.values()], axis=0))
        if len(left) >= wanted or not found.cut or k == len(bank):
            break
        k = min(len(bank), 2 * k)
    if not len(left):
        raise InputError(_none_left(bank, filters, found, removed))
    kept = left[:wanted]
    # What stood before the last of them would have been among them.
    before = {reason: int(mask[: kept[-1] + 1].sum()) for reason, mask in removed.items()}
    return _retrieved(bank, queries, found, kept, before)


def random_sentences(
    bank: Bank,
    count: int,
    without: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    *,
    near: bool = True,
) -> pa.Table:
    """Return sentences of a bank by chance, each once: what retrieval is held against.

    Args:
        bank: where.
        count: sentences wanted; fewer come where the bank has no more.
        without: name -> texts that no sentence may be, such as a test set's.
        seed: of the draw.
        near: whether near duplicates of these are left out as well.

    Returns:
        The columns of `retrieve`; query is `random`, query_label and similarity are null.
    """
    if count < 1:
        raise InputError(f"count is {count}: ask for 1 sentence or more")
    exclusions = [Exclusion(name, texts, near=near) for name, texts in (without or {}).items()]
    random = np.random.default_rng([seed, *_RANDOM.encode()])
    drawn = min(len(bank), count + count // 10 + 100)
    while True:
        ids = random.choice(len(bank), drawn, replace=False)
        masks = _removed(bank, ids, exclusions).values()
        left = ids[~np.any([*masks], axis=0)] if exclusions else ids
        if len(left) >= count or drawn == len(bank):
            break
        drawn = min(len(bank), 2 * drawn)
    some = left[:count]
    return _table(
        bank, some, np.full(len(some), np.nan, np.float32), [_RANDOM] * len(some),
        [None] * len(some),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Found:
    """Distinct hits: the lower their best rank, the earlier; of equal ones the nearer first.

    Attributes:
        ids: in the bank. # (sentences,)
        similarity: to the nearest query of those that found it. # (sentences,)
        query: which that is. # (sentences,)
        cut: whether a query has more hits than were asked for.
    """

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32]
    query: NDArray[np.int64]
    cut: bool

    @classmethod
    def of(cls, hits: tuple[NDArray[np.int64], NDArray[np.float32]], sentences: int) -> _Found:
        ids, similarity = hits  # (queries, k)
        query, rank = np.nonzero(ids >= 0)
        own, cosine = ids[query, rank], similarity[query, rank]
        first = _firsts(own, rank, -cosine)
        order = first[np.lexsort((own[first], -cosine[first], rank[first]))]
        nearest = _firsts(own, -cosine, query)
        nearest = nearest[np.searchsorted(own[nearest], own[order])]
        cut = bool((ids[:, -1] >= 0).any()) and ids.shape[1] < sentences
        return cls(own[order], cosine[nearest], query[nearest], cut)


def _firsts(
    ids: NDArray[np.int64], first: NDArray[np.generic], then: NDArray[np.generic]
) -> NDArray[np.int64]:
    """Return where each id stands that is lowest in two orders, by ascending id."""
    order = np.lexsort((then, first, ids))
    return order[np.unique(ids[order], return_index=True)[1]]


def _searched(
    bank: Bank, queries: Queries, k: int, filters: Filters, *, quiet: bool
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the hits of all queries, some queries at a time, (queries, k)."""
    at_once = max(1, min(_QUERIES_AT_ONCE, _HITS_AT_ONCE // k))
    ids, similarity = [], []
    with Progress(len(queries), quiet=quiet, what="queries") as progress:
        for start in range(0, len(queries), at_once):
            some = queries.vectors[start : start + at_once]
            hits = bank.search(
                some, k, min_similarity=filters.min_similarity, sources=filters.sources,
                index=filters.index, threads=filters.threads,
            )  # fmt: skip
            ids.append(hits.ids)
            similarity.append(hits.similarity)
            progress.advance(len(some))
    return np.concatenate(ids), np.concatenate(similarity)


def _removed(
    bank: Bank, ids: NDArray[np.int64], exclusions: Sequence[Exclusion]
) -> dict[str, NDArray[np.bool_]]:
    """Return for each reason which sentences are left out, each for the first that applies."""
    found: dict[str, NDArray[np.bool_]] = {}
    texts = bank.texts(ids) if len(ids) else pa.array([], pa.large_string())
    gone = np.zeros(len(ids), np.bool_)
    for item in exclusions:
        for reason, mask in item.match(texts).items():
            found[reason] = mask & ~gone
            gone |= mask
    return found


def _retrieved(
    bank: Bank,
    queries: Queries,
    found: _Found,
    kept: NDArray[np.int64],
    removed: dict[str, int],
) -> Retrieved:
    query = found.query[kept]
    table = _table(
        bank, found.ids[kept], found.similarity[kept], [queries.names[place] for place in query],
        [queries.labels[place] for place in query],
    )  # fmt: skip
    hits = np.bincount(query, minlength=len(queries)).tolist()
    about = [
        {"query": name, "label": label, "sentences": sentences, "hits": own}
        for name, label, sentences, own in zip(
            queries.names, queries.labels, queries.sentences, hits, strict=True
        )
    ]
    return Retrieved(table, removed, about)


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
    bank: Bank, filters: Filters, found: _Found, removed: Mapping[str, NDArray[np.bool_]]
) -> str:
    if len(found.ids):
        counts = [f"{mask.sum():,}: {reason}" for reason, mask in removed.items() if mask.any()]
        return (
            f"{bank.path}: every near sentence was left out ({'; '.join(counts)}): take a larger "
            "bank"
        )
    if filters.min_similarity is None:
        return f"{bank.path}: no sentence was found: name other sources, or take a larger bank"
    return (
        f"{bank.path}: no sentence is near enough (similarity of {filters.min_similarity} or "
        "more): lower --min-similarity, or take a larger bank"
    )
