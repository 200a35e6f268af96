"""Label retrieved sentences with a teacher's probabilities, in memory and in nested runs.

All self-training here is `retrieve`, `label_sentences`, `select`, `pseudo_labeled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.data.hashing import hash_of
from tilth.data.tokenize import WordTokenizer, learn_tokenizer
from tilth.models.classifier import fingerprint_classifier, load_classifier
from tilth.models.device import choose_precision, dtype_name
from tilth.runs import COMPARED, Progress, Run, read_run_json
from tilth.runs.backends import PartJob, PartWork, make_parts
from tilth.runs.cluster import Cluster, check_fingerprints

if TYPE_CHECKING:
    from tilth.classifiers.examples import Targets
    from tilth.models.classifier import Classifier

TOKENS, PROBABILITIES = "tokens", "probabilities"


def with_tokens(table: pa.Table, tokenizer: WordTokenizer | None) -> pa.Table:
    """Return sentences with a column `tokens` for taggers; without a tokenizer as they are."""
    if tokenizer is None:
        return table
    cut = [tokenizer.tokenize(text) for text in table["text"].to_pylist()]
    return table.append_column(TOKENS, pa.array(cut, pa.list_(pa.string())))


def label_sentences(
    table: pa.Table,
    teachers: Sequence[Classifier],
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> pa.Table:
    """Add a column `probabilities` to retrieved sentences: the mean of the teachers' probabilities.

    Args:
        table: of `retrieve`; for taggers of `with_tokens`.
        teachers: classifiers or taggers of the same labels.
    """
    how: dict[str, Any] = {"precision": precision, "progress": progress}
    mean: Any
    if TOKENS in table.column_names:
        tokens = table[TOKENS].to_pylist()
        given = [teacher.tag_probabilities(tokens, **how) for teacher in teachers]
        mean = [np.mean(each, axis=0) for each in zip(*given, strict=True)]
    else:
        texts = table["text"].to_pylist()
        mean = np.mean([teacher.probabilities(texts, **how) for teacher in teachers], axis=0)
    return table.append_column(PROBABILITIES, as_lists(mean))


def pseudo_labeled(table: pa.Table, like: LabeledExamples) -> LabeledExamples:
    """Return pseudo-labelled sentences as rows to train on.

    Args:
        table: of `label_sentences`.
        like: the training set, for its kind and labels.
    """
    given = from_lists(table[PROBABILITIES])
    if not isinstance(given, list):
        given = given.reshape(len(table), len(like.labels))  # (rows, labels)
    tokens = None if like.tokens is None else table[TOKENS].to_pylist()
    texts: list[tuple[str, ...]] = [(text,) for text in table["text"].to_pylist()]
    return LabeledExamples(like.kind, like.labels, texts, tokens, given)


def as_lists(given: Targets) -> pa.Array:
    """Return probabilities as a list for each row, of tags for each of its tokens.

    Args:
        given: (rows, labels); of tags for each row (tokens, tags).
    """
    if isinstance(given, list):
        return pa.array([row.tolist() for row in given], pa.list_(pa.list_(pa.float32())))
    flat = np.ascontiguousarray(given, np.float32)
    starts = np.arange(len(flat) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(starts, pa.array(flat.ravel()))


def from_lists(column: pa.ChunkedArray) -> Targets:
    """Return probabilities that `as_lists` made; without rows they have no width."""
    if pa.types.is_list(column.type.value_type):
        return [np.array(row, np.float32) for row in column.to_pylist()]
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found: NDArray[np.float32] = values.reshape(len(column), -1) if len(column) else values
    return found


def label_in_run(
    path: Path,
    hits: Run,
    teacher: Classifier,
    *,
    tokens: Sequence[Sequence[str]] | None,
    precision: str = "auto",
    cluster: Cluster | None = None,
    quiet: bool = False,
) -> Run:
    """Label the sentences of `retrieve_in_run`, part by part; the same call resumes.

    Part i has the probabilities of part i of the hits, and the tokens where there are any.

    Args:
        tokens: of a tagged training set; sentences are tokenised alike. None: no tagger.
        cluster: where sentences are labelled; None: in this process. Workers load the teacher by
            its name.
    """
    asked = read_run_json(hits.path)
    fingerprint = fingerprint_classifier(teacher)
    precision = dtype_name(choose_precision(precision, teacher.device))  # the same in every part
    made_of = {"teacher": fingerprint, "hits": hash_of(*map(asked.get, COMPARED))}
    run = Run.open(
        path,
        command="augment labels",
        settings={"precision": precision},
        fingerprints=made_of,
        parts=hits.parts,
    )
    tokenizer = None if tokens is None else learn_tokenizer(tokens)
    again = partial(_load_teacher, teacher.name, teacher.labels, fingerprint)
    load = again if cluster is not None and cluster.on is not None else lambda: teacher
    with run:
        if run.missing():
            job = PartJob(
                partial(_start, load, hits.as_worker(), tokenizer, precision),
                lambda _: None,  # read from the hits where it is labelled
                [hits.rows_of_part(index) for index in range(hits.parts)],
                "sentences",
            )
            make_parts(run, job, cluster, quiet=quiet)
    return run


def _load_teacher(name: str, labels: list[str], fingerprint: str) -> Classifier:
    teacher = replace(load_classifier(name), labels=labels)
    found = fingerprint_classifier(teacher)
    check_fingerprints({f"teacher {name}": found}, {f"teacher {name}": fingerprint})
    return teacher


def _start(
    load: Callable[[], Classifier], hits: Run, tokenizer: WordTokenizer | None, precision: str,
    _: Run,
) -> PartWork:  # fmt: skip
    """Return the work on the sentences of a part."""
    teacher = load()

    def work(index: int, _: None, progress: Progress) -> pa.Table:
        table = with_tokens(hits.read_part(index), tokenizer)
        table = label_sentences(table, [teacher], precision=precision, progress=progress)
        return table.select([one for one in (TOKENS, PROBABILITIES) if one in table.column_names])

    return work


def read_pseudo_labels(run: Run) -> Any:
    """Return all probabilities of a finished run, in the order of its hits."""
    parts = [from_lists(run.read_part(index)[PROBABILITIES]) for index in range(run.parts)]
    if any(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    return np.concatenate([part for part in parts if len(part)])
