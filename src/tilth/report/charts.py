"""The rows of the page's charts: a name, its figure, and a drawing of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from tilth.report.figures import number, percent
from tilth.report.generation import Likeness, Report


def bar(share: float, *, kind: str = "bar") -> Markup:
    """Return a horizontal bar.

    Args:
        share: length, 0 to 1 of the width.
        kind: CSS class of the bar.
    """
    width = 100 * min(max(share, 0.0), 1.0)
    if 0 < width < 0.6:
        width = 0.6  # something is there
    return Markup(
        '<svg class="chart" height="12" aria-hidden="true">'
        '<rect class="{}" width="{:.2f}%" height="12" rx="3"/></svg>'
    ).format(kind, width)


def histogram(counts: Sequence[int], *, text: str, top: float | None = None) -> Markup:
    """Return upright bars side by side.

    Args:
        counts: heights, one per bin.
        text: what a reader who does not see the chart is told.
        top: the height that fills the chart; the highest count when None.
    """
    highest = top or max(counts, default=0) or 1
    step = 100 / max(len(counts), 1)
    bars = [
        f'<rect class="bar" x="{place * step + 0.08 * step:.2f}%" y="{44 - 44 * n / highest:.1f}" '
        f'width="{0.84 * step:.2f}%" height="{44 * n / highest:.1f}"/>'
        for place, n in enumerate(counts)
        if n
    ]
    return _chart(46, text, "".join(bars) + '<rect class="ground" y="45" width="100%" height="1"/>')


def ridge(values: NDArray[np.float64], *, low: float, high: float, text: str) -> Markup:
    """Return the distribution of values: a smooth hill, the middle half as a bar, the median.

    Args:
        values: at least one.
        low: value at the left edge.
        high: value at the right edge.
        text: what a reader who does not see the chart is told.
    """
    heights = density(values, low=low, high=high)
    xs = np.linspace(0, 100, len(heights))
    line = " ".join(f"{x:.2f},{40 - 38 * y:.2f}" for x, y in zip(xs, heights, strict=True))
    quarters = np.percentile(values, [25, 50, 75])
    left, median, right = np.clip(100 * (quarters - low) / (high - low), 0, 100)
    hill = (
        '<svg x="0" width="100%" height="40" viewBox="0 0 100 40" preserveAspectRatio="none">'
        f'<polygon class="hill" points="0,40 {line} 100,40"/>'
        f'<polyline class="hill-line" points="{line}"/></svg>'
    )
    marks = (
        '<rect class="ground" y="40" width="100%" height="1"/>'
        f'<rect class="half" x="{left:.2f}%" y="43" width="{max(right - left, 0.5):.2f}%" '
        'height="5" rx="2"/>'
        f'<svg x="{median:.2f}%" width="4" height="52" overflow="visible">'
        '<rect class="median" x="-1.5" y="40" width="3" height="11" rx="1"/></svg>'
    )
    return _chart(52, text, hill + marks)


def axis(ticks: Sequence[tuple[float, str]]) -> Markup:
    """Return the numbers under a chart: (place from 0 to 1, text) each."""
    parts = []
    for place, label in ticks:
        anchor = "start" if place <= 0.01 else "end" if place >= 0.99 else "middle"
        parts.append(
            f'<text class="tick" x="{100 * place:.2f}%" y="11" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )
    return Markup(f'<svg class="chart" height="14" aria-hidden="true">{"".join(parts)}</svg>')


def density(
    values: NDArray[np.float64], *, low: float, high: float, bins: int = 96
) -> NDArray[np.float64]:
    """Return a smoothed histogram scaled to a highest place of 1, (bins,).

    A Gaussian of 2.5% of the range smooths it; at both edges what would flow over is mirrored
    back, so that values piled up at 0 stay visible as a pile at 0.
    """
    counts, _ = np.histogram(np.clip(values, low, high), bins=bins, range=(low, high))
    reach = np.arange(-bins // 8, bins // 8 + 1)
    kernel = np.exp(-0.5 * (reach / (0.025 * bins)) ** 2)
    padded = np.pad(counts.astype(np.float64), bins // 8, mode="symmetric")
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="valid")  # (bins,)
    return np.asarray(smooth / smooth.max()) if smooth.max() > 0 else smooth


def _chart(height: int, text: str, inside: str) -> Markup:
    """Wrap SVG parts that hold numbers only; the text is escaped."""
    return Markup(
        f'<svg class="chart" height="{height}" role="img" aria-label="{escape(text)}">'
        f"{inside}</svg>"
    )


BAR_HEIGHT = 170  # pixels from the bottom of the scale to its top
CURVE_HEIGHT = 110
ROOM = 17  # pixels for a line of text above or below
WIDEST = 13.0  # per cent of the chart; few bars stay bars
GAP = 0.6  # of a bar's place, between measured and published


@dataclass(frozen=True, slots=True)
class Column:
    """One bar: what stands under it, its height, its interval, and how it is drawn.

    Attributes:
        key: a short text under the bar, the same in the legend.
        text: what a reader who points at the bar, or does not see it, is told.
        value: height; None when missing.
        low: lower end of the whisker; no whisker without both ends.
        high: upper end of the whisker.
        colour: CSS class that sets its colour.
        published: drawn hollow, behind a gap.
    """

    key: str
    text: str
    value: float | None
    low: float | None = None
    high: float | None = None
    colour: str = ""
    published: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The values at the bottom and the top of a chart, and where its lines lie."""

    low: float
    high: float
    lines: tuple[float, ...]

    def y(self, value: float, height: int) -> float:
        """Return the pixels from the top of the scale down to a value."""
        return height * (self.high - value) / (self.high - self.low)


def scale_over(values: Iterable[float | None], *, zero: bool) -> Scale:
    """Return a scale with round lines that holds all values.

    Args:
        values: missing ones are left out.
        zero: whether 0 must be on it; the length of a bar means nothing otherwise.
    """
    held = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(held, default=0.0), max(held, default=1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low, high + 1.0) if zero else (low - 0.5, high + 0.5)
    step = _step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    lines = tuple(place * step for place in range(first, last + 1))
    return Scale(low=lines[0], high=lines[-1], lines=lines)


def bar_chart(columns: Sequence[Column], scale: Scale, *, title: str, text: str) -> Markup:
    """Return upright bars from the zero line, measured ones first, with whiskers and values.

    Args:
        columns: the bars from left to right.
        scale: the same for all charts that are compared.
        title: name of the chart.
        text: what a reader who does not see the chart is told.
    """
    order = sorted(columns, key=lambda column: column.published)
    measured = sum(not column.published for column in order)
    gap = GAP if 0 < measured < len(order) else 0.0
    place = 100 / max(len(order) + gap, 1)  # per cent
    below = ROOM if scale.low < 0 else 0  # a value under a negative bar
    parts = []
    for i, column in enumerate(order):
        middle = (i + 0.5 + (gap if column.published else 0.0)) * place
        parts.append(_column(column, scale, middle=middle, width=min(0.74 * place, WIDEST)))
        parts.append(_words(middle, 2 * ROOM + BAR_HEIGHT + below - 3, "tick", column.key))
    height = BAR_HEIGHT + 2 * ROOM + below
    if measured < len(order):
        height += ROOM
        parts.append(_words(100, height - 3, "tick publisher", "published", "end"))
    if gap:
        line = (measured + gap / 2) * place
        parts.append(_line("between", (line, line), (ROOM, height)))
    return _beside_scale(scale, BAR_HEIGHT, height, "".join(parts), title=title, text=text)


def curve_chart(
    steps: Sequence[int],
    values: Sequence[float | None],
    scale: Scale,
    *,
    last: int,
    best: int,
    behind: str,
    title: str,
    text: str,
) -> Markup:
    """Return one curve over its steps, with the kept step marked, before all others in grey.

    Args:
        steps: place of each value along x, from 0 to `last`.
        values: one per step; missing ones leave a gap.
        scale: the same for all curves that are compared.
        last: the step at the right edge.
        best: the step to mark.
        behind: id of the drawing behind it, from `all_curves`.
        title: name of the chart.
        text: what a reader who does not see the chart is told.
    """
    plot = (
        f'<svg y="{ROOM}" width="100%" height="{CURVE_HEIGHT}" viewBox="0 0 100 {CURVE_HEIGHT}" '
        f'preserveAspectRatio="none" overflow="visible"><use href="#{behind}"/>'
        f"{_polylines(steps, values, scale, last=last, kind='curve')}</svg>"
    )
    x = 100 * best / max(last, 1)
    value = finite(dict(zip(steps, values, strict=True)).get(best))
    foot = ROOM + CURVE_HEIGHT
    mark = _line("kept-line", (x, x), (ROOM, foot))
    if value is not None:
        y = ROOM + scale.y(value, CURVE_HEIGHT)
        mark += f'<circle class="kept" cx="{x:.2f}%" cy="{y:.1f}" r="4.5"/>'
    ticks = _words(0, foot + 14, "tick", "0", "start") + _words(
        100, foot + 14, "tick", f"{last:,} steps", "end"
    )
    return _beside_scale(
        scale, CURVE_HEIGHT, foot + ROOM, plot + mark + ticks, title=title, text=text
    )


def all_curves(
    curves: Iterable[tuple[Sequence[int], Sequence[float | None]]],
    scale: Scale,
    *,
    last: int,
    name: str,
) -> Markup:
    """Return all curves as one drawing that is not shown itself but used by every chart."""
    lines = "".join(
        _polylines(steps, values, scale, last=last, kind="others") for steps, values in curves
    )
    return Markup(
        f'<svg width="0" height="0" class="store" aria-hidden="true">'
        f'<defs><g id="{name}">{lines}</g></defs></svg>'
    )


def finite(value: float | None) -> float | None:
    """Return the value, or None when it is no finite number."""
    return value if value is not None and math.isfinite(value) else None


def _step(rough: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten that is not smaller."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= rough - 1e-12)


def _column(column: Column, scale: Scale, *, middle: float, width: float) -> str:
    value, low, high = finite(column.value), finite(column.low), finite(column.high)
    zero = ROOM + scale.y(0.0, BAR_HEIGHT)
    if value is None:
        inside = _words(middle, zero - 5, "value", number(None, 1))
    else:
        y = ROOM + scale.y(value, BAR_HEIGHT)
        kind = "published" if column.published else "measured"
        inside = (
            f'<rect class="{kind}" x="{middle - width / 2:.2f}%" y="{min(y, zero):.1f}" '
            f'width="{width:.2f}%" height="{abs(y - zero):.1f}"/>'
        )
        ends = [value]
        if low is not None and high is not None:
            ends += [low, high]
            inside += _whisker(middle, width / 4, low, high, scale)
        up = value >= 0
        outer = ROOM + scale.y(max(ends) if up else min(ends), BAR_HEIGHT)
        inside += _words(middle, outer - 5 if up else outer + 13, "value", number(value, 1))
    return f'<g class="{escape(column.colour)}"><title>{escape(column.text)}</title>{inside}</g>'


def _whisker(middle: float, reach: float, low: float, high: float, scale: Scale) -> str:
    """Return an upright line with two caps, on a halo that parts it from its bar."""
    top, foot = (ROOM + scale.y(value, BAR_HEIGHT) for value in (high, low))
    lines = [((middle, middle), (top, foot))]
    lines += [((middle - reach, middle + reach), (y, y)) for y in (top, foot)]
    halo = "".join(_line("halo", *line) for line in lines)
    return halo + _line("whisker", *lines[0]) + "".join(_line("cap", *line) for line in lines[1:])


def _polylines(
    steps: Sequence[int],
    values: Sequence[float | None],
    scale: Scale,
    *,
    last: int,
    kind: str,
) -> str:
    points = sorted(
        ((step, finite(value)) for step, value in zip(steps, values, strict=True)),
        key=lambda point: point[0],
    )
    lines = []
    for held, run in groupby(points, key=lambda point: point[1] is not None):
        if held:
            places = [
                f"{100 * step / max(last, 1):.2f},{scale.y(value, CURVE_HEIGHT):.1f}"
                for step, value in run
                if value is not None
            ]
            # A value alone between two gaps: a line to itself is drawn as a dot.
            places = places * 2 if len(places) == 1 else places
            lines.append(f'<polyline class="{kind}" points="{" ".join(places)}"/>')
    return "".join(lines)


def _beside_scale(
    scale: Scale, plot: int, height: int, inside: str, *, title: str, text: str
) -> Markup:
    """Return the numbers of the scale and, to their right, the chart on its lines."""
    numbers, ground = [], []
    for value in scale.lines:
        y = ROOM + scale.y(value, plot)
        places = max(0, -math.floor(math.log10(abs(scale.lines[1] - scale.lines[0])) + 1e-9))
        numbers.append(_words(100, y + 4, "tick", f"{value + 0.0:.{places}f}", "end"))
        kind = "zero" if abs(value) < 1e-9 else "level"
        ground.append(_line(kind, (0, 100), (y, y)))
    return Markup(
        f'<div class="beside"><svg class="scale" height="{height}" aria-hidden="true">'
        f'{"".join(numbers)}</svg><svg class="chart" height="{height}" role="img">'
        f"<title>{escape(title)}</title><desc>{escape(text)}</desc>"
        f"{''.join(ground)}{inside}</svg></div>"
    )


def _line(kind: str, x: tuple[float, float], y: tuple[float, float]) -> str:
    return (
        f'<line class="{kind}" x1="{x[0]:.2f}%" x2="{x[1]:.2f}%" y1="{y[0]:.1f}" y2="{y[1]:.1f}"/>'
    )


def _words(x: float, y: float, kind: str, words: str, anchor: str = "middle") -> str:
    return (
        f'<text class="{kind}" x="{x:.2f}%" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(words)}</text>"
    )


HEIGHT = 264  # pixels of the plane
_TOP, _FOOT, _SCALE = 10, 34, 30  # pixels above, below and left of it
_TICKS = (0, 25, 50, 75, 100)
_LEGEND = (0.25, 0.5, 0.75, 1.0)  # opacities
_FAINTEST = 0.05  # something is there


class Region(Protocol):
    """A part of the plane to outline, such as a cell; in points."""

    @property
    def meaning(self) -> int:
        """Its left edge."""

    @property
    def meaning_end(self) -> int:
        """Its right edge."""

    @property
    def wording(self) -> int:
        """Its lower edge."""

    @property
    def wording_end(self) -> int:
        """Its upper edge."""


def heat_map(
    plane: NDArray[Any], *, title: str, text: str, outline: Region | None = None
) -> Markup:
    """Return a figure: the shares of pairs by meaning and wording, with its scales and shades.

    Opacity grows with the square root of the share: beside a heap, what is rare stays visible.

    Args:
        plane: counts or shares of pairs by meaning and wording, over 0 to 100 in both directions,
            in squares of one size. # (meaning, wording)
        title: what it shows.
        text: what a reader who does not see it is told.
        outline: a part to frame.
    """
    total = float(plane.sum())
    shares = plane / total if total else np.zeros(plane.shape)
    most = float(shares.max(initial=0.0))
    columns, rows = plane.shape
    squares = []
    for column, row in np.argwhere(shares > 0).tolist():
        share = float(shares[column, row])
        squares.append(
            f'<rect class="bar" x="{100 * column / columns:.2f}%" '
            f'y="{_y(100 * (row + 1) / rows):.1f}" width="{100 / columns:.2f}%" '
            f'height="{HEIGHT / rows:.1f}" fill-opacity="{_opacity(share, most):.3f}"><title>'
            f"meaning {_span(column, columns)}, wording {_span(row, rows)}: {percent(share)}"
            f"</title></rect>"
        )
    drawing = "".join([_ground(), *squares, _frame(outline), _ticks()])
    height = _TOP + HEIGHT + _FOOT
    return Markup(
        f'<figure style="max-width:35rem"><figcaption>{escape(title)}</figcaption>'
        f'<div style="display:flex;gap:6px"><svg style="flex:none" width="{_SCALE}" '
        f'height="{height}" aria-hidden="true">{_scale()}</svg>'
        f'<svg class="chart" style="flex:1;min-width:0" height="{height}" role="img" '
        f'aria-label="{escape(f"{title}. {text}")}">{drawing}</svg></div>{_legend(most)}</figure>'
    )


def _y(wording: float) -> float:
    return _TOP + HEIGHT * (1 - wording / 100)


def _opacity(share: float, most: float) -> float:
    return max(math.sqrt(share / most), _FAINTEST)


def _span(place: int, places: int) -> str:
    return f"{100 * place / places:g} to {100 * (place + 1) / places:g}"


def _ground() -> str:
    """Return the lines of the plane."""
    lines = []
    for tick in _TICKS:
        lines.append(f'<rect class="ground" x="{tick}%" y="{_TOP}" width="1" height="{HEIGHT}"/>')
        lines.append(f'<rect class="ground" y="{_y(tick):.1f}" width="100%" height="1"/>')
    return "".join(lines)


def _frame(region: Region | None) -> str:
    if region is None:
        return ""
    width, height = region.meaning_end - region.meaning, region.wording_end - region.wording
    return (
        f'<rect class="frame" x="{region.meaning}%" y="{_y(region.wording_end):.1f}" '
        f'width="{width}%" height="{HEIGHT * height / 100:.1f}" fill="none" '
        'stroke="currentColor" stroke-width="1.5"/>'
    )


def _ticks() -> str:
    """Return the numbers under the plane, and what they are."""
    parts = []
    for tick in _TICKS:
        anchor = "start" if tick == 0 else "end" if tick == 100 else "middle"
        parts.append(
            f'<text class="tick" x="{tick}%" y="{_TOP + HEIGHT + 14}" text-anchor="{anchor}">'
            f"{tick}</text>"
        )
    middle = f'x="50%" y="{_TOP + HEIGHT + 30}" text-anchor="middle"'
    return "".join(parts) + f'<text class="tick" {middle}>meaning</text>'


def _scale() -> str:
    """Return the numbers left of the plane, and what they are."""
    parts = [
        f'<text class="tick" x="{_SCALE}" y="{_y(tick) + 4:.1f}" text-anchor="end">{tick}</text>'
        for tick in _TICKS
    ]
    middle = _TOP + HEIGHT / 2 - HEIGHT / 8
    turned = f'transform="rotate(-90 9 {middle:.0f})" x="9" y="{middle:.0f}"'
    return "".join(parts) + f'<text class="tick" {turned} text-anchor="middle">wording</text>'


def _legend(most: float) -> str:
    """Return a swatch for some shades, with the share it stands for."""
    if not most:
        return '<p class="means">No pairs.</p>'
    shades = "".join(
        '<span style="white-space:nowrap"><svg width="13" height="13" aria-hidden="true" '
        'style="vertical-align:-2px"><rect class="bar" width="13" height="13" '
        f'fill-opacity="{opacity}"/></svg> {percent(most * opacity**2)}</span> '
        for opacity in _LEGEND
    )
    return (
        '<p class="means" style="display:flex;flex-wrap:wrap;gap:0 .9rem;margin-top:.4rem">'
        f"<span>Share of the pairs in a square:</span> {shades}</p>"
    )


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
