"""Sampled pairs: for each first text, second texts that were written for other inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tilth.data.hashing import random_keys
from tilth.data.labels import is_text

# The origin columns of a sampled pair.
SAMPLED = "sampled"
SAMPLED_TRY = -1
# After so many refused candidates the rest of the ring is searched at once.
_STEPS = 64
ROWS_AT_ONCE = 20_000


def draw_pairs(
    firsts: NDArray[np.int64],
    seconds: NDArray[np.int64],
    partners: tuple[NDArray[np.int64], NDArray[np.int64]],
    hashes: NDArray[np.uint64],
    spelt: NDArray[np.int64],
    *,
    count: int,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw second texts for each first text.

    The second texts stand on a ring in the order of their hashes; each draw starts at a place
    that follows from (seed, first text, number of the draw) and takes the next text that is no
    partner of the first one, in either direction, nor equal to it, in any spelling. So the draws
    do not depend on the order of rows, and a new row changes few of them.

    Args:
        firsts: codes of the distinct first texts. # (firsts,)
        seconds: codes of the distinct second texts. # (seconds,)
        partners: codes of the texts of all known pairs. # 2 x (pairs,)
        hashes: a hash for each code. # (codes,)
        spelt: a number for each code, the same for texts that differ in spelling alone. # (codes,)
        count: draws for each first text; fewer where there are not enough texts.
        seed: of the draws.

    Returns:
        Codes of the first and second texts drawn, in the order of `firsts`. # 2 x (drawn,)
    """
    ring_hashes = random_keys(seed, "sampled second text", hashes[seconds])
    order = np.lexsort((seconds, ring_hashes))
    ring, ring_hashes = seconds[order], ring_hashes[order]  # (seconds,)
    width = np.int64(len(hashes))
    one, two = (spelt[side] for side in partners)
    own = spelt[firsts]
    both = [one * width + two, two * width + one, own * width + own]
    refused = np.unique(np.concatenate(both))
    count, own, around = min(count, len(ring)), own * width, spelt[ring]
    drawn = np.full((count, len(firsts)), -1, np.int64)
    taken = drawn.copy()  # in `spelt`
    for number in range(count):
        start = random_keys(seed, f"sampled pair {number}", hashes[firsts])
        place = np.searchsorted(ring_hashes, start)
        drawn[number] = _next_allowed(own, around, ring, place, refused, taken[:number])
        taken[number] = np.where(drawn[number] < 0, -1, spelt[drawn[number]])
    rows = np.repeat(firsts, count)  # (firsts * count,)
    columns = drawn.T.reshape(-1)  # (firsts * count,)
    return rows[columns >= 0], columns[columns >= 0]


def _next_allowed(
    own: NDArray[np.int64],
    spelt: NDArray[np.int64],
    ring: NDArray[np.int64],
    place: NDArray[np.int64],
    refused: NDArray[np.int64],
    earlier: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return for each place the next text on the ring that is allowed; -1 where none is.

    `own` plus a text's number in `spelt` is the key of a pair, which `refused` may hold.
    """
    found = np.full(len(own), -1, np.int64)
    open_ = np.arange(len(own))
    for step in range(min(_STEPS, len(ring))):
        at = (place[open_] + step) % len(ring)
        candidate = ring[at]
        bad = _among(own[open_] + spelt[at], refused)
        bad |= (earlier[:, open_] == spelt[at]).any(axis=0)
        found[open_[~bad]] = candidate[~bad]
        open_ = open_[bad]
        if not len(open_):
            return found
    if len(ring) > _STEPS:
        # Few are left: each is a partner of most texts of the ring.
        for first in open_.tolist():
            turned, keys = (np.roll(one, -int(place[first])) for one in (ring, spelt))
            bad = _among(own[first] + keys, refused)
            bad |= np.isin(keys, earlier[:, first])
            if not bad.all():
                found[first] = turned[int(np.argmin(bad))]
    return found


def _among(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    among: NDArray[np.bool_] = ordered[place] == values
    return among


def sampled_tables(
    table: pa.Table, firsts: NDArray[np.int64], seconds: NDArray[np.int64], seed: int
) -> Iterator[pa.Table]:
    """Yield pairs of rows that hold a first and a second text as rows with label 0.

    Columns of generated sets get the source_id of the first text, try -1, "sampled" as task, model
    and label_origin, and the seed of the draws; others get nulls.
    """
    if not len(firsts):
        return
    # Of one chunk each: taking from several joins them every time.
    taken = {
        name: _joined(table[name])
        for name in ("text_a", "source_id", "text_b")
        if name in table.column_names
    }
    for start in range(0, len(firsts), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        places = {"text_a": firsts[rows], "source_id": firsts[rows], "text_b": seconds[rows]}
        count = len(firsts[rows])
        columns = []
        for field in table.schema:
            column = pa.nulls(count, field.type)
            if field.name in taken:
                column = taken[field.name].take(pa.array(places[field.name])).cast(field.type)
            elif field.name == "label":
                column = pa.array(np.zeros(count)).cast(field.type)
            elif field.name == "try" and pa.types.is_signed_integer(field.type):
                column = pa.repeat(pa.scalar(SAMPLED_TRY, field.type), count)
            elif field.name == "seed" and pa.types.is_int64(field.type):
                column = pa.repeat(pa.scalar(seed, field.type), count)
            elif field.name in ("task", "model", "label_origin") and is_text(field.type):
                column = pa.repeat(pa.scalar(SAMPLED, field.type), count)
            columns.append(column)
        yield pa.table(columns, schema=table.schema)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one chunk; more than 2 GB of text need large offsets."""
    if is_text(column.type):
        column = column.cast(pa.large_string())
    return column.combine_chunks()
