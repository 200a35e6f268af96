"""Make query vectors from texts, or from a labelled set by averages, sentences or clusters."""

from __future__ import annotations

import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.quantization import Floats
from tilth.data.examples import Examples, Source, read_examples
from tilth.data.hashing import random_keys, text_hashes
from tilth.errors import InputError, TilthError
from tilth.limits import CLUSTERS, QUERY, SEED
from tilth.models.names import loaded

log = logging.getLogger(__name__)

_STARTS = 4
_NAME_CHARS = 80
MANY_TEXTS = 4096  # from which on encoding shows its progress


class Encodes(Protocol):
    """An object that encodes sentences, such as a SentenceTransformer."""

    def encode(self, sentences: list[str], /, *, show_progress_bar: bool) -> Any:
        """Return one vector per sentence, (sentences, dimension)."""


SentenceEncoder: TypeAlias = Encodes | Callable[[list[str]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Queries:
    """Query vectors with their names, labels and source rows.

    Attributes:
        vectors: unit vectors. # (queries, dimension)
        names: `all`, the label, `label / 3` for its third largest cluster, or the start of the
            sentence.
        labels: label or entity type of each query; None without a single one.
        sentences: sentences that each query averages, duplicates included.
        rows: ascending rows of the set that each query averages.
        texts: distinct sentences of the set, in alphabetical order.
    """

    vectors: NDArray[np.float32] = field(repr=False)
    names: list[str]
    labels: list[str | None]
    sentences: list[int]
    rows: list[NDArray[np.int64]] = field(repr=False)
    texts: list[str] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.names)


AnyQueries: TypeAlias = "Queries | Floats | Sequence[str]"


def query_vectors(
    queries: AnyQueries, encode: Callable[[list[str]], Floats], dimension: int
) -> tuple[Floats, list[str]]:
    """Return the unit vectors of queries, and their names."""
    if isinstance(queries, Queries):
        vectors, names = queries.vectors, list(queries.names)
    elif _are_vectors(queries):
        with np.errstate(over="ignore"):  # refused below
            vectors = np.atleast_2d(np.asarray(queries, np.float32))
        names = [f"query {number}" for number in range(len(vectors))]
    else:
        names = query_texts(queries)
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise InputError(
                    f"query {name!r:.60} is empty or no text: give sentences, or an array of "
                    "vectors"
                )
            check_characters(f"query {name!r:.60}", name)
        vectors = encode(names)
    if not len(vectors):
        raise InputError("no query is given: give at least one")
    if vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InputError(
            f"the queries have shape {vectors.shape}: the bank needs (queries, {dimension}), from "
            "its own encoder"
        )
    if not np.isfinite(vectors).all():
        raise InputError("a query has a value that is not finite: encode it again")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not lengths.all():
        zero = np.flatnonzero(lengths == 0).tolist()
        if _are_vectors(queries):
            raise InputError(
                f"{names[zero[0]]} is the zero vector, which is near nothing: leave it out"
            )
        raise InputError(
            f"query {names[zero[0]]!r:.80} has the zero vector: the encoder knows no word of it"
            f"{f', nor of {len(zero) - 1} more of {len(names)}' if zero[1:] else ''}; write it "
            "otherwise, or leave it out"
        )
    return (vectors / lengths).astype(np.float32), names


def check_characters(what: str, text: str) -> None:
    """Refuse a text that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds half a character: mend it") from error


def _are_vectors(queries: AnyQueries) -> TypeGuard[Floats]:
    """Tell vectors from texts, which may stand in an array, too."""
    return isinstance(queries, np.ndarray) and not isinstance(next(queries.flat, ""), str)


def query_texts(queries: AnyQueries) -> list[str]:
    """Return the texts of queries, or those that task queries average."""
    if isinstance(queries, Queries):
        return list(queries.texts)
    if _are_vectors(queries):
        raise InputError("own=False needs the queries' texts: give texts or task queries")
    if isinstance(queries, np.ndarray):
        queries = queries.ravel().tolist()
    if not isinstance(queries, Iterable):
        raise InputError(
            f"the queries are of type {type(queries).__name__}: give texts, vectors or task queries"
        )
    return [queries] if isinstance(queries, str) else list(queries)


def task_queries(
    train_set: Source | Examples,
    *,
    encoder: SentenceEncoder | str | Path,
    kind: str = "label-average",
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    clusters: int = 8,
    seed: int = 0,
) -> Queries:
    """Make the queries of a task from its training set.

    Both texts of a pair, all labels of a row and all entity types of a sentence count. Averages
    weight sentences by frequency; `per-sentence` takes distinct ones. Sentences without a vector
    (no word known) are left out with a warning.

    Args:
        train_set: a source or examples from `tilth.data.examples.read_examples`.
        encoder: the bank's encoder, the name of one that `load_encoder` knows, or a function from
            texts to vectors.
        kind: `all-average` (one query), `label-average` (one per label or entity type),
            `per-sentence`, or `clusters` (up to `clusters` per label by k-means, or of the whole
            set where labels are numbers or missing).
        text: column of texts, or two columns of pairs; None: found by name.
        label: column of labels or tags; None: found by name.
        clusters: clusters per label, at most the number of its distinct sentences.

    Raises:
        InputError: the set is invalid, its labels do not suit the kind, or no sentence of a label
            has a vector.
        TilthError: the encoder returns a non-finite vector, or not one vector per text.

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
    encode: SentenceEncoder = loaded(
        encoder, "encoder", "tilth.models.encoder:load_encoder", "encode", "__call__"
    )
    examples = _examples(train_set, text, label, need_label=kind == "label-average")
    try:
        if kind == "per-sentence":
            return _per_sentence(examples, _encode(examples, encode))
        groups = _groups(examples, kind)  # wrong labels are reported before encoding
        encoded = _encode(examples, encode)
        groups = [_with_vectors(group, encoded) for group in groups]
        if kind == "clusters":
            groups = [new for group in groups for new in _clustered(group, encoded, clusters, seed)]
        return Queries(
            np.stack([_mean(group, encoded) for group in groups]).astype(np.float32),
            [group.name for group in groups],
            [group.label for group in groups],
            [len(group.occurrences) for group in groups],
            [np.unique(encoded.rows[group.occurrences]) for group in groups],
            encoded.texts,
        )
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


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The encoded distinct texts of a set, with their occurrences.

    Texts are in alphabetical order: sums and clusters do not depend on the order of the rows.

    Attributes:
        vectors: unit vectors; zero where the encoder knows no word. # (texts, dimension)
        known: whether the vector is not zero. # (texts,)
        codes: index in `texts`, by row, then column. # (occurrences,)
        rows: row of each occurrence. # (occurrences,)
    """

    texts: list[str]
    vectors: NDArray[np.float32]
    known: NDArray[np.bool_]
    codes: NDArray[np.int64]
    rows: NDArray[np.int64]


def _encode(examples: Examples, encoder: SentenceEncoder) -> _Encoded:
    """Encode every distinct text of a set once."""
    every = examples.sentences
    texts = sorted(set(every))
    places = {text: place for place, text in enumerate(texts)}
    codes = np.array([places[text] for text in every], np.int64)
    rows = np.repeat(np.arange(len(examples)), len(examples.columns))
    encode: Any = getattr(encoder, "encode", None)
    if encode is None:  # a function batches and reports by itself
        found = encoder(texts)  # type: ignore[operator]
    else:
        found = encode(texts, show_progress_bar=len(texts) > MANY_TEXTS)
    vectors = np.array(found, np.float32)  # a copy, (texts, dimension)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise TilthError(
            f"the encoder gives an array {vectors.shape} for {len(texts)} texts: it must give one "
            "vector per text, (texts, dimension)"
        )
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
    return _Encoded(texts, vectors, known, codes, rows)


@dataclass(frozen=True, slots=True)
class _Group:
    """The sentences of one query, as indices of occurrences."""

    name: str
    label: str | None
    occurrences: NDArray[np.int64]


def _groups(examples: Examples, kind: str) -> list[_Group]:
    """Return the sentences of each query or label."""
    width, labels = len(examples.columns), examples.labels
    everything = [_Group("all", None, np.arange(len(examples) * width))]
    if kind == "all-average":
        return everything
    if labels is None or labels.kind == "number":
        if kind == "clusters":
            return everything
        assert labels is not None  # label-average needs labels
        fraction = float(next(value for value in labels.values if not value.is_integer()))
        raise InputError(
            f"{examples.label_column} holds fractions such as {fraction}, no classes: "
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
    groups = []
    for place, name in enumerate(labels.classes):
        occurrences = np.array(rows[place], np.int64)[:, None] * width + np.arange(width)
        groups.append(_Group(str(name), str(name), occurrences.ravel()))  # (rows * width,)
    return groups


def _with_vectors(group: _Group, encoded: _Encoded) -> _Group:
    """Return a group without the sentences that have no vector."""
    kept = group.occurrences[encoded.known[encoded.codes[group.occurrences]]]
    if not len(kept):
        raise InputError(
            f"{group.name!r}: none of its {len(group.occurrences)} sentences has a vector, the "
            "encoder knows no word of them: take another encoder, or the label out"
        )
    return replace(group, occurrences=kept)


def _per_sentence(examples: Examples, encoded: _Encoded) -> Queries:
    order = np.argsort(encoded.codes, kind="stable")
    splits = np.cumsum(np.bincount(encoded.codes))[:-1]
    places = np.split(order, splits)  # of each text its occurrences, the first first
    known = np.flatnonzero(encoded.known)
    if not len(known):
        raise InputError(
            f"none of {len(encoded.codes)} sentences has a vector, the encoder knows no word of "
            "them: take another encoder"
        )
    known = np.array(sorted(known, key=lambda code: places[code][0]))  # as the set has them
    rows = [np.unique(encoded.rows[places[code]]) for code in known]
    return Queries(
        encoded.vectors[known],
        [_shortened(encoded.texts[code]) for code in known],
        [_only_label(examples, own) for own in rows],
        [len(places[code]) for code in known],
        rows,
        encoded.texts,
    )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _NAME_CHARS else text[: _NAME_CHARS - 1].rstrip() + "…"


def _only_label(examples: Examples, rows: NDArray[np.int64]) -> str | None:
    """Return the single label that rows share, or None."""
    if examples.labels is None:
        return None
    found = {place for row in rows for place in examples.labels.class_ids[row]}
    return str(examples.labels.classes[found.pop()]) if len(found) == 1 else None


def _clustered(group: _Group, encoded: _Encoded, count: int, seed: int) -> list[_Group]:
    """Return a group's clusters, the largest first."""
    codes, places, weights = np.unique(
        encoded.codes[group.occurrences], return_inverse=True, return_counts=True
    )
    own = random_keys(seed, "clusters", text_hashes(pa.array([group.name], pa.string())))
    found = cluster(encoded.vectors[codes], weights.astype(np.float64), count, int(own[0] % 2**32))[
        places
    ]  # (occurrences,)
    return [
        _Group(f"{group.name} / {number + 1}", group.label, group.occurrences[found == number])
        for number in range(int(found.max()) + 1)
    ]


def cluster(
    vectors: NDArray[np.float32], weights: NDArray[np.float64], count: int, seed: int
) -> NDArray[np.int64]:
    """Cluster unit vectors by k-means, the best of four starts.

    The result does not depend on the number of threads. Cluster 0 is the heaviest; ties go by
    first row. Fewer distinct vectors (to four digits) than `count` give fewer clusters.

    Args:
        vectors: unit vectors. # (rows, dimension)
        weights: above 0. # (rows,)
        seed: 0 to 2**32 - 1.

    Returns:
        Cluster of each row. # (rows,)
    """
    # Equal sentences padded to other lengths differ in the last digits.
    count = min(count, len(np.unique(np.round(vectors, 4), axis=0)))
    if count == 1:
        return np.zeros(len(vectors), np.int64)

    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    means = KMeans(count, n_init=_STARTS, random_state=seed)
    # The order of sums depends on threads, and rounding then moves vectors on the border.
    with threadpool_limits(1), warnings.catch_warnings():
        # Raised for vectors that differ only in the last digit; the result is valid.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = means.fit_predict(vectors, sample_weight=weights)  # (rows,)
    first, codes = np.unique(found, return_index=True, return_inverse=True)[1:]
    sums = np.bincount(codes, weights)  # (clusters,)
    places = np.empty(len(sums), np.int64)
    places[np.lexsort((first, -sums))] = np.arange(len(sums))
    ordered: NDArray[np.int64] = places[codes]
    return ordered  # (rows,)


def _mean(group: _Group, encoded: _Encoded) -> NDArray[np.float64]:
    """Return the direction of a group's mean vector, (dimension,)."""
    codes, counts = np.unique(encoded.codes[group.occurrences], return_counts=True)
    total = np.einsum("t,td->d", counts.astype(np.float64), encoded.vectors[codes])
    length = np.linalg.norm(total)
    # Far below the mean of related sentences, far above rounding.
    if length < 1e-6 * counts.sum():
        raise InputError(
            f"{group.name!r}: the vectors of its {counts.sum()} sentences cancel out: take "
            "per-sentence or clusters"
        )
    mean: NDArray[np.float64] = total / length
    return mean
