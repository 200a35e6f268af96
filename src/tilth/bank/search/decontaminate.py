"""Exclude sentences from hits: equal ones after normalisation, and near duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import clean_text
from tilth.bank.quantization import Floats
from tilth.bank.store import Ids, Store
from tilth.data.hashing import text_hashes
from tilth.data.near_duplicates import SIMILARITY, jaccard, near_keys
from tilth.data.normalize import normalize_texts
from tilth.data.segment import split_paragraphs
from tilth.errors import InputError

# Least words of a single sentence of a longer text.
_WORDS = 5
_PAIRS_AT_ONCE = 1 << 20
_TEXTS_AT_ONCE = 100_000


class Exclusion:
    """Sentences to exclude from hits, such as those of a test set.

    A longer text is matched as a whole and by its sentences of five or more words; shorter ones say
    too little to exclude a hit. Spaces do not count: a set may be tokenised ("does n't", "$ 5").

    Args:
        language: of the bank, by whose rules texts are split into sentences.
    """

    def __init__(
        self, name: str, texts: Sequence[str], *, near: bool = True, language: str = "en"
    ) -> None:
        if not len(texts):
            raise InputError(f"{name}: holds no sentence to leave out: give some, or none of it")
        self.name, self._near = name, near
        whole = normalize_texts(pa.array(map(clean_text, texts), pa.large_string()))
        sentences, _ = split_paragraphs(clean_text("\n".join(texts)).split("\n"), language)
        sentences = normalize_texts(sentences)
        is_long = pc.greater_equal(pc.count_substring(sentences, " "), _WORDS - 1)
        self._texts = pa.concat_arrays([whole, sentences.filter(is_long)]).unique()

    @cached_property
    def _exact(self) -> NDArray[np.uint64]:
        return _spaceless_hashes(self._texts)

    @cached_property
    def _keys(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return all near keys, sorted, and which text each is of."""
        keys = near_keys(self._texts)  # (texts, bands)
        order = np.argsort(keys, axis=None, kind="stable")
        return keys.ravel()[order], order // keys.shape[1]

    def match(self, texts: pa.Array) -> dict[str, NDArray[np.bool_]]:
        """Tell which of some texts are excluded.

        Returns:
            `NAME, exact` and, with `near`, `NAME, near`: whether each text is excluded. A text
            that is both is exact. # (texts,)
        """
        texts = normalize_texts(texts)
        exact = np.isin(_spaceless_hashes(texts), self._exact)
        found = {f"{self.name}, exact": exact}
        if self._near:
            near = np.zeros(len(texts), np.bool_)
            rest = np.flatnonzero(~exact)
            near[rest] = self._near_duplicates(texts.take(pa.array(rest)))
            found[f"{self.name}, near"] = near
        return found

    def _near_duplicates(self, texts: pa.Array) -> NDArray[np.bool_]:
        """Tell which normalized texts are near duplicates: those that share a key are compared."""
        is_near = np.zeros(len(texts), np.bool_)
        if not len(texts):
            return is_near
        keys, owners = self._keys
        own_keys = near_keys(texts)  # (texts, bands)
        begin, end = (np.searchsorted(keys, own_keys, side) for side in ("left", "right"))
        counts = end - begin  # (texts, bands)
        both = pa.chunked_array([texts, self._texts]).combine_chunks()
        # Texts with one boilerplate share keys with each other: pairs are made in slices.
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
            similar = jaccard(both, pairs[:, 0], pairs[:, 1] + len(texts)) >= SIMILARITY
            is_near[pairs[similar, 0]] = True
            start = some.stop
        return is_near


def _spaceless_hashes(normalized: pa.Array) -> NDArray[np.uint64]:
    """Return hashes of normalized texts without spaces, but for those between two digits."""
    for _ in range(2):  # "1 2 3" holds two, which overlap
        normalized = pc.replace_substring_regex(normalized, r"(\d) (\d)", r"\1_\2")
    return text_hashes(pc.replace_substring(normalized, " ", ""))


def find_excluded(
    store: Store, ids: Ids, exclusions: Sequence[Exclusion]
) -> dict[str, NDArray[np.bool_]]:
    """Return for each reason which sentences are excluded, each for the first that applies.

    Args:
        ids: of distinct sentences.
    """
    found: dict[str, list[NDArray[np.bool_]]] = {}
    for start in range(0, max(len(ids), 1), _TEXTS_AT_ONCE):
        texts = store.texts(ids[start : start + _TEXTS_AT_ONCE])
        gone = np.zeros(len(texts), np.bool_)
        for exclusion in exclusions:
            for reason, mask in exclusion.match(texts).items():
                found.setdefault(reason, []).append(mask & ~gone)
                gone |= mask
    return {reason: np.concatenate(masks) for reason, masks in found.items()}


def remove_excluded(
    store: Store, ids: Ids, similarities: Floats, exclusions: Sequence[Exclusion], k: int
) -> dict[str, int]:
    """Set the similarity of excluded candidates to -inf; count them by reason.

    Only candidates nearer than the last of a query's k remaining hits count.
    """
    if not exclusions:
        return {}
    before = similarities.copy()
    distinct = np.unique(ids[ids >= 0])
    masks = find_excluded(store, distinct, exclusions)
    gone = {reason: distinct[mask] for reason, mask in masks.items()}
    for numbers in gone.values():
        similarities[np.isin(ids, numbers)] = -np.inf
    last = -np.sort(-similarities, axis=1)[:, k - 1 : k]  # (queries, 1), or none of so many
    nearer = before > last if last.size else np.isfinite(before)
    counted = np.unique(ids[nearer])
    return {reason: int(np.isin(numbers, counted).sum()) for reason, numbers in gone.items()}
