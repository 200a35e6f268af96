"""The rows of the page's charts: a name, its figure, and a drawing of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from tilth.report.content import Likeness, Report
from tilth.report.figures import percent
from tilth.report.plots import axis, bar, histogram, ridge

REASONS = {
    "not-closed": "no closing quotation mark within the token limit",
    "newline": "a new line before the closing quotation mark",
    "empty": "nothing before the closing quotation mark",
    "prompt-too-long": "instruction and input are longer than the model's positions",
    "not-a-number": "the model answered with values that are no numbers",
    "label-fit": "nearer to another label's description, or to none",
    "identical-pair": "both texts are the same",
    "duplicate": "the same row was there before",
    "near-duplicate": "almost the same row was there before",
    "over-per-label": "the input has enough rows for this label",
}


@dataclass(frozen=True, slots=True)
class ChartRow:
    """One row: what it is about, its figure, a note, the drawing, and what the name means."""

    name: str
    value: str
    note: str
    chart: Markup
    means: str = ""
    axis: Markup | None = None


def drop_rows(
    dropped: dict[str, int], total: int, means: Mapping[str, str] = REASONS
) -> list[ChartRow]:
    """Return one bar per reason, as long as the reason is frequent."""
    return [
        ChartRow(
            name=reason,
            means=means.get(reason, ""),
            value=f"{count:,}",
            note=percent(count / total) if total else "",
            chart=bar(count / max(dropped.values()), kind="bar drop"),
        )
        for reason, count in dropped.items()
    ]


def balance_rows(counts: dict[str, int]) -> list[ChartRow]:
    """Return one bar per label, as long as the label is frequent."""
    total, most = sum(counts.values()), max(counts.values(), default=0)
    return [
        ChartRow(
            name=label,
            value=f"{count:,}",
            note=percent(count / total) if total else "",
            chart=bar(count / most if most else 0.0),
        )
        for label, count in counts.items()
    ]


def length_rows(report: Report) -> list[ChartRow]:
    """Return one histogram per label, all cut at the same length and in the same bins."""
    counts = {label: np.array(row) for label, row in report.lengths.items() if sum(row)}
    if not counts:
        return []
    total = np.sum(list(counts.values()), axis=0)
    # The longest half per cent would squeeze all others; it goes into the last bin.
    last = int(np.searchsorted(np.cumsum(total), 0.995 * total.sum()))
    width = last // 30 + 1
    bins = last // width + 1
    more = "+" if total[last + 1 :].any() or width > 1 else ""
    rows = []
    for label, row in counts.items():
        binned = [int(row[i * width : (i + 1) * width].sum()) for i in range(bins - 1)]
        binned.append(int(row[(bins - 1) * width :].sum()))
        words = np.repeat(np.arange(len(row)), row)
        low, middle, high = (int(x) for x in np.percentile(words, [10, 50, 90]))
        rows.append(
            ChartRow(
                name=label,
                value=f"{middle} words",
                note=f"80% are {low} to {high}",
                chart=histogram(
                    binned,
                    text=f"Label {label}: lengths in words; median {middle}, "
                    f"80% between {low} and {high}.",
                ),
                axis=axis(
                    [
                        (0.0, "0"),
                        (0.5, f"{bins * width // 2}"),
                        (1.0, f"{(bins - 1) * width}{more}"),
                    ]
                ),
            )
        )
    return rows


def _likeness_range(likeness: Likeness) -> tuple[float, float]:
    lowest = min(float(values.min()) for values in likeness.values.values())
    return (0.0 if lowest >= 0 else float(np.floor(lowest * 5) / 5), 1.0)


def likeness_rows(likeness: Likeness | None) -> list[ChartRow]:
    """Return one hill per label, all over the same axis."""
    if likeness is None:
        return []
    low, high = _likeness_range(likeness)
    rows = []
    for label, values in likeness.values.items():
        first, middle, third = np.percentile(values, [25, 50, 75])
        rows.append(
            ChartRow(
                name=label,
                value=f"{middle:.2f}",
                note=f"half {first:.2f} to {third:.2f}",
                chart=ridge(
                    values,
                    low=low,
                    high=high,
                    text=f"Label {label}: similarity of input and output; median {middle:.2f}, "
                    f"half between {first:.2f} and {third:.2f}, from {values.min():.2f} "
                    f"to {values.max():.2f}.",
                ),
            )
        )
    return rows


def likeness_axis(likeness: Likeness | None) -> Markup:
    """Return the numbers under the hills."""
    if likeness is None:
        return Markup("")
    low, high = _likeness_range(likeness)
    values = np.linspace(low, high, 5)
    return axis([(float((v - low) / (high - low)), f"{v:.2g}") for v in values])


def count_of(number_of: int, name: str) -> str:
    """Return a number with its noun, as in "3 labels"."""
    return f"{number_of:,} {name}" + ("" if number_of == 1 else "s")
