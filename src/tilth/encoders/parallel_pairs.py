"""Reads pairs of texts of the same meaning for training: paraphrases, translations."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data.examples import (
    PAIR_COLUMNS,
    TEXT_COLUMNS,
    Names,
    Source,
    open_rows,
    with_usual_names,
)
from tilth.data.formats import usual_name, usual_names
from tilth.data.hashing import random_keys
from tilth.data.labels import is_list, is_text
from tilth.data.normalize import exact_keys
from tilth.encoders.graded_pairs import LABEL, NEGATIVE, TEXT_A, TEXT_B, TrainingPairs
from tilth.errors import InputError

log = logging.getLogger(__name__)

# Usual names of the two columns; ours come first.
_PAIRS = (
    (TEXT_A, TEXT_B), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"),
    ("sentence_A", "sentence_B"), ("anchor", "positive"), ("query", "positive"),
    ("sent0", "sent1"), ("question1", "question2"), ("source", "target"),
)  # fmt: skip
_TRANSLATION = "translation."  # of the hub's parallel sets: one column of both languages
_GRADES = (LABEL, "labels", "score", "similarity_score", "is_duplicate")
_NEGATIVES = (NEGATIVE, "hard_neg")
_SEVERAL = re.compile(r"(negative|hard_neg)_?\d+")
_GROUP = "group"
_SHARE, _MOST_HELD_OUT, _FEWEST = 0.1, 1_000, 20


def read_parallel(
    sources: Source | Sequence[Source],
    *,
    pivot: str | None = None,
    min_score: float | None = None,
    seed: int = 0,
    names: Names = (None, None),
) -> TrainingPairs:
    """Read pairs of texts of the same meaning: paraphrases, translations, captions of a picture.

    Pairs with an empty text, texts paired with themselves and repeated rows are left out and
    counted. A tenth of the pairs, 1,000 at most, is held out to choose the checkpoint; pairs that
    share a text with them are left out of training.

    Args:
        sources: one or several, or names with commas between. Each has two columns of texts by any
            usual names (text_a and text_b; en and de), one column `translation` of both, or one
            column of lists (captions): each text of a list is paired with the next. Triples have a
            hard negative in a column `negative` or `hard_neg`; it may be empty.
        pivot: of two columns, the one that is not trained on: texts beside the same pivot text are
            paraphrases, as two translations of a sentence are. Sources without this column are
            read as they are.
        min_score: of graded pairs (a column `label`, `score` ...): rows below are left out. None:
            graded pairs are refused.
        names: of the two columns of texts and of that of grades; None: usual ones.

    Returns:
        Columns text_a, text_b, of triples negative, and label: the ids of the two texts and of
        their group, and of triples that of the negative, 0 for none. Pairs that share one of the
        first three are no negatives of one another.
    """
    text, _ = names
    if text is not None and pivot is not None:
        raise InputError("text and pivot both name columns: leave one of them out")
    opened = list(open_sources(sources, *names, graded=True))
    if min_score is not None and not any(_grade_column(rows) for _, rows in opened):
        raise InputError(
            f"min-score is {min_score:g}, but no source grades its pairs: leave it out, or name "
            f"the scores {_GRADES[0]!r}"
        )
    tables = [_read(rows, where, pivot, min_score) for where, rows in opened]
    if not tables:
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    if pivot is not None and not any(pivoted for _, pivoted in tables):
        raise InputError(f"no source has a column {pivot!r} of texts to pivot on: name one of two")
    whole = pa.concat_tables([table for table, _ in tables], promote_options="default")
    return _held_out(_cleaned(whole), seed)


def _each(sources: Source | Sequence[Source]) -> Iterator[Source]:
    if isinstance(sources, Iterator):
        sources = list(sources)
    if isinstance(sources, str) and not Path(sources).exists():
        yield from filter(None, (name.strip() for name in sources.split(",")))
    elif isinstance(sources, list | tuple) and not isinstance((*sources, None)[0], Mapping):
        for source in sources:
            yield from _each(source)
    else:
        yield sources


def places_of(sources: Source | Sequence[Source]) -> list[str]:
    """Return the names of sources, files and folders as whole paths; none if one is in memory."""
    named = list(_each(sources))
    if not all(isinstance(source, str | Path) for source in named):
        return []
    return [str(Path(str(one)).resolve() if Path(str(one)).exists() else one) for one in named]


def open_sources(
    sources: Source | Sequence[Source],
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    *,
    graded: bool = False,
) -> Iterator[tuple[str, pa.Table]]:
    """Yield each source's name, for messages, and its rows.

    Args:
        text: the column of texts, or the two of pairs: they become text, or text_a and text_b.
        label: the column of grades: it becomes label.
        graded: keep columns of grades beside named texts; else they are not read.
    """
    for source in _each(sources):
        where = str(source) if isinstance(source, str | Path) else "the data set"
        rows, _ = open_rows(source, "train")
        try:
            rows = with_usual_names(rows, text, label)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if text is not None:
            names = rows.column_names
            usual = (*TEXT_COLUMNS, *PAIR_COLUMNS, usual_name(_NEGATIVES, names),
                     usual_name(_GRADES, names) if graded else None)  # fmt: skip
            others = [name for name in names if name not in usual]
            rows = rows.select_columns([name for name in usual if name in names])
            if others and PAIR_COLUMNS[0] in rows.column_names:
                log.warning(
                    "%s: not read: %s; each pair counts as of the same meaning (hard negatives are "
                    "read from a column %s)", where, ", ".join(others), _NEGATIVES[0],
                )  # fmt: skip
        yield where, rows.with_format("arrow")[:].flatten()


def pairs_of_table(table: pa.Table, where: str) -> pa.Table:
    """Return text_a, text_b and, of triples, negative of rows of the same meaning."""
    pairs, _ = _read(table, where, None, None)
    return pairs.drop_columns([_GROUP])


def usual_columns(texts: Sequence[str]) -> tuple[str, ...] | None:
    """Return which two of some columns of texts have the usual names of a pair."""
    return usual_names(_PAIRS, texts)


def _read(
    table: pa.Table, where: str, pivot: str | None, min_score: float | None
) -> tuple[pa.Table, bool]:
    """Return the pairs of a source with the group of each, and whether it was pivoted."""
    columns = _columns(table, where)
    table = _positives(table, where, min_score)
    if len(columns) == 1:
        return _neighbours(table[columns[0]].to_pylist()), False
    names = [name.removeprefix(_TRANSLATION) for name in columns]
    if pivot not in names:
        texts = [table[name].cast(pa.large_string()) for name in columns]
        found = {TEXT_A: texts[0], TEXT_B: texts[1], _GROUP: texts[0]}
        negative = _negative_column(table, where)
        if negative is not None:
            found[NEGATIVE] = table[negative].cast(pa.large_string())
        return pa.table(found), False
    beside = columns[names.index(pivot)]
    (kept,) = [name for name in columns if name != beside]
    groups: dict[str, list[str | None]] = {}
    for key, text in zip(table[beside].to_pylist(), table[kept].to_pylist(), strict=True):
        groups.setdefault(key, []).append(text)
    groups.pop("", None)
    return _neighbours(texts for key, texts in groups.items() if key is not None), True


def _grade_column(table: pa.Table) -> str | None:
    return usual_name(_GRADES, table.column_names)


def _positives(table: pa.Table, where: str, min_score: float | None) -> pa.Table:
    """Return the rows with `min_score` or more, or all rows if they are not graded."""
    name = _grade_column(table)
    if name is None:
        return table
    if min_score is None:
        if pc.count_distinct(table[name]).as_py() > 1:
            raise InputError(
                f"{where}: column {name!r} grades the pairs, and here every pair must mean the "
                "same: keep the rows that do and remove the column (`tilth train triplet "
                "--min-score` does), or use `tilth train encoder`"
            )
        is_zero = pc.equal(table[name].cast(pa.string()), "0")
        if pc.all(pc.fill_null(is_zero, fill_value=False)).as_py():
            raise InputError(
                f"{where}: column {name!r} is 0 in every row, and here every pair must mean the "
                "same: remove the column if they do"
            )
        return table
    try:
        scores = table[name].cast(pa.float64())
    except pa.ArrowException as error:
        said = str(error).splitlines()[0]
        raise InputError(
            f"{where}: column {name!r} holds no numbers ({said}): leave min-score out, or give "
            "numbers"
        ) from error
    kept = table.filter(pc.fill_null(pc.greater_equal(scores, min_score), fill_value=False))
    log.info("%s: %d of %d pairs have a %s of %g or more", where, len(kept), len(table), name,
             min_score)  # fmt: skip
    return kept


def _negative_column(table: pa.Table, where: str) -> str | None:
    """Return the column of hard negatives of triples."""
    several = next((name for name in table.column_names if _SEVERAL.fullmatch(name)), None)
    if several is not None:
        raise InputError(
            f"{where}: column {several!r} holds one of several negatives: give one, {NEGATIVE!r}, "
            "in a row of its own for each"
        )
    found = usual_name(_NEGATIVES, table.column_names)
    if found is not None and not is_text(kind := table.schema.field(found).type):
        raise InputError(f"{where}: column {found!r} holds {kind}: give one text a row")
    return found


def _columns(table: pa.Table, where: str) -> list[str]:
    """Return the two columns of texts, or the one of lists of texts."""
    types = {field.name: field.type for field in table.schema if field.name.lower() not in _GRADES}
    texts = [name for name, kind in types.items() if is_text(kind)]
    lists = [name for name, kind in types.items() if is_list(kind) and is_text(kind.value_type)]
    translations = [name for name in texts if name.startswith(_TRANSLATION)]
    pair = usual_columns(texts)
    if pair is not None:
        return list(pair)
    for two in (translations, texts):
        if len(two) == 2:
            return two
    if len(lists) == 1:
        return lists
    names = ", ".join(table.column_names)
    raise InputError(
        f"{where}: which columns of {names} hold the pairs: name two with --text FIRST,SECOND, or "
        "give one column of lists of texts"
    )


def _neighbours(groups: Iterable[Sequence[str | None] | None]) -> pa.Table:
    """Pair each distinct text of a group with the next one, the last with the first."""
    a, b, group_keys = [], [], []
    for group in groups:
        texts = list(dict.fromkeys(text for text in group or () if text))
        if len(texts) < 2:
            continue
        following = texts[1:] + (texts[:1] if len(texts) > 2 else [])
        a += texts[: len(following)]
        b += following
        group_keys += ["\0".join(texts)] * len(following)
    columns = (pa.array(column, pa.large_string()) for column in (a, b, group_keys))
    return pa.table(dict(zip((TEXT_A, TEXT_B, _GROUP), columns, strict=True)))


def _cleaned(table: pa.Table) -> pa.Table:
    """Return text_a, text_b and label of the pairs that are kept."""
    names = [name for name in (TEXT_A, TEXT_B, NEGATIVE) if name in table.column_names]
    columns = {
        name: pc.utf8_trim_whitespace(pc.fill_null(table[name].combine_chunks(), ""))
        for name in names
    }
    texts = [columns[name] for name in (TEXT_A, TEXT_B)]
    keys = [exact_keys(column) for column in texts]
    full = np.logical_and(*(pc.not_equal(column, "").to_numpy(False) for column in texts))
    other = keys[0] != keys[1]
    parts = [np.minimum(*keys), np.maximum(*keys)]
    groups = exact_keys(pc.fill_null(table[_GROUP].combine_chunks(), ""))
    ids = [*keys, groups]
    if NEGATIVE in columns:
        there = pc.not_equal(columns[NEGATIVE], "").to_numpy(False)
        ids.append(np.where(there, exact_keys(columns[NEGATIVE]), 0))
        parts.append(ids[-1])
    first = np.zeros(len(full), np.bool_)
    first[np.unique(np.stack(parts, 1), axis=0, return_index=True)[1]] = True
    for reason, wrong in (
        ("with an empty text", ~full),
        ("of a text with itself", full & ~other),
        ("that were there before", full & other & ~first),
    ):
        if wrong.any():
            log.info("%s pairs %s are left out", f"{wrong.sum():,}", reason)
    flat = pa.array(np.stack(ids, 1).view(np.int64).ravel())  # (pairs x ids,)
    label = pa.FixedSizeListArray.from_arrays(flat, len(ids)).cast(pa.list_(pa.int64()))
    cleaned = pa.table({**columns, LABEL: label})
    return cleaned.filter(pa.array(full & other & first))


def _held_out(table: pa.Table, seed: int) -> TrainingPairs:
    """Hold out a part by content; leave pairs that share a text with it out of the other."""
    from datasets import Dataset

    width = 4 if NEGATIVE in table.column_names else 3
    ids = table[LABEL].combine_chunks().flatten().to_numpy().reshape(-1, width)  # (pairs, width)
    keys = random_keys(seed, "validation", *ids[:, :2].T.astype(np.uint64))
    chosen = np.zeros(len(ids), np.bool_)
    chosen[np.argsort(keys)[: min(int(len(keys) * _SHARE), _MOST_HELD_OUT)]] = True
    held = ids[chosen]
    left: NDArray[np.bool_] = ~chosen & ~np.isin(ids, held[held != 0]).any(1)  # 0: no negative
    if len(ids) < _FEWEST or not left.any():
        raise InputError(
            f"{len(ids)} pairs of different texts are too few to train on and hold some out: "
            "give more"
        )
    log.info("%s pairs to train on, %s held out", f"{left.sum():,}", f"{chosen.sum():,}")
    return TrainingPairs(
        Dataset(table.filter(pa.array(left))), Dataset(table.filter(pa.array(chosen)))
    )
