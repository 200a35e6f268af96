"""Upright bars with whiskers and curves over steps, beside a scale, as inline SVG.

As in `plots`, positions along x are percentages and heights are pixels: the charts fill the width
they are given, and their text keeps its size. A value that is no finite number is missing: a bar
becomes a dash, a curve has a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from tilth.report.figures import number

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
