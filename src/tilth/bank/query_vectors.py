"""What a search is asked, checked at the door: queries, numbers, sources."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilth.bank.quantization import Floats
from tilth.bank.queries import Queries
from tilth.bank.store import SOURCE, OpenShard
from tilth.errors import InputError
from tilth.limits import OVERSAMPLE, SIMILARITY

if TYPE_CHECKING:
    from tilth.bank.bank import Bank

Asked: TypeAlias = "Queries | Floats | Sequence[str]"
_NAMED_SOURCES = 5


def query_vectors(bank: Bank, queries: Asked) -> tuple[Floats, list[str]]:
    """Return the unit vectors of queries, and their names.

    Raises:
        InputError: there is none, or one has no vector or another number of dimensions.
    """
    if isinstance(queries, Queries):
        vectors, names = queries.vectors, list(queries.names)
    elif isinstance(queries, np.ndarray):
        vectors = np.atleast_2d(np.asarray(queries, np.float32))
        names = [f"query {number}" for number in range(len(vectors))]
    else:
        names = [queries] if isinstance(queries, str) else list(queries)
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise InputError(f"query {name!r:.60} is empty or no text: give sentences")
        vectors = bank.encode(names)
    if not len(vectors):
        raise InputError("no query is given: give at least one")
    if vectors.ndim != 2 or vectors.shape[1] != bank.manifest.dimension:
        raise InputError(
            f"the queries have shape {vectors.shape}: {bank.path} needs (queries, "
            f"{bank.manifest.dimension}), from its own encoder {bank.manifest.encoder!r}"
        )
    if not np.isfinite(vectors).all():
        raise InputError("a query has a value that is not finite: encode it again")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not lengths.all():
        name = names[int(np.argmin(lengths))]
        if isinstance(queries, np.ndarray):
            raise InputError(f"{name} is the zero vector, which is near nothing: leave it out")
        raise InputError(
            f"query {name!r:.80} has the zero vector: the encoder knows no word of it; write "
            "it otherwise"
        )
    return (vectors / lengths).astype(np.float32), names


def own_texts(queries: Asked) -> Sequence[str]:
    """Return the texts that queries are, or were made of.

    Raises:
        InputError: they are bare vectors.
    """
    if isinstance(queries, Queries):
        return queries.texts
    if isinstance(queries, np.ndarray):
        raise InputError("own=False needs the queries' texts: give texts or task queries")
    return [queries] if isinstance(queries, str) else queries


def check_numbers(
    sentences: int, k: int, min_similarity: float | None, oversample: float | None
) -> None:
    """Refuse numbers that mean nothing.

    Raises:
        InputError: which, and what to give.
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise InputError(f"k is {k!r}: give a whole number")
    if k < 1:
        raise InputError(f"k is {k}: ask for at least 1 hit")
    if k > sentences:
        raise InputError(f"k is {k:,}, the bank holds {sentences:,} sentences: ask for fewer")
    if min_similarity is not None:
        SIMILARITY.check("min_similarity", min_similarity)
    if oversample is not None:
        OVERSAMPLE.check("oversample", oversample)


def choose(bank: Bank, sources: Sequence[str] | None) -> Choice | None:
    """Return what chooses the sentences of some sources; None for all.

    Args:
        bank: whose sources they are.
        sources: names, patterns with `*`, or folders.

    Raises:
        InputError: a name is of no source.
    """
    if sources is None:
        return None
    if isinstance(sources, str) or not len(sources):
        raise InputError(f"sources is {sources!r}: give a list of names")
    names = list(bank.manifest.sources)
    for pattern in sources:
        if not any(_is_of(name, pattern) for name in names):
            some = ", ".join(names[:_NAMED_SOURCES])
            more = f" and {len(names) - _NAMED_SOURCES} more" * (len(names) > _NAMED_SOURCES)
            raise InputError(f"{bank.path}: no source {pattern!r}: there are {some}{more}")
    return Choice(tuple(sources))


@dataclass(frozen=True, slots=True)
class Choice:
    """Chooses the sentences of some sources."""

    patterns: tuple[str, ...]

    def __call__(self, shard: OpenShard) -> NDArray[np.bool_] | None:
        """Return which sentences of a shard are meant; None: all."""
        masks = []
        for chunk in shard.table[SOURCE].chunks:
            wanted = [
                any(_is_of(name, pattern) for pattern in self.patterns)
                for name in chunk.dictionary.to_pylist()
            ]
            masks.append(np.array(wanted, np.bool_)[chunk.indices.to_numpy()])
        mask = np.concatenate(masks) if masks else np.zeros(0, np.bool_)
        return None if mask.all() else mask


def _is_of(name: str, pattern: str) -> bool:
    """Say whether a source is meant: by name, by pattern, or by a folder it lies in."""
    if name == pattern or fnmatch.fnmatchcase(name, pattern):
        return True
    return name.startswith(pattern.rstrip("/") + "/")
