"""Sentences that hits must not be: equal ones after normalisation, and near duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import tidy
from tilth.bank.shingles import SIMILARITY, likenesses, near_keys_of_plain
from tilth.data.hashing import text_hashes
from tilth.data.normalize import normalize_texts
from tilth.data.segment import split_paragraphs
from tilth.errors import InputError

# Words of a sentence out of a longer text that is looked for by itself.
_WORDS = 5
_PAIRS_AT_ONCE = 1 << 20


class Sought:
    """Sentences to be looked for among hits, such as those of a test set.

    A text of several sentences is looked for as it stands and sentence by sentence, as a bank holds
    them; sentences of it with fewer than five words say too little to be held against a hit.

    Args:
        name: of what they are, for the counts.
        texts: the sentences.
        near: whether near duplicates are looked for as well.
    """

    def __init__(self, name: str, texts: Sequence[str], *, near: bool = True) -> None:
        if not len(texts):
            raise InputError(f"{name}: holds no sentence to leave out: give some, or none of it")
        self.name, self._near = name, near
        whole = pa.array(texts, pa.large_string())
        pieces, _ = split_paragraphs(tidy("\n".join(texts)).split("\n"))
        pieces = normalize_texts(pieces)
        telling = pc.greater_equal(pc.count_substring(pieces, " "), _WORDS - 1)
        self._plain = pa.concat_arrays([normalize_texts(whole), pieces.filter(telling)]).unique()

    @cached_property
    def _exact(self) -> NDArray[np.uint64]:
        return text_hashes(self._plain)

    @cached_property
    def _keys(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return all near keys, sorted, and which text each is of."""
        keys = near_keys_of_plain(self._plain)  # (texts, bands)
        order = np.argsort(keys, axis=None, kind="stable")
        return keys.ravel()[order], order // keys.shape[1]

    def among(self, texts: pa.Array) -> dict[str, NDArray[np.bool_]]:
        """Say which of some texts are among these sentences.

        Returns:
            `NAME, exact` and, if asked for, `NAME, near`: whether each text is one. A text that is
            both is exact. # (texts,)
        """
        plain_texts = normalize_texts(texts)
        exact = np.isin(text_hashes(plain_texts), self._exact)
        found = {f"{self.name}, exact": exact}
        if self._near:
            near = np.zeros(len(texts), np.bool_)
            rest = np.flatnonzero(~exact)
            near[rest] = self._nearly(plain_texts.take(pa.array(rest)))
            found[f"{self.name}, near"] = near
        return found

    def _nearly(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Say which plain texts are near duplicates. Two share a key before they are compared."""
        nearly = np.zeros(len(texts), np.bool_)
        if not len(texts):
            return nearly
        keys, owners = self._keys
        asked = near_keys_of_plain(texts)  # (texts, bands)
        begin, end = (np.searchsorted(keys, asked, side) for side in ("left", "right"))
        counts = end - begin  # (texts, bands)
        both = pa.chunked_array([texts, self._plain]).combine_chunks()
        # Texts with one boilerplate share keys with each other: their pairs never are all there.
        totals = np.cumsum(counts.sum(axis=1))
        start = 0
        while start < len(texts):
            before = totals[start - 1] if start else 0
            stop = int(np.searchsorted(totals, before + _PAIRS_AT_ONCE, "right"))
            some = slice(start, max(stop, start + 1))
            many = counts[some].ravel()
            text = np.repeat(np.arange(start, some.stop), counts[some].sum(axis=1))
            within = np.arange(len(text)) - np.repeat(np.cumsum(many) - many, many)
            own = owners[np.repeat(begin[some].ravel(), many) + within]
            pairs = np.unique(np.stack([text, own], axis=1), axis=0)  # (pairs, 2)
            alike = likenesses(both, pairs[:, 0], pairs[:, 1] + len(texts)) >= SIMILARITY
            nearly[pairs[alike, 0]] = True
            start = some.stop
        return nearly
