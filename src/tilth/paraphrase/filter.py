"""Which candidates may be drawn, and why the others may not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.hashing import random_keys, text_hashes
from tilth.data.normalize import exact_keys, normalize_text
from tilth.paraphrase.balance import Pool, distinct
from tilth.paraphrase.candidate_reader import SCORES, Candidates, Chunk
from tilth.paraphrase.similarity import counted
from tilth.paraphrase.tags import MEANINGS, ROUNDING, cells_of

BINS = 20  # of the plane of meaning and wording, in each direction: 5 points wide

NO_SCORE, SHORT = "no score from 0 to 100", "a text under 4 words"
MEANING_LOW, WORDING_HIGH = "meaning 70 or less", "wording above 45"
SAME, TWICE = "rewrite same as source", "pair there twice"
REASONS = (NO_SCORE, SHORT, MEANING_LOW, WORDING_HIGH, SAME, TWICE)


@dataclass(frozen=True, slots=True)
class Kept:
    """What may be drawn, and what there was.

    Attributes:
        pool: the pairs.
        left_out: reason -> rows; each row counts for the first reason it meets.
        plane: pairs with a score and enough words, by meaning and wording. # (BINS, BINS)
        highest: the highest meaning met, NaN without any.
    """

    pool: Pool
    left_out: dict[str, int]
    plane: NDArray[np.int64]
    highest: float


def keep(
    candidates: Candidates,
    scores: Callable[[Chunk], pa.Table],
    *,
    seed: int,
    seen: Callable[[int], object] = lambda _: None,
) -> Kept:
    """Apply the paper's filter, and leave out rewrites same as their source, and pairs met twice.

    Memory grows with the pairs that are kept, by 42 bytes each, not with the texts.

    Args:
        candidates: what is read.
        scores: gives meaning and wording of a chunk, (rows,) each.
        seed: of the order in which pairs are drawn.
        seen: called with the number of rows after each chunk.

    Reference:
        Ogasa, Kajiwara and Arase, section 3.3; texts under 4 words: footnote 12.
    """
    left_out = Counter(dict.fromkeys(REASONS, 0))
    plane = np.zeros((BINS, BINS), np.int64)
    pools, highest = [], float("nan")
    for chunk in candidates.chunks():
        first, second = candidates.texts(chunk)
        table = scores(chunk)
        meaning, wording = (table[name].to_numpy().astype(np.float32) for name in SCORES)
        highest = float(np.fmax(highest, np.fmax.reduce(meaning)))
        reasons = _reasons(meaning, wording, counted(first, second))
        measured = (reasons != NO_SCORE) & (reasons != SHORT)
        plane += planed(meaning[measured], wording[measured])
        places = np.flatnonzero(reasons == "")
        same = np.array([_same(first[place], second[place]) for place in places], np.bool_)
        reasons[places[same]] = SAME
        left_out.update(reasons[reasons != ""].tolist())
        places = places[~same]
        pools.append(
            _pool(
                candidates.first_row(chunk) + places,
                [first[place] for place in places],
                [second[place] for place in places],
                meaning[places],
                wording[places],
                seed,
            )
        )
        seen(len(first))
    pool = _joined(pools)
    kept = distinct(pool)
    left_out[TWICE] += len(pool) - len(kept)
    return Kept(kept, dict(left_out), plane, highest)


def planed(meaning: NDArray[np.float32], wording: NDArray[np.float32]) -> NDArray[np.int64]:
    """Count measured values in the bins of the plane, 5 points wide in both directions.

    Args:
        meaning: 0 to 100; cosines below 0 count as 0. # (pairs,)
        wording: 0 to 100. # (pairs,)
    """
    places = [
        np.clip(values * (BINS / 100), 0, BINS - 1).astype(np.int64)
        for values in (meaning, wording)
    ]
    counts = np.bincount(places[0] * BINS + places[1], minlength=BINS * BINS)
    return counts.reshape(BINS, BINS)  # (meaning, wording)


def _reasons(
    meaning: NDArray[np.float32], wording: NDArray[np.float32], worded: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """Return for each row why it is left out, or nothing."""
    known = (meaning <= 100 + ROUNDING) & (wording >= 0) & (wording <= 100 + ROUNDING)
    reasons = np.full(len(meaning), WORDING_HIGH, np.object_)
    reasons[cells_of(meaning, wording) >= 0] = ""
    reasons[meaning <= MEANINGS[0]] = MEANING_LOW
    reasons[~worded] = SHORT
    reasons[~known] = NO_SCORE
    return reasons  # (rows,)


def _same(source: str, rewrite: str) -> bool:
    return normalize_text(source) == normalize_text(rewrite)


def _pool(
    rows: NDArray[np.int64],
    first: list[str],
    second: list[str],
    meaning: NDArray[np.float32],
    wording: NDArray[np.float32],
    seed: int,
) -> Pool:
    texts = [pa.array(one, pa.large_string()) for one in (first, second)]
    return Pool(
        row=rows,
        cell=cells_of(meaning, wording),
        source=exact_keys(texts[0]),
        rewrite=exact_keys(texts[1]),
        order=random_keys(seed, "paraphrase draw", *map(text_hashes, texts)),
        meaning=meaning,
        wording=wording,
    )


def _joined(pools: Sequence[Pool]) -> Pool:
    return Pool(
        *(
            np.concatenate([getattr(pool, name) for pool in pools])
            for name in Pool.__dataclass_fields__
        )
    )
