"""Names for texts and data sets that depend on their content alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import Dataset


def text_id(text: str) -> str:
    """Return the id of a source text: 16 hex digits of its blake2b hash.

    Example:
        >>> text_id("A kite hangs in the old oak.")
        'fbf1b677074e68b2'
    """
    return blake2b(text.encode("utf-8"), digest_size=8).hexdigest()


def fingerprint(dataset: Dataset, columns: Sequence[str]) -> str:
    """Return a hash of the values in some columns; the order of rows counts, storage does not."""
    hashed = blake2b(digest_size=16)
    for batch in dataset.select_columns(list(columns)).with_format(None).iter(batch_size=10_000):
        rows = zip(*(batch[name] for name in columns), strict=True)
        text = "\n".join(json.dumps(row, ensure_ascii=True, default=str) for row in rows)
        hashed.update(text.encode() + b"\n")
    return hashed.hexdigest()
