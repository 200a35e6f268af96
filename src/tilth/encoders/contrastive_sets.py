"""Reads texts, pairs of the same meaning and triples for contrastive training."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.data.examples import Source
from tilth.data.formats import usual_name, usual_names
from tilth.data.labels import is_text
from tilth.data.normalize import exact_keys
from tilth.encoders.graded_pairs import NEGATIVE, TEXT_A, TEXT_B
from tilth.encoders.parallel_pairs import open_sources, pairs_of_table, usual_columns
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_NLI = ("premise", "hypothesis", "label")
_ENTAILMENT, _CONTRADICTION = "entailment", "contradiction"
_TEXT, _ORIGINAL = ("text", "sentence"), "original"  # of `tilth paraphrase`: the text before
_FEWEST = 2  # rows of a batch


def read_contrastive(
    sources: Source | Sequence[Source],
    variant: str | None = None,
    text: str | Sequence[str] | None = None,
) -> Dataset:
    """Read rows for contrastive training; repeated rows and those without a text are left out.

    Args:
        sources: one or several, or names with commas between, all of one of these kinds:
            single texts, each its own positive; runs of `tilth paraphrase` over single texts,
            whose rewrites are the positives of the originals; pairs of the same meaning, as
            `read_parallel` reads them; triples with a column `negative` or `hard_neg`; NLI with
            columns premise, hypothesis, label, whose triples are `nli_triples`.
        variant: of runs of `tilth paraphrase` over both texts of pairs or triples, pairs of the
            originals A and B and the rewrites A' and B': one of `VARIANTS`. None: the rows as they
            are.
        text: the column of single texts, or the two of pairs and triples; None: usual names.

    Returns:
        Columns text_a, text_b and, of triples, negative.
    """
    if variant is not None and text is not None:
        raise InputError(f"variant {variant} is of a run, whose columns are known: leave text out")
    from datasets import Dataset

    tables = [
        (where, _read(table, where) if variant is None else _variant(table, where, variant))
        for where, table in open_sources(sources, text)
    ]
    if not tables:
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    with_negatives = {NEGATIVE in table.column_names: where for where, table in tables}
    if len(with_negatives) > 1:
        raise InputError(
            f"{with_negatives[True]} holds triples, {with_negatives[False]} has no negatives: "
            "give sources of one kind"
        )
    rows = _cleaned(pa.concat_tables(table for _, table in tables))
    if len(rows) < _FEWEST:
        named = ", ".join(where for where, _ in tables)
        raise InputError(f"{named}: {len(rows)} rows are left to tell a text from others: add more")
    log.info("%s rows to train on", f"{len(rows):,}")
    return Dataset(rows)


def _read(table: pa.Table, where: str) -> pa.Table:
    """Return text_a, text_b and, of triples, negative of a source's rows."""
    if (nli := usual_names([_NLI], table.column_names)) is not None:
        return nli_triples(table, where, nli)
    texts = [field.name for field in table.schema if is_text(field.type)]
    single = usual_name(_TEXT, texts) or (texts[0] if len(texts) == 1 else None)
    if single is not None and not usual_columns(texts):
        text = table[single].cast(pa.large_string())
        before = table[_ORIGINAL].cast(pa.large_string()) if _ORIGINAL in texts else text
        return pa.table({TEXT_A: pc.coalesce(before, text), TEXT_B: text})
    pairs = pairs_of_table(table, where)
    if NEGATIVE in pairs.column_names:
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(pairs[NEGATIVE]), ""), True)
        if (row := pc.index(blank, True).as_py()) >= 0:
            raise InputError(
                f"{where}: row {row} (rows count from 0) has no negative: give one, remove the "
                "row, or leave out the column"
            )
    return pairs


def _variant(table: pa.Table, where: str, variant: str) -> pa.Table:
    """Return the pairs of a variant, such as A'B: rewritten first texts, original second ones.

    Reference:
        Ogasa, Kajiwara and Arase, section 5.5.
    """
    named = [name for name in table.column_names if f"{_ORIGINAL}_{name}" in table.column_names]
    pair = usual_columns(named)
    if pair is None:
        raise InputError(
            f"{where}: no two columns of texts with their originals: variant {variant} needs a run "
            "of `tilth paraphrase` over both texts of pairs"
        )
    made = table
    if "rewrite" in table.column_names:  # 0: an original that stands beside its rewrites
        made = table.filter(pc.greater(table["rewrite"], 0))
    parts = []
    for both in variant.split("+"):
        rows = made if "'" in both else table
        names = [
            name if f"{side}'" in both else f"{_ORIGINAL}_{name}"
            for side, name in zip("AB", pair, strict=True)
        ]
        texts = [rows[name].cast(pa.large_string()) for name in names]
        parts.append(pa.table(texts, [TEXT_A, TEXT_B]))
    return pa.concat_tables(parts)


def nli_triples(table: pa.Table, where: str, columns: Sequence[str]) -> pa.Table:
    """Return a triple for each entailed hypothesis whose premise has a contradicting one, too.

    Text, entailed hypothesis, contradicting hypothesis; a premise's contradictions take turns.

    Reference:
        Gao, Yao and Chen 2021, section 4.
    """
    from datasets import ClassLabel, Dataset

    rows = Dataset(table.select(list(columns))).rename_columns(
        dict(zip(columns, _NLI, strict=True))
    )
    feature = rows.features["label"]
    labels = rows["label"][:]
    if isinstance(feature, ClassLabel):
        names = dict(enumerate(feature.names))
        labels = [names.get(label) for label in labels]  # a missing one is null or -1
    of: dict[str, dict[str, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for premise, hypothesis, label in zip(
        rows["premise"][:], rows["hypothesis"][:], labels, strict=True
    ):
        if premise and hypothesis:
            of[premise][str(label).lower()][hypothesis] = None
    triples = [
        (premise, entailed, negative)
        for premise, found in of.items()
        if found[_CONTRADICTION]
        for entailed, negative in zip(found[_ENTAILMENT], cycle(found[_CONTRADICTION]))
    ]
    if not triples:
        found_labels = ", ".join(sorted({str(label) for label in labels})[:5])
        raise InputError(
            f"{where}: no premise has both a hypothesis labelled {_ENTAILMENT} and one labelled "
            f"{_CONTRADICTION}; its labels are {found_labels}"
        )
    log.info("%s: %s triples of %s premises", where, f"{len(triples):,}", f"{len(of):,}")
    columns = [pa.array(texts, pa.large_string()) for texts in zip(*triples, strict=True)]
    return pa.table(columns, [TEXT_A, TEXT_B, NEGATIVE])


def _cleaned(table: pa.Table) -> pa.Table:
    """Return the rows with full texts, each once."""
    columns = {
        name: pc.utf8_trim_whitespace(pc.fill_null(table[name].combine_chunks(), ""))
        for name in table.column_names
    }
    full = np.logical_and.reduce(
        [pc.not_equal(one, "").to_numpy(False) for one in columns.values()]
    )
    keys = np.stack([exact_keys(column) for column in columns.values()], 1)  # (rows, columns)
    first = np.zeros(len(full), np.bool_)
    first[np.unique(keys, axis=0, return_index=True)[1]] = True
    for reason, wrong in (("without a text", ~full), ("that were there before", full & ~first)):
        if wrong.any():
            log.info("%s rows %s are left out", f"{wrong.sum():,}", reason)
    return pa.table(columns).filter(pa.array(full & first))
