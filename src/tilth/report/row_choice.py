"""Which rows are shown to be read: drawn by the seed, never picked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import pyarrow as pa
import pyarrow.compute as pc

from tilth.report.figures import Example
from tilth.report.quality import Tally, examples

INPUTS_TOGETHER = 8  # inputs shown with all that was written for them
LABELS_TOGETHER = 6  # with more labels, examples are shown label by label


def same_input(tally: Tally, tries: Iterable[pa.Table]) -> list[list[Example]]:
    """Return what was written for a few inputs under every label.

    Args:
        tally: what the draw was made from.
        tries: all tries of the run, once more.
    """
    if not tally.paired or not 2 <= len(tally.labels) <= LABELS_TOGETHER:
        return []
    drawn = (row.text_a for label in tally.labels for row in tally.kept_rows(label, 50))
    inputs = list(dict.fromkeys(text for text in drawn if text))[:INPUTS_TOGETHER]
    found: dict[str, list[Example]] = {text: [] for text in inputs}
    for table in tries:
        here = table.filter(
            pc.and_(
                pc.is_in(table["text_a"], value_set=pa.array(inputs, pa.string())),
                pc.is_null(table["drop_reason"]),
            )
        )
        for row in examples(here):
            found[row.text_a or ""].append(row)
    order = {label: place for place, label in enumerate(tally.labels)}
    return [
        sorted(rows, key=lambda row: order[row.label])[: 3 * len(order)] for rows in found.values()
    ]


def kept_examples(tally: Tally) -> list[Example]:
    """Return a few kept rows per label."""
    each = max(1, min(6, 90 // len(tally.labels)))
    return [row for label in tally.labels for row in tally.kept_rows(label, each)]


def dropped_examples(tally: Tally) -> list[Example]:
    """Return a few dropped rows per label: one of each reason first, then a second of each."""
    few = max(1, min(4, 60 // len(tally.labels)))
    shown: list[Example] = []
    by_label: dict[str, list[list[Example]]] = {}
    for row in tally.dropped_rows():
        reasons = by_label.setdefault(row.label, [])
        if not reasons or reasons[-1][0].reason != row.reason:
            reasons.append([])
        reasons[-1].append(row)
    for reasons in by_label.values():
        turns = [row for turn in zip_longest(*reasons) for row in turn if row is not None]
        shown += turns[:few]
    return shown
