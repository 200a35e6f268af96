"""Two nested runs: a task's sentences from a bank, and what a teacher says of each."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import Rows
from tilth.errors import InputError
from tilth.runs import COMPARED, RESULTS, Progress, Run, complete, read_results, read_run_json
from tilth.selftrain.retrieve import Filters, Retrieved, find, queries_of
from tilth.selftrain.tokenize import Words

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.classifiers.examples import Targets
    from tilth.data.examples import Examples
    from tilth.models.classifier import Classifier
    from tilth.runs import Progress

log = logging.getLogger(__name__)

# Sentences of a part: some seconds of labelling, which is what a stopped run loses.
PART = 4096
TOKENS, PROBABILITIES = "tokens", "probabilities"
_ABOUT = {"sentences": int, "left_out": dict, "queries": list}  # what results.json holds
_MANY = 3e9  # comparisons of a query with a sentence that take some seconds


def retrieve_to_run(
    path: Path,
    bank: Bank,
    examples: Examples,
    *,
    kind: str,
    count: int,
    without: Mapping[str, Sequence[str]],
    filters: Filters,
    clusters: int,
    seed: int,
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Retrieve a task's sentences into a run's parts; the same call goes on, or reads them.

    Args:
        path: the run folder.
        bank: where.
        examples: the task.
        kind: of its queries; see `tilth.bank.task_queries`.
        count: sentences wanted.
        without: name -> texts that no sentence may be.
        filters: which sentences may be hits.
        clusters: see `tilth.bank.task_queries`.
        seed: of the clusters.
        overwrite: begin the run anew.
        quiet: no progress.

    Returns:
        The run: its parts hold the sentences, those after the last are empty; results.json what
        was asked and left out.

    Raises:
        InputError: see `find`.
        TilthError: the folder cannot be written, or the bank is damaged.
    """
    run = Run.open(
        path,
        command="augment hits",
        settings={"kind": kind, "count": count, "clusters": clusters, "seed": seed,
                  "part": PART, **_settings(filters)},
        fingerprints={
            **bank_fingerprints(bank, index=filters.index),
            "training set": _hash(examples.texts, examples.labels and examples.labels.values),
            "texts to leave out": _hash(dict(without)),
        },
        parts=-(-count // PART),
        outputs=(RESULTS,),
        overwrite=overwrite,
    )  # fmt: skip
    with run:
        if run.missing() or read_results(run.path, _ABOUT) is None:
            queries = queries_of(bank, examples, kind=kind, clusters=clusters, seed=seed)
            silent = quiet or filters.index or len(queries) * len(bank) < _MANY
            found = find(bank, queries, count=count, without=without, filters=filters, quiet=silent)
            _write_hits(run, found)
    return run


def _settings(filters: Filters) -> dict[str, Any]:
    """Return what changes hits."""
    return {name: value for name, value in asdict(filters).items() if name != "threads"}


def _write_hits(run: Run, found: Retrieved) -> None:
    for index in run.missing():
        run.write_part(index, found.table.slice(index * PART, PART).combine_chunks())
    about = {"sentences": len(found), "left_out": found.removed, "queries": found.queries}
    run.write_file(RESULTS, json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def results_of(run: Run) -> dict[str, Any]:
    """Return what a finished run's results.json holds.

    Raises:
        InputError: it is missing or damaged.
    """
    found = read_results(run.path, _ABOUT)
    if found is None:
        raise InputError(f"{run.path}: results.json is missing: the same command writes it anew")
    return found


def label_to_run(
    path: Path,
    hits: Run,
    teacher: Callable[[], Classifier],
    fingerprint: str,
    *,
    words: Words | None,
    precision: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Run:
    """Let a teacher label retrieved sentences, part by part; the same call goes on.

    Args:
        path: the run folder.
        hits: what `retrieve_to_run` made.
        teacher: gives the classifier or tagger; called where a part is missing.
        fingerprint: of the teacher.
        words: how sentences are cut into tokens; None: the teacher labels texts.
        precision: see `tilth.models.predict.probabilities`.
        overwrite: begin the run anew.
        quiet: no progress.

    Returns:
        The run: part i has the probabilities of part i of the hits, and the tokens where there
        are any.

    Raises:
        TilthError: the folder cannot be written, or the teacher gives no numbers.
    """
    run = Run.open(
        path,
        command="augment labels",
        settings={"precision": precision},
        fingerprints={"teacher": fingerprint, "hits": _asked(hits)},
        parts=hits.parts,
        overwrite=overwrite,
    )
    with run:
        if run.missing():
            classifier = teacher()

            def work(index: int, progress: Progress) -> pa.Table:
                table = with_tokens(hits.read_part(index), words)
                given = label_hits(classifier, table, precision=precision, progress=progress)
                return _labels(table, given)

            total = results_of(hits)["sentences"]
            done = run.rows_done()
            with Progress(total, done=done, quiet=quiet, what="sentences") as progress:
                complete(run, work, progress=progress)
    return run


def with_tokens(table: pa.Table, words: Words | None) -> pa.Table:
    """Return retrieved sentences with the column `tokens`; without `words` as they are."""
    if words is None:
        return table
    tokens = [words.cut(text) for text in table["text"].to_pylist()]
    return table.append_column(TOKENS, pa.array(tokens, pa.list_(pa.string())))


def label_hits(
    classifier: Classifier,
    table: pa.Table,
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> Any:
    """Return a teacher's probabilities for retrieved sentences.

    Args:
        classifier: the teacher.
        table: what `retrieve` gives; for a tagger with `tokens`, see `with_tokens`.
        precision: see `tilth.models.predict.probabilities`.
        progress: is told how many sentences were labelled.

    Returns:
        (sentences, labels); of a tagger for each sentence (tokens, tags).
    """
    how: dict[str, Any] = {"precision": precision, "progress": progress}
    if classifier.kind == "tags":
        return classifier.tag_probabilities(table[TOKENS].to_pylist(), **how)
    return classifier.probabilities(table["text"].to_pylist(), **how)


def halfway(rows: Rows, classifier: Classifier, *, precision: str = "auto") -> Rows:
    """Return labelled rows with targets half way between their labels and a teacher's answers.

    A label says nothing of what else a text might be.

    Args:
        rows: with the teacher's labels, in its order.
        classifier: the teacher.
        precision: see `tilth.models.predict.probabilities`.
    """
    given = classifier.answers(rows, precision=precision)
    if isinstance(rows.targets, list):
        pairs = zip(rows.targets, given, strict=True)
        return replace(rows, targets=[_mean(label, said) for label, said in pairs])
    return replace(rows, targets=_mean(rows.targets, given))


def _mean(one: NDArray[np.float32], two: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = (one + two) / np.float32(2)
    return mean


def read_columns(run: Run, names: Sequence[str]) -> pa.Table:
    """Return some columns of all parts of a finished run."""
    parts = [run.read_part(index).select(list(names)) for index in range(run.parts)]
    return pa.concat_tables(parts)


def read_labels(run: Run) -> Any:
    """Return all probabilities of a finished run, in the order of its hits."""
    parts = [_read(run.read_part(index)[PROBABILITIES]) for index in range(run.parts)]
    if any(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    return np.concatenate([part for part in parts if len(part)])


def _labels(table: pa.Table, given: Any) -> pa.Table:
    """Return probabilities as a table."""
    lists = as_lists(given)
    if TOKENS not in table.column_names:
        return pa.table({PROBABILITIES: lists})
    return pa.table({TOKENS: table[TOKENS], PROBABILITIES: lists})


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


def _read(column: pa.ChunkedArray) -> NDArray[np.float32] | list[NDArray[np.float32]]:
    if pa.types.is_list(column.type.value_type):
        return [np.array(row, np.float32) for row in column.to_pylist()]
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found: NDArray[np.float32] = values.reshape(len(column), -1) if len(column) else values
    return found


def labelled_rows(table: pa.Table, like: Rows) -> Rows:
    """Return labelled sentences as rows to train on.

    Args:
        table: text, probabilities and, where tokens have tags, tokens.
        like: rows with the same labels.
    """
    given = _read(table[PROBABILITIES])
    if not isinstance(given, list):
        given = given.reshape(len(table), len(like.labels))  # (rows, labels)
    tokens = None if like.tokens is None else table[TOKENS].to_pylist()
    texts: list[tuple[str, ...]] = [(text,) for text in table["text"].to_pylist()]
    return Rows(like.kind, like.labels, texts, tokens, given)


def bank_fingerprints(bank: Bank, *, index: bool) -> dict[str, str]:
    """Return hashes of what a bank holds, and of its index if that is asked."""
    found = {"bank": _hash(bank.manifest.fingerprint, [s.files for s in bank.manifest.shards])}
    return found | ({"index": bank.index.info.digest} if index else {})


def _asked(run: Run) -> str:
    """Return a hash of what a run was asked."""
    asked = read_run_json(run.path)
    return _hash(*(asked[name] for name in COMPARED))


def _hash(*values: Any) -> str:
    text = json.dumps(values, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()
