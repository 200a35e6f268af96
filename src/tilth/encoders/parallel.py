"""Pairs of texts that mean the same, to train an encoder with: read, cleaned, named, held out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.data import read_rows
from tilth.data.keys import keyed
from tilth.data.plain import exact_keys
from tilth.encoders.pairs import LABEL, TEXT_A, TEXT_B, Pairs
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

# Usual names of two columns of texts that mean the same; ours come first.
_PAIRS = (
    (TEXT_A, TEXT_B), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"),
    ("sentence_A", "sentence_B"), ("anchor", "positive"), ("question1", "question2"),
    ("source", "target"),
)  # fmt: skip
_TRANSLATION = "translation."  # of the hub's parallel sets: one column of both languages
_GRADES = (LABEL, "labels", "score", "similarity_score", "is_duplicate")
_GROUP = "group"
_SHARE, _MOST_HELD_OUT, _FEWEST = 0.1, 1_000, 20


def read_parallel(
    sources: str | Path | Dataset | Sequence[str | Path | Dataset],
    *,
    pivot: str | None = None,
    seed: int = 0,
) -> Pairs:
    """Read pairs of texts that mean the same: paraphrases, translations, captions of a picture.

    Empty texts, texts paired with themselves and pairs that were there before are left out and
    counted. A tenth of the pairs, 1,000 at most, is held out to choose the checkpoint with; what
    shares a text with them is not trained on.

    Args:
        sources: one or several; a text may name several with commas. Each is a data set or where
            one lies (see `tilth.data.read_rows`), with two columns of texts by any usual names
            (text_a and text_b; en and de), one column `translation` of both, or one column of
            lists (captions): each text of a list is paired with the next.
        pivot: of two columns, the one that is not trained on: texts that stand beside the same
            one there are paraphrases, as two translations of a sentence are. Sources without
            this column are read as they are.
        seed: of what is held out.

    Returns:
        Columns text_a, text_b and label: three numbers that name the two texts and what they
        belong to. Pairs with a number in common are no negatives of one another.

    Raises:
        InputError: a source cannot be read, has no such columns or grades its pairs, or too few
            pairs are left.
    """
    tables = [_read(source, pivot) for source in _each(sources)]
    if not tables:
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    if pivot is not None and not any(pivoted for _, pivoted in tables):
        raise InputError(f"no source has a column {pivot!r} of texts to pivot on: name one of two")
    return _held_out(_cleaned(pa.concat_tables([table for table, _ in tables])), seed)


def _each(
    sources: str | Path | Dataset | Sequence[str | Path | Dataset],
) -> Iterator[str | Path | Dataset]:
    from datasets import Dataset

    if isinstance(sources, str) and not Path(sources).exists():
        yield from filter(None, (name.strip() for name in sources.split(",")))
    elif isinstance(sources, str | Path | Dataset):
        yield sources
    else:
        for source in sources:
            yield from _each(source)


def _read(source: str | Path | Dataset, pivot: str | None) -> tuple[pa.Table, bool]:
    """Return the pairs of a source with what each belongs to, and whether it was pivoted."""
    where, rows = "the data set", source
    if isinstance(rows, str | Path):
        where, rows = str(rows), read_rows(rows)
    table: pa.Table = rows.with_format("arrow")[:].flatten()
    _refuse_grades(table, where)
    columns = _columns(table, where)
    if len(columns) == 1:
        return _neighbours(table[columns[0]].to_pylist()), False
    names = [name.removeprefix(_TRANSLATION) for name in columns]
    if pivot not in names:
        texts = [table[name].cast(pa.large_string()) for name in columns]
        return pa.table(dict(zip((TEXT_A, TEXT_B, _GROUP), [*texts, texts[0]], strict=True))), False
    beside = columns[names.index(pivot)]
    (kept,) = [name for name in columns if name != beside]
    groups: dict[str, list[str | None]] = {}
    for key, text in zip(table[beside].to_pylist(), table[kept].to_pylist(), strict=True):
        groups.setdefault(key, []).append(text)
    groups.pop("", None)
    return _neighbours(texts for key, texts in groups.items() if key is not None), True


def _refuse_grades(table: pa.Table, where: str) -> None:
    for name in _GRADES:
        if name in table.column_names and pc.count_distinct(table[name]).as_py() > 1:
            raise InputError(
                f"{where}: column {name!r} grades the pairs, and here every pair must mean the "
                "same: keep those that do and leave the column out, or use `tilth train encoder`"
            )


def _columns(table: pa.Table, where: str) -> list[str]:
    """Return the two columns of texts, or the one of lists of texts."""
    types = {field.name: field.type for field in table.schema}
    texts = [name for name, kind in types.items() if _is_text(kind)]
    lists = [name for name, kind in types.items() if _is_list(kind) and _is_text(kind.value_type)]
    translations = [name for name in texts if name.startswith(_TRANSLATION)]
    for pair in (*_PAIRS, translations):
        if len(pair) == 2 and set(pair) <= set(texts):
            return list(pair)
    if len(texts) == 2:
        return texts
    if len(lists) == 1:
        return lists
    raise InputError(
        f"{where}: which columns hold the pairs: name two of {', '.join(types)} text_a and text_b, "
        "or give one column of lists of texts"
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _neighbours(groups: Iterable[Sequence[str | None] | None]) -> pa.Table:
    """Pair each distinct text of a group with the next one, the last with the first."""
    a, b, belongs = [], [], []
    for group in groups:
        texts = list(dict.fromkeys(text for text in group or () if text))
        if len(texts) < 2:
            continue
        following = texts[1:] + (texts[:1] if len(texts) > 2 else [])
        a += texts[: len(following)]
        b += following
        belongs += ["\0".join(texts)] * len(following)
    columns = (pa.array(column, pa.large_string()) for column in (a, b, belongs))
    return pa.table(dict(zip((TEXT_A, TEXT_B, _GROUP), columns, strict=True)))


def _cleaned(table: pa.Table) -> pa.Table:
    """Return text_a, text_b and label of the pairs worth training on."""
    texts = [
        pc.utf8_trim_whitespace(pc.fill_null(table[name].combine_chunks(), ""))
        for name in (TEXT_A, TEXT_B)
    ]
    keys = [exact_keys(column) for column in texts]
    full = np.logical_and(*(pc.not_equal(column, "").to_numpy(False) for column in texts))
    other = keys[0] != keys[1]
    pair = np.stack([np.minimum(*keys), np.maximum(*keys)], 1)  # (pairs, 2)
    first = np.zeros(len(pair), np.bool_)
    first[np.unique(pair, axis=0, return_index=True)[1]] = True
    for reason, wrong in (
        ("with an empty text", ~full),
        ("of a text with itself", full & ~other),
        ("that were there before", full & other & ~first),
    ):
        if wrong.any():
            log.info("%s pairs %s are left out", f"{wrong.sum():,}", reason)
    groups = exact_keys(pc.fill_null(table[_GROUP].combine_chunks(), ""))
    names = np.stack([*keys, groups], 1).view(np.int64)  # (pairs, 3)
    label = pa.FixedSizeListArray.from_arrays(pa.array(names.ravel()), 3).cast(pa.list_(pa.int64()))
    cleaned = pa.table({TEXT_A: texts[0], TEXT_B: texts[1], LABEL: label})
    return cleaned.filter(pa.array(full & other & first))


def _held_out(table: pa.Table, seed: int) -> Pairs:
    """Hold out a part by content; leave out of the other what shares a text with it."""
    from datasets import Dataset

    names = table[LABEL].combine_chunks().flatten().to_numpy().reshape(-1, 3)  # (pairs, 3)
    keys = keyed(seed, "validation", *names[:, :2].T.astype(np.uint64))
    chosen = np.zeros(len(names), np.bool_)
    chosen[np.argsort(keys)[: min(int(len(keys) * _SHARE), _MOST_HELD_OUT)]] = True
    left: NDArray[np.bool_] = ~chosen & ~np.isin(names, names[chosen]).any(1)
    if len(names) < _FEWEST or not left.any():
        raise InputError(
            f"{len(names)} pairs of different texts are too few to train on and hold some out: "
            "give more"
        )
    log.info("%s pairs to train on, %s held out", f"{left.sum():,}", f"{chosen.sum():,}")
    return Pairs(Dataset(table.filter(pa.array(left))), Dataset(table.filter(pa.array(chosen))))
