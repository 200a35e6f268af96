"""Hashes, ids and pseudo-random keys of rows, which depend on their content alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasets import Dataset

_SLICE = 1 << 16


def text_hashes(texts: pa.Array) -> NDArray[np.uint64]:
    """Return 64 bits of blake2b of each text, the same on every machine."""  # (texts,)
    found = [np.empty(0, np.uint64)]
    for start in range(0, len(texts), _SLICE):
        raw = texts.slice(start, _SLICE).cast(pa.large_binary()).to_pylist()
        digests = b"".join(blake2b(text, digest_size=8).digest() for text in raw)
        found.append(np.frombuffer(digests, ">u8").astype(np.uint64))
    return np.concatenate(found)


def random_keys(seed: int, purpose: str, *columns: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each row, which follows from its hashes in `columns`.

    Numbers for different purposes are independent.
    """
    start = int.from_bytes(blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest(), "big")
    state = np.full(len(columns[0]), start, np.uint64)
    for column in columns:
        state = _scramble(state ^ column)
    return state  # (rows,)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the output function of splitmix64, a bijection in which every bit moves every bit."""
    values = values + np.uint64(0x9E3779B97F4A7C15)  # arrays wrap around silently, as wanted
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    scrambled: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return scrambled


def group_ids(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a number for each row; rows equal in all columns (codes from 0) share it."""
    ids = columns[0]
    for column in columns[1:]:
        # Renumbered after every column: products of two counts of rows fit in 64 bits.
        ids = np.unique(ids * (column.max(initial=0) + 1) + column, return_inverse=True)[1]
    return ids  # (rows,)


def rank_in_group(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many earlier rows have the same id as each row."""
    order = np.argsort(ids, kind="stable")  # within a group, rows stay in their order
    ordered = ids[order]
    new = np.ones(len(ids), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    start = np.maximum.accumulate(np.where(new, np.arange(len(ids)), 0))
    places = np.empty(len(ids), np.int64)
    places[order] = np.arange(len(ids)) - start
    return places  # (rows,)


def text_id(text: str) -> str:
    """Return the id of a source text: 16 hex digits of its blake2b hash.

    Example:
        >>> text_id("A kite hangs in the old oak.")
        'fbf1b677074e68b2'
    """
    return blake2b(text.encode("utf-8"), digest_size=8).hexdigest()


def hash_of(*values: Any) -> str:
    """Return 16 hex digits over JSON values."""
    text = json.dumps(values, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def fingerprint(dataset: Dataset, columns: Sequence[str]) -> str:
    """Return a hash of the values in some columns; the order of rows counts, storage does not."""
    hashed = blake2b(digest_size=16)
    for batch in dataset.select_columns(list(columns)).with_format(None).iter(batch_size=10_000):
        rows = zip(*(batch[name] for name in columns), strict=True)
        text = "\n".join(json.dumps(row, ensure_ascii=True, default=str) for row in rows)
        hashed.update(text.encode() + b"\n")
    return hashed.hexdigest()
