"""Which columns of a set hold the texts to rewrite: one, the two of pairs, the three of triples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tilth.data.examples import LABEL, PAIRS, SINGLE, TOKENS
from tilth.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

# Of contrastive training: a text, one of its meaning, one of another meaning.
TRIPLES = (
    ("anchor", "positive", "negative"), ("sent0", "sent1", "hard_neg"),
    ("query", "positive", "negative"),
)  # fmt: skip
_PAIRS = (*PAIRS, ("anchor", "positive"), ("sent0", "sent1"))


def text_columns(dataset: Dataset, where: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns to rewrite, those asked for or those that usual names tell.

    Args:
        dataset: the rows.
        where: the beginning of a message, the set's name or nothing.
        asked: names; None: of triples, of pairs, `text`, `sentence`, or the only column of texts.

    Raises:
        InputError: a column is missing or holds no texts, or none can be told.
    """
    names, schema = dataset.column_names, dataset.features.arrow_schema
    if asked:
        for column in asked:
            if column not in names:
                raise InputError(f"{where}no column {column!r}: there are {', '.join(names)}")
        if len(set(asked)) < len(asked):
            raise InputError(f"{where}a column is named twice: {', '.join(asked)}")
        chosen = tuple(asked)
    else:
        chosen = _usual(names, [name for name in names if _is_text(schema.field(name).type)])
        if not chosen:
            tagged = next((name for name in TOKENS if name in names), None)
            if tagged is not None:
                raise InputError(
                    f"{where}column {tagged!r} holds tokens, whose tags no rewrite keeps: "
                    "give texts"
                )
            raise InputError(
                f"{where}which column holds the texts: name it with --column; there are "
                f"{', '.join(names)}"
            )
    for column in chosen:
        kind = schema.field(column).type
        if not _is_text(kind):
            raise InputError(f"{where}column {column!r} holds {kind}: name one of texts")
    return chosen


def _usual(names: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    for group in (*TRIPLES, *_PAIRS):
        if set(group) <= set(texts):
            return group
    for name in SINGLE:
        if name in names:
            return (name,)
    others = [name for name in texts if name not in LABEL]
    return (others[0],) if len(others) == 1 else ()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
