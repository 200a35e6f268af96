"""Filters candidates, and counts the reasons for exclusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import exact_keys, normalize_text
from tilth.paraphrase.balance import PairPool, distinct
from tilth.paraphrase.candidate_reader import SCORES, Candidates, Chunk
from tilth.paraphrase.similarity import long_enough
from tilth.paraphrase.tags import MEANINGS, ROUNDING, cells_of

BINS = 20  # of the plane of meaning and wording, in each direction: 5 points wide

NO_SCORE, SHORT = "no score from 0 to 100", "a text under 4 words"
MEANING_LOW, WORDING_HIGH = "meaning 70 or less", "wording above 45"
SAME, TWICE = "rewrite same as source", "pair there twice"
REASONS = (NO_SCORE, SHORT, MEANING_LOW, WORDING_HIGH, SAME, TWICE)


@dataclass(frozen=True, slots=True)
class FilteredPairs:
    """The pairs that may be drawn, and counts of all.

    Attributes:
        left_out: reason -> rows; each row counts for the first reason that applies.
        plane: pairs with a score and enough words, by meaning and wording. # (BINS, BINS)
        highest: the highest meaning, NaN without any.
    """

    pool: PairPool
    left_out: dict[str, int]
    plane: NDArray[np.int64]
    highest: float


def filter_candidates(
    candidates: Candidates,
    scores: Callable[[Chunk], pa.Table],
    *,
    seed: int,
    progress: Callable[[int], object] = lambda _: None,
) -> FilteredPairs:
    """Apply the paper's filter; leave out rewrites equal to their source, and repeated pairs.

    Memory grows with the kept pairs, by 42 bytes each, not with the texts.

    Args:
        scores: returns meaning and wording of a chunk, (rows,) each.
        seed: of the order in which pairs are drawn.
        progress: called with the number of rows after each chunk.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.3; texts under 4 words: footnote 12.
    """
    left_out = Counter(dict.fromkeys(REASONS, 0))
    plane = np.zeros((BINS, BINS), np.int64)
    pools, highest = [], float("nan")
    for chunk in candidates.chunks:
        first, second = candidates.texts(chunk)
        table = scores(chunk)
        meaning, wording = (table[name].to_numpy().astype(np.float32) for name in SCORES)
        highest = float(np.fmax(highest, np.fmax.reduce(meaning)))
        reasons = _reasons(meaning, wording, long_enough(first, second))
        measured = (reasons != NO_SCORE) & (reasons != SHORT)
        plane += plane_counts(meaning[measured], wording[measured])
        for row in np.flatnonzero(reasons == ""):
            if normalize_text(first[row]) == normalize_text(second[row]):
                reasons[row] = SAME
        left_out.update(reasons[reasons != ""].tolist())
        rows = np.flatnonzero(reasons == "")
        texts = [
            pa.array([side[row] for row in rows], pa.large_string()) for side in (first, second)
        ]
        pools.append(
            PairPool(
                row=candidates.first_row(chunk) + rows,
                cell=cells_of(meaning[rows], wording[rows]),
                source=exact_keys(texts[0]),
                rewrite=exact_keys(texts[1]),
                order=random_keys(seed, "paraphrase draw", *map(text_hashes, texts)),
                meaning=meaning[rows],
                wording=wording[rows],
            )
        )
        progress(len(first))
    names = [field.name for field in fields(PairPool)]
    pool = PairPool(*(np.concatenate([getattr(one, name) for one in pools]) for name in names))
    kept = distinct(pool)
    left_out[TWICE] += len(pool) - len(kept)
    return FilteredPairs(kept, dict(left_out), plane, highest)


def plane_counts(meaning: NDArray[np.float32], wording: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count pairs in bins of 5 points of meaning and wording; cosines below 0 count as 0."""
    bins = [
        np.clip(values * (BINS / 100), 0, BINS - 1).astype(np.int64)
        for values in (meaning, wording)
    ]
    counts = np.bincount(bins[0] * BINS + bins[1], minlength=BINS * BINS)
    return counts.reshape(BINS, BINS)  # (meaning, wording)


def _reasons(
    meaning: NDArray[np.float32], wording: NDArray[np.float32], long: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return the reason for excluding each row, or an empty text, (rows,)."""
    known = (meaning <= 100 + ROUNDING) & (wording >= 0) & (wording <= 100 + ROUNDING)
    reasons = np.full(len(meaning), WORDING_HIGH, np.object_)
    reasons[cells_of(meaning, wording) >= 0] = ""
    reasons[meaning <= MEANINGS[0]] = MEANING_LOW
    reasons[~long] = SHORT
    reasons[~known] = NO_SCORE
    return reasons
