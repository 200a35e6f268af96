"""Split a block of documents into clean sentences with the keys of their duplicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import Rules, clean_text, filter_sentences
from tilth.bank.ingest.documents import Block
from tilth.data.hashing import text_hashes
from tilth.data.near_duplicates import NEAR, near_keys
from tilth.data.normalize import normalize_texts
from tilth.data.segment import split_paragraphs

SCHEMA = pa.schema(
    [("text", pa.string()), ("document", pa.int64()), ("exact", pa.uint64())]
    + [(name, pa.uint64()) for name in NEAR]
)


@dataclass(frozen=True, slots=True)
class Sentences:
    """The clean sentences of a block.

    Attributes:
        table: columns of `SCHEMA`: text, line of its document in the source, key of exact
            duplicates and, with `near`, those of near ones.
        documents: number of non-empty documents.
    """

    table: pa.Table
    drops: dict[str, int]
    documents: int


def sentences_of_documents(
    block: Block, rules: Rules | None = None, *, near: bool = True
) -> Sentences:
    r"""Segment and clean the documents of a block and compute the keys of each sentence.

    A line end also ends a sentence. Duplicates stay, for `find_duplicates`. `near` adds the keys
    of near duplicates.

    Example:
        >>> block = Block("talk.txt", 0, 1, b"It rains today. Take a coat.\nWhy?\n")
        >>> found = sentences_of_documents(block)
        >>> found.table["text"].to_pylist(), found.drops
        (['It rains today.', 'Take a coat.'], {'too short': 1})
    """
    rules = Rules() if rules is None else rules
    if isinstance(block.data, bytes):
        text = clean_text(block.text())
        documents = np.arange(block.first, block.first + text.count("\n") + 1)
    else:
        counts = [document.count("\n") + 1 for document in block.data]
        text = clean_text("\n".join(block.data))
        documents = np.repeat(np.array(block.lines, np.int64), counts)
    texts, line = split_paragraphs(text.split("\n"), rules.language or "en")
    kept, normalized, drops = filter_sentences(texts, rules)
    table = _table(texts.take(pa.array(kept)), documents[line[kept]], normalized, near=near)
    return Sentences(table, drops, len(np.unique(documents[line])))


def keyed_sentences(texts: pa.Array, *, near: bool) -> pa.Table:
    """Return the table of sentences that are clean already, all of document 0."""
    return _table(texts, np.zeros(len(texts), np.int64), normalize_texts(texts), near=near)


def _table(
    texts: pa.Array, documents: NDArray[np.int64], normalized: pa.Array, *, near: bool
) -> pa.Table:
    columns = [texts.cast(pa.string()), pa.array(documents), pa.array(text_hashes(normalized))]
    if near:
        columns += map(pa.array, near_keys(normalized).T)
    return pa.Table.from_arrays(columns, schema=pa.schema(list(SCHEMA)[: len(columns)]))
