"""Task embeddings: what a labelled set asks a bank for, as a few vectors."""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.examples import Examples, Source, read_examples
from tilth.data.hashing import random_keys, text_hashes
from tilth.errors import InputError, TilthError
from tilth.limits import CLUSTERS, QUERY, SEED
from tilth.runs import Progress

_STARTS = 4


def cluster(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], count: int, seed: int
) -> NDArray[np.int64]:
    """Group vectors of length 1 by k-means, the best of four starts.

    The result does not depend on the number of threads.

    Args:
        vectors: to group. # (rows, dimension)
        weights: how often each counts, above 0. # (rows,)
        count: of clusters, 1 or more; as many as there are distinct vectors (to four digits)
            if those are fewer.
        seed: of the first centres, 0 to 2**32 - 1.

    Returns:
        The cluster of each row: 0 is the heaviest; of equal ones, the one whose first row comes
        first. # (rows,)
    """
    # Equal sentences padded to other lengths differ in the last digits.
    count = min(count, len(np.unique(np.round(vectors, 4), axis=0)))
    if count == 1:
        return np.zeros(len(vectors), np.int64)

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    means = KMeans(count, n_init=_STARTS, random_state=seed)
    # Threads add up in their own order, and rounding then moves vectors on the border.
    with threadpool_limits(1), warnings.catch_warnings():
        # Vectors that differ in the last digit only; what it finds is good.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = means.fit_predict(vectors, sample_weight=weights)  # (rows,)
    first, codes = np.unique(found, return_index=True, return_inverse=True)[1:]
    sums = np.bincount(codes, weights)  # (clusters,)
    places = np.empty(len(sums), np.int64)
    places[np.lexsort((first, -sums))] = np.arange(len(sums))
    ordered: NDArray[np.int64] = places[codes]
    return ordered  # (rows,)


log = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 4096  # sorted by length before, so that a block pads little


class Encodes(Protocol):
    """What an encoder must be able to do; a SentenceTransformer can."""

    def encode(self, sentences: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return one vector per sentence, (sentences, dimension)."""


Encoder: TypeAlias = Encodes | Callable[[list[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Every text of a set: distinct ones by the alphabet, and where each stands.

    In that order sums and clusters follow from what the set holds, not from how it is ordered.

    Attributes:
        texts: distinct. # (texts,)
        vectors: of length 1; zero where the encoder knows no word. # (texts, dimension)
        known: whether the vector is not zero. # (texts,)
        codes: which of `texts`, through the rows and their columns. # (occurrences,)
        rows: in which row. # (occurrences,)
    """

    texts: list[str]
    vectors: NDArray[np.float32]
    known: NDArray[np.bool_]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]


def embed(examples: Examples, encoder: Encoder) -> Embedded:
    """Encode every distinct text of a set once.

    Raises:
        TilthError: the encoder gives no finite vector, or not one per text.
    """
    every = examples.sentences
    texts = sorted(set(every))
    places = {text: place for place, text in enumerate(texts)}
    codes = np.array([places[text] for text in every], np.int64)
    rows = np.repeat(np.arange(len(examples)), len(examples.columns))
    vectors = _vectors(texts, encoder)  # (texts, dimension)
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise TilthError(
            f"the encoder gives no finite vector for {texts[int(np.argmin(finite))]!r:.200}: its "
            "weights may be broken; load another"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)  # (texts, 1)
    known = lengths[:, 0] > 0  # (texts,)
    unknown = int((~known[codes]).sum())
    if unknown:
        log.warning(
            "%d of %d sentences have no vector (the encoder knows no word of them): they are left "
            "out of the queries",
            unknown,
            len(codes),
        )
    vectors /= np.where(lengths == 0, 1, lengths)
    return Embedded(texts, vectors, known, codes, rows)


def _vectors(texts: list[str], encoder: Encoder) -> NDArray[np.float32]:
    """Return a copy of what the encoder makes of texts, (texts, dimension)."""
    encode = getattr(encoder, "encode", None)
    if encode is None:  # a function batches and reports by itself
        found = _checked(encoder(texts), len(texts))  # type: ignore[operator]
        return np.array(found, np.float32)
    order = sorted(range(len(texts)), key=lambda place: (-len(texts[place]), place))
    vectors: NDArray[np.float32] | None = None
    quiet = len(texts) <= _TEXTS_AT_ONCE
    with Progress(len(texts), quiet=quiet, what="sentences") as progress:
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            block = order[start : start + _TEXTS_AT_ONCE]
            found = encode([texts[place] for place in block], show_progress_bar=False)
            found = _checked(found, len(block))
            if vectors is None:
                vectors = np.empty((len(texts), found.shape[1]), np.float32)
            vectors[block] = found
            progress.advance(len(block))
    assert vectors is not None  # a set has texts
    return vectors


def _checked(found: Any, count: int) -> NDArray[Any]:
    vectors = np.asarray(found)
    if vectors.ndim != 2 or len(vectors) != count:
        raise TilthError(
            f"the encoder gives an array {vectors.shape} for {count} texts: it must give one "
            "vector per text, (texts, dimension)"
        )
    return vectors


_ALL = "all"
_NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class Queries:
    """Vectors to search a bank with, and what each stands for.

    Attributes:
        vectors: of length 1. # (queries, dimension)
        names: to show: `all`, the label, `label / 3` for its third largest cluster, or the
            beginning of the sentence.
        labels: the label or entity type each stands for; None where there is no one.
        sentences: how many each averages; equal ones count as often as they occur.
        rows: which rows of the set these are from, ascending.
        kind: one of `limits.QUERY`.
        texts: the distinct sentences of the set, by the alphabet.
    """

    vectors: NDArray[np.float32]
    names: list[str]
    labels: list[str | None]
    sentences: list[int]
    rows: list[NDArray[np.int64]]
    kind: str
    texts: list[str]

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class _Group:
    """Occurrences of sentences that belong together."""

    name: str
    label: str | None
    occurrences: NDArray[np.int64]


def task_queries(
    train_set: Source | Examples,
    *,
    encoder: Encoder,
    kind: str = "label-average",
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    clusters: int = 8,
    seed: int = 0,
) -> Queries:
    """Make the queries of a task from its training set.

    Both texts of a pair are sentences of its label; a row with several labels counts for each; a
    sentence with tagged tokens counts for each entity type in it. Averages take every sentence
    as often as it occurs; `per-sentence` asks once for equal ones. Sentences without a vector
    (no word known) are left out, with a warning.

    Args:
        train_set: as in `tilth.data.examples.read_examples`, or what that returned.
        encoder: that of the bank: an object with `encode`, or a function from texts to vectors.
        kind: `all-average`: one query; `label-average`: one per label or entity type;
            `per-sentence`; `clusters`: up to `clusters` per label, by k-means, or of the whole
            set where labels are numbers or missing.
        text: the column of texts, or two of pairs; default: found by name.
        label: the column of labels or tags; default: found by name.
        clusters: per label; a label with fewer distinct sentences has as many as those.
        seed: of the clusters.

    Raises:
        InputError: the set is wrong, its labels do not go with the kind, or no sentence of a
            label has a vector.
        TilthError: the encoder gives no finite vector, or not one per text.

    Reference:
        Du et al. 2020, arXiv:2010.02194, section 2.1: cosine with the average of the sentences'
        normalised vectors. Its label-average for entities is one query per entity cluster.

    Example:
        >>> import numpy as np
        >>> rows = [{"text": "rain", "label": "weather"}, {"text": "goal", "label": "sport"}]
        >>> def encode(texts):
        ...     return np.array([[text == "rain", text == "goal"] for text in texts], np.float32)
        >>> queries = task_queries(rows, encoder=encode)
        >>> queries.names, queries.vectors.tolist()
        (['sport', 'weather'], [[0.0, 1.0], [1.0, 0.0]])
    """
    QUERY.check("kind", kind)
    CLUSTERS.check("clusters", clusters)
    SEED.check("seed", seed)
    examples = _examples(train_set, text, label, need_label=kind == "label-average")
    try:
        if kind == "per-sentence":
            return _per_sentence(examples, embed(examples, encoder))
        groups = _groups(examples, kind)  # what is wrong with labels is said before encoding
        sentences = embed(examples, encoder)
        parts = [_with_vectors(group, sentences) for group in groups]
        if kind == "clusters":
            parts = [new for group in parts for new in _clustered(group, sentences, clusters, seed)]
        return _averaged(parts, sentences, kind)
    except InputError as error:
        where = f"{train_set}: " if isinstance(train_set, str | Path) else ""
        raise InputError(f"{where}{error}") from error


def _examples(
    train_set: Source | Examples,
    text: str | Sequence[str] | None,
    label: str | None,
    *,
    need_label: bool,
) -> Examples:
    if not isinstance(train_set, Examples):
        return read_examples(train_set, text=text, label=label, need_label=need_label)
    if text is not None or label is not None:
        raise InputError("the examples are read already: give text and label where they are read")
    if train_set.labels is None and need_label:
        raise InputError("the examples have no labels: take all-average or per-sentence")
    return train_set


def _groups(examples: Examples, kind: str) -> list[_Group]:
    """Return which occurrences, counted through the rows, each query or label is made from."""
    width, labels = len(examples.columns), examples.labels
    everything = [_Group(_ALL, None, np.arange(len(examples) * width))]
    if kind == "all-average":
        return everything
    if labels is None or labels.kind == "number":
        if kind == "clusters":
            return everything
        raise InputError(
            f"{examples.label_column} holds fractions such as {_fraction(examples)}, no classes: "
            "take all-average, per-sentence or clusters, or name a column of classes"
        )
    if not labels.classes:
        raise InputError(
            f"{examples.label_column} holds no tag but O: take all-average or per-sentence"
        )
    rows: defaultdict[int, list[int]] = defaultdict(list)
    for row, members in enumerate(labels.class_ids):
        for place in members:
            rows[place].append(row)
    return [
        _Group(str(name), str(name), _occurrences(rows[place], width))
        for place, name in enumerate(labels.classes)
    ]


def _fraction(examples: Examples) -> float:
    assert examples.labels is not None  # the caller saw a number
    return float(next(value for value in examples.labels.values if not value.is_integer()))


def _occurrences(rows: list[int], width: int) -> NDArray[np.int64]:
    places = np.array(rows, np.int64)[:, None] * width + np.arange(width)  # (rows, width)
    return places.ravel()  # (rows * width,)


def _with_vectors(group: _Group, sentences: Embedded) -> _Group:
    """Return a group without the sentences that have no vector."""
    kept = group.occurrences[sentences.known[sentences.codes[group.occurrences]]]
    if not len(kept):
        raise InputError(
            f"{group.name!r}: none of its {len(group.occurrences)} sentences has a vector, the "
            "encoder knows no word of them: take another encoder, or the label out"
        )
    return _Group(group.name, group.label, kept)


def _per_sentence(examples: Examples, sentences: Embedded) -> Queries:
    order = np.argsort(sentences.codes, kind="stable")
    splits = np.cumsum(np.bincount(sentences.codes))[:-1]
    places = np.split(order, splits)  # of each text its occurrences, the first first
    known = np.flatnonzero(sentences.known)
    if not len(known):
        raise InputError(
            f"none of {len(sentences.codes)} sentences has a vector, the encoder knows no word of "
            "them: take another encoder"
        )
    known = np.array(sorted(known, key=lambda code: places[code][0]))  # as the set has them
    rows = [np.unique(sentences.rows[places[code]]) for code in known]
    return Queries(
        sentences.vectors[known],
        [_shortened(sentences.texts[code]) for code in known],
        [_one_label(examples, own) for own in rows],
        [len(places[code]) for code in known],
        rows,
        "per-sentence",
        sentences.texts,
    )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 1].rstrip() + "…"


def _one_label(examples: Examples, rows: NDArray[np.int64]) -> str | None:
    """Return the label that is the only one of some rows, if there is one."""
    if examples.labels is None:
        return None
    found = {place for row in rows for place in examples.labels.class_ids[row]}
    return str(examples.labels.classes[found.pop()]) if len(found) == 1 else None


def _clustered(group: _Group, sentences: Embedded, count: int, seed: int) -> list[_Group]:
    """Return a group's clusters, the largest first."""
    codes, places, weights = np.unique(
        sentences.codes[group.occurrences], return_inverse=True, return_counts=True
    )
    own = random_keys(seed, "clusters", text_hashes(pa.array([group.name], pa.string())))
    found = cluster(
        sentences.vectors[codes], weights.astype(np.float64), count, int(own[0] % 2**32)
    )[places]  # (occurrences,)
    return [
        _Group(f"{group.name} / {number + 1}", group.label, group.occurrences[found == number])
        for number in range(int(found.max()) + 1)
    ]


def _averaged(groups: list[_Group], sentences: Embedded, kind: str) -> Queries:
    vectors = np.stack([_mean(group, sentences) for group in groups])  # (queries, dimension)
    return Queries(
        vectors.astype(np.float32),
        [group.name for group in groups],
        [group.label for group in groups],
        [len(group.occurrences) for group in groups],
        [np.unique(sentences.rows[group.occurrences]) for group in groups],
        kind,
        sentences.texts,
    )


def _mean(group: _Group, sentences: Embedded) -> NDArray[np.float64]:
    """Return the direction of a group's mean vector, (dimension,)."""
    codes, counts = np.unique(sentences.codes[group.occurrences], return_counts=True)
    total = np.einsum("t,td->d", counts.astype(np.float64), sentences.vectors[codes])
    length = np.linalg.norm(total)
    # Far below what sentences that have anything in common leave, far above rounding.
    if length < 1e-6 * counts.sum():
        raise InputError(
            f"{group.name!r}: the vectors of its {counts.sum()} sentences cancel out: take "
            "per-sentence or clusters"
        )
    mean: NDArray[np.float64] = total / length
    return mean
