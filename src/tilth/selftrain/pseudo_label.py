"""Label retrieved sentences with a teacher's probabilities, in memory and in nested runs.

All self-training here is `retrieve`, `label_sentences`, `select`, `pseudo_labeled`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.classifiers.examples import LabeledExamples
from tilth.errors import InputError
from tilth.runs import COMPARED, RESULTS, Progress, Run, complete, read_results, read_run_json
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.settings import Retrieval
from tilth.selftrain.tokenize import WordTokenizer, learn_tokenizer

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.classifiers.examples import Targets
    from tilth.data.examples import Examples
    from tilth.models.classifier import Classifier

log = logging.getLogger(__name__)

# Sentences of a part: some seconds of labelling, which is what a stopped run loses.
PART = 4096
TOKENS, PROBABILITIES = "tokens", "probabilities"
_QUERY = ("query", "clusters", "seed")
_ABOUT = {"sentences": int, "left_out": dict, "queries": list}  # keys of results.json


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


def blend_labels(
    rows: LabeledExamples, teacher: Classifier, *, precision: str = "auto"
) -> LabeledExamples:
    """Average gold labels with a teacher's probabilities (alpha = 0.5).

    A gold label does not say which other labels are plausible.

    Args:
        rows: with the teacher's labels, in its order.
    """
    given = teacher.answers(rows, precision=precision)
    if isinstance(rows.targets, list):
        pairs = zip(rows.targets, given, strict=True)
        return replace(rows, targets=[_mean(label, said) for label, said in pairs])
    return replace(rows, targets=_mean(rows.targets, given))


def _mean(one: NDArray[np.float32], two: NDArray[np.float32]) -> NDArray[np.float32]:
    mean: NDArray[np.float32] = (one + two) / np.float32(2)
    return mean


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


def retrieve_in_run(
    path: Path,
    bank: Bank,
    examples: Examples,
    count: int,
    how: Retrieval,
    *,
    exclude: Mapping[str, Sequence[str]],
    quiet: bool = False,
) -> Run:
    """Retrieve sentences into the parts of a run; the same call resumes, or opens them.

    Parts after the last sentence are empty; results.json holds the queries and the number of
    excluded sentences.
    """
    filters = {name: value for name, value in asdict(how).items() if name not in _QUERY}
    run = Run.open(
        path,
        command="augment hits",
        settings={"kind": how.query, "count": count, "clusters": how.clusters, "seed": how.seed,
                  "part": PART, **filters},
        fingerprints={
            **bank_fingerprints(bank, index=how.index),
            "training set": _hash(examples.texts, examples.labels and examples.labels.values),
            "texts to leave out": _hash(dict(exclude)),
        },
        parts=-(-count // PART),
        outputs=(RESULTS,),
    )  # fmt: skip
    with run:
        if run.missing() or read_results(run.path, _ABOUT) is None:
            found = retrieve(bank, examples, count, how, exclude=exclude, quiet=quiet)
            for index in run.missing():
                run.write_part(index, found.table.slice(index * PART, PART).combine_chunks())
            about = {
                "sentences": len(found), "left_out": found.excluded, "queries": found.queries
            }  # fmt: skip
            run.write_file(RESULTS, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
    sentences = results_of(run)["sentences"]
    if sentences < count:
        log.warning(
            "%s sentences were found, %s were wanted: the bank has no more that are near enough "
            "and not left out", f"{sentences:,}", f"{count:,}",
        )  # fmt: skip
    return run


def label_in_run(
    path: Path,
    hits: Run,
    teacher: Classifier,
    fingerprint: str,
    *,
    tokens: Sequence[Sequence[str]] | None,
    precision: str = "auto",
    quiet: bool = False,
) -> Run:
    """Label the sentences of `retrieve_in_run`, part by part; the same call resumes.

    Part i has the probabilities of part i of the hits, and the tokens where there are any.

    Args:
        fingerprint: of the teacher.
        tokens: of a tagged training set; sentences are tokenised alike. None: no tagger.
    """
    run = Run.open(
        path,
        command="augment labels",
        settings={"precision": precision},
        fingerprints={"teacher": fingerprint, "hits": _settings_hash(hits)},
        parts=hits.parts,
    )

    tokenizer = None if tokens is None else learn_tokenizer(tokens)

    def work(index: int, progress: Progress) -> pa.Table:
        table = with_tokens(hits.read_part(index), tokenizer)
        table = label_sentences(table, [teacher], precision=precision, progress=progress)
        return table.select([one for one in (TOKENS, PROBABILITIES) if one in table.column_names])

    with run:
        if run.missing():
            total = results_of(hits)["sentences"]
            done = run.rows_done()
            with Progress(total, done=done, quiet=quiet, what="sentences") as progress:
                complete(run, work, progress=progress)
    return run


def results_of(run: Run) -> dict[str, Any]:
    """Return the results.json of a finished run of `retrieve_in_run`."""
    found = read_results(run.path, _ABOUT)
    if found is None:
        raise InputError(f"{run.path}: results.json is missing: the same command writes it anew")
    return found


def read_columns(run: Run, names: Sequence[str]) -> pa.Table:
    """Return some columns of all parts of a finished run."""
    parts = [run.read_part(index).select(list(names)) for index in range(run.parts)]
    return pa.concat_tables(parts)


def read_pseudo_labels(run: Run) -> Any:
    """Return all probabilities of a finished run, in the order of its hits."""
    parts = [from_lists(run.read_part(index)[PROBABILITIES]) for index in range(run.parts)]
    if any(isinstance(part, list) for part in parts):
        return [row for part in parts for row in part]
    return np.concatenate([part for part in parts if len(part)])


def bank_fingerprints(bank: Bank, *, index: bool) -> dict[str, str]:
    """Return hashes of what a bank holds, and of its index if that is searched."""
    found = {"bank": _hash(bank.manifest.fingerprint, [s.files for s in bank.manifest.shards])}
    return found | ({"index": bank.index.info.digest} if index else {})


def _settings_hash(run: Run) -> str:
    asked = read_run_json(run.path)
    return _hash(*(asked[name] for name in COMPARED))


def _hash(*values: Any) -> str:
    text = json.dumps(values, ensure_ascii=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()
