"""The nearest sentences of queries: `Hits`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.quantization import Floats
from tilth.bank.store import TEXT, Ids, Store


@dataclass(frozen=True, slots=True, repr=False)
class Hits:
    """The nearest sentences of each query, nearest first.

    Attributes:
        ids: -1 after the last hit. # (queries, k)
        similarity: cosine; NaN after the last hit. # (queries, k)
        counts: hits of each query. # (queries,)
        removed: reason -> number of excluded sentences that would have been hits.
    """

    ids: Ids
    similarity: Floats
    counts: NDArray[np.int64]
    names: list[str]
    removed: dict[str, int]
    bank: Store = field(repr=False)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.names)

    def __repr__(self) -> str:
        """Say how many queries have how many hits."""
        return f"Hits(queries={len(self):,}, hits={int(self.counts.sum()):,})"

    def texts(self, query: int) -> list[str]:
        """Return the sentences of one query, nearest first."""
        found: list[str] = self.bank.rows(self.ids[query, : self.counts[query]])[TEXT].to_pylist()
        return found

    def table(self, query: int) -> pa.Table:
        """Return one query's hits: query, rank, similarity, id, text, source and document."""
        count = int(self.counts[query])
        rows = self.bank.rows(self.ids[query, :count])
        columns = {
            "query": pa.array([self.names[query]] * count, pa.string()),
            "rank": pa.array(range(1, count + 1), pa.int64()),
            "similarity": pa.array(self.similarity[query, :count], pa.float32()),
            "id": pa.array(self.ids[query, :count], pa.int64()),
        }
        return pa.table({**columns, **{name: rows[name] for name in rows.column_names}})


def best_hits(
    store: Store,
    names: Sequence[str],
    ids: Ids,
    similarities: Floats,
    k: int,
    removed: dict[str, int],
) -> Hits:
    """Return the k best candidates of each query.

    Args:
        ids: ascending apart from -1. # (queries, candidates)
        similarities: -inf for a candidate that is no hit. # (queries, candidates)
    """
    # Among equal similarities the lowest ids come first.
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]  # (queries, k or fewer)
    ids = np.take_along_axis(ids, order, axis=1)
    similarities = np.take_along_axis(similarities, order, axis=1)
    is_hit = np.isfinite(similarities)
    kept = np.full((len(ids), k), -1, np.int64)
    cosines = np.full((len(ids), k), np.nan, np.float32)
    kept[:, : order.shape[1]] = np.where(is_hit, ids, -1)
    cosines[:, : order.shape[1]] = np.where(is_hit, similarities, np.nan)
    return Hits(kept, cosines, is_hit.sum(axis=1), list(names), removed, store)
