"""Draw the charts of report pages as inline SVG.

No dependency of tilth draws, and matplotlib would bring 30 MB for SVG with colours fixed in Python.
The pages need colours from the style sheet (dark mode), text as text, and charts that stretch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from tilth.report.html import number, percent

BAR_HEIGHT, CURVE_HEIGHT, MAP_HEIGHT = 170, 110, 264  # pixels of the plots
GAIN_HEIGHT = 46  # of a square of a gain map
LINE = 17  # pixels of a line of text above or below a plot
WIDEST_BAR = 13.0  # percent of the chart
GROUP_GAP = 0.6  # of a bar's slot, between measured and published bars
SHADES = (0.25, 0.5, 0.75, 1.0)  # opacities in the legend of a heat map
FAINTEST = 0.05  # opacity of the smallest share of a heat map
Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of a chart: name, value, note, drawing, and explanation of the name."""

    name: str
    value: str
    note: str
    chart: Markup
    means: str = ""


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A vertical bar: key, description, height, whisker, CSS class.

    A bar without a value is a dash; without both ends it has no whisker; a published one is hollow.
    """

    key: str
    text: str
    value: float | None
    low: float | None = None
    high: float | None = None
    colour: str = "colour-0"
    published: bool = False


@dataclass(frozen=True, slots=True)
class ChartScale:
    """Grid lines of a plot; the first and the last are its edges."""

    lines: tuple[float, ...]

    def y(self, value: float, height: int) -> float:
        """Return the y coordinate of a value in pixels, below one line of text."""
        return LINE + height * (self.lines[-1] - value) / (self.lines[-1] - self.lines[0])


def finite(value: float | None) -> float | None:
    """Return a value, or None where it is missing, infinite or NaN."""
    return value if value is not None and math.isfinite(value) else None


def scale_over(values: Iterable[float | None], *, zero: bool) -> ChartScale:
    """Return a scale with round grid lines over all finite values, 0 included if `zero`."""
    held = [value for value in map(finite, values) if value is not None]
    low, high = min(held, default=0.0), max(held, default=1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low, high + 1.0) if zero else (low - 0.5, high + 0.5)
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough - 1e-12)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return ChartScale(tuple(place * step for place in range(first, last + 1)))


def count_rows(
    counts: Mapping[str, int],
    total: int | None = None,
    *,
    means: Mapping[str, str] = {},
    kind: str = "bar",
) -> list[ChartRow]:
    """Return a horizontal bar per name, with its count and share of `total` (or of the sum)."""
    of, most = total or sum(counts.values()), max(counts.values(), default=0)
    return [
        ChartRow(name, f"{n:,}", percent(n / of) if of else "", bar(n, most, kind),
                 means.get(name, ""))
        for name, n in counts.items()
    ]  # fmt: skip


def bar(value: float, most: float, kind: str = "bar") -> Markup:
    """Return a horizontal bar; `most` is the value of full width."""
    width = max(100 * value / most, 0.6) if value else 0.0  # a small share stays visible
    shape = _rect(kind, 0, 0, width, 12, rx=3)
    return Markup(_tag("svg", shape, class_="chart", height=12, aria_hidden="true"))


def histogram(counts: Sequence[int], ticks: Sequence[str], *, text: str) -> Markup:
    """Return adjacent bars over evenly spaced numbers; `text` is the description."""
    highest, step = max(counts, default=0) or 1, 100 / max(len(counts), 1)
    bars = [
        _rect("bar", (at + 0.08) * step, 44 - 44 * n / highest, 0.84 * step, 44 * n / highest)
        for at, n in enumerate(counts)
        if n
    ]
    return _chart(62, *bars, _line("level", (0, 100), (45, 45)), _ticks(ticks, 58), text=text)


def ridge(values: NDArray[np.float64], ticks: Sequence[float], *, text: str) -> Markup:
    """Return the density of values with its median and interquartile range."""
    low, high = ticks[0], ticks[-1]
    heights = density(values, low=low, high=high)
    xs = np.linspace(0, 100, len(heights))
    line = " ".join(f"{x:.2f},{40 - 38 * y:.2f}" for x, y in zip(xs, heights, strict=True))
    quarters = np.percentile(values, [25, 50, 75])
    left, median, right = np.clip(100 * (quarters - low) / (high - low), 0, 100).tolist()
    hill = _tag("polygon", class_="hill", points=f"0,40 {line} 100,40")
    hill = _stretched(40, hill, _tag("polyline", class_="hill-line", points=line))
    half = _rect("half", left, 43, max(right - left, 0.5), 5, rx=2)
    mark = _line("median", (median, median), (40, 51))
    numbers = _ticks([f"{tick:.2g}" for tick in ticks], 64)
    return _chart(68, hill, _line("level", (0, 100), (40, 40)), half, mark, numbers, text=text)


def density(values: NDArray[np.float64], *, low: float, high: float) -> NDArray[np.float64]:
    """Return a 96-bin histogram, smoothed with a Gaussian of 2.5% of the range, at most 1.

    Mass beyond an edge is mirrored back, so that a peak at 0 stays a peak at 0.
    """
    counts, _ = np.histogram(np.clip(values, low, high), bins=96, range=(low, high))
    kernel = np.exp(-0.5 * (np.arange(-12, 13) / (0.025 * 96)) ** 2)
    padded = np.pad(counts.astype(np.float64), 12, mode="symmetric")
    smooth = np.convolve(padded, kernel, mode="valid")  # (96,)
    return np.asarray(smooth / max(smooth.max(), 1e-9))


def bar_chart(bars: Sequence[ChartBar], scale: ChartScale, *, title: str, text: str) -> Markup:
    """Return vertical bars with whiskers and values, published ones last."""
    order = sorted(bars, key=lambda one: one.published)
    measured = sum(not one.published for one in order)
    gap = GROUP_GAP if 0 < measured < len(order) else 0.0
    slot = 100 / max(len(order) + gap, 1)  # percent
    height = BAR_HEIGHT + 2 * LINE + (LINE if scale.lines[0] < 0 else 0)  # a value under a bar
    parts = []
    for place, one in enumerate(order):
        middle = (place + 0.5 + gap * one.published) * slot
        parts.append(_bar(one, scale, middle, min(0.74 * slot, WIDEST_BAR)))
        parts.append(_text(middle, height - 3, "tick", one.key))
    if measured < len(order):
        height += LINE
        parts.append(_text(100, height - 3, "tick publisher", "published", "end"))
    if gap:
        parts.append(_line("between", ((measured + gap / 2) * slot,) * 2, (LINE, height)))
    return _beside_scale(scale, BAR_HEIGHT, height, *parts, title=title, text=text)


def _bar(one: ChartBar, scale: ChartScale, middle: float, width: float) -> str:
    value, low, high = finite(one.value), finite(one.low), finite(one.high)
    parts = [_tag("title", escape(one.text))]
    zero = scale.y(0.0, BAR_HEIGHT)
    if value is None:
        parts.append(_text(middle, zero - 5, "value", number(None, 1)))
        return _tag("g", *parts, class_=one.colour)
    y, ends = scale.y(value, BAR_HEIGHT), [value]
    kind = "published" if one.published else "measured"
    parts.append(_rect(kind, middle - width / 2, min(y, zero), width, abs(y - zero)))
    if low is not None and high is not None:
        ends += [low, high]
        top, foot = scale.y(high, BAR_HEIGHT), scale.y(low, BAR_HEIGHT)
        cap = (middle - width / 4, middle + width / 4)
        lines = [("whisker", (middle, middle), (top, foot)), ("cap", cap, (top, top)),
                 ("cap", cap, (foot, foot))]  # fmt: skip
        parts += [_line("halo", x, ys) for _, x, ys in lines]  # parts the whisker from the bar
        parts += [_line(*line) for line in lines]
    y = scale.y(max(ends), BAR_HEIGHT) - 5 if value >= 0 else scale.y(min(ends), BAR_HEIGHT) + 13
    return _tag("g", *parts, _text(middle, y, "value", number(value, 1)), class_=one.colour)


def curve_charts(
    curves: Sequence[tuple[str, Sequence[int], Values, int]], *, title: str, places: int = 1
) -> tuple[Markup, list[ChartRow]]:
    """Return a hidden drawing of all curves in grey, and a row per curve that highlights it.

    Args:
        curves: name, steps, one value per step (a missing one leaves a gap), and the kept step.
        title: chart title, after the name of the curve.
        places: decimals of the values.
    """
    scale = scale_over((value for one in curves for value in one[2]), zero=False)
    last = max((step for one in curves for step in (*one[1], one[3])), default=1) or 1
    grey = [_polylines("others", one[1], one[2], scale, last) for one in curves]
    store = _tag("defs", _tag("g", *grey, id="all"))
    drawing = _tag("svg", store, class_="store", width=0, height=0, aria_hidden="true")
    foot, rows = LINE + CURVE_HEIGHT, []
    for name, steps, values, best in curves:
        kept = finite(dict(zip(steps, values, strict=True)).get(best))
        x = 100 * best / last
        own = _polylines("curve", steps, values, scale, last)
        parts = [_stretched(foot, _tag("use", href="#all"), own)]
        parts += [
            _line("kept-line", (x, x), (LINE, foot)),
            _ticks(["0", f"{last:,} steps"], foot + 14),
        ]
        if kept is not None:
            y = scale.y(kept, CURVE_HEIGHT)
            parts.append(_tag("circle", class_="kept", cx=f"{x:.2f}%", cy=y, r=4.5))
        held = [value for value in map(finite, values) if value is not None]
        text = f"{len(held)} values" + (
            f" from {held[0]:.{places}f} to {held[-1]:.{places}f}, between "
            f"{min(held):.{places}f} and {max(held):.{places}f}" if held else ""
        )  # fmt: skip
        text += f"; kept: step {best:,} with {number(kept, places)}"
        chart = _beside_scale(
            scale, CURVE_HEIGHT, foot + LINE, *parts, title=f"{name}: {title}", text=text
        )
        rows.append(ChartRow(name, number(kept, places), f"kept, step {best:,}", chart))
    return Markup(drawing), rows


def _polylines(
    kind: str, steps: Sequence[int], values: Values, scale: ChartScale, last: int
) -> str:
    """Return a line for each run of finite values; a single value is drawn as a dot."""
    points = sorted(zip(steps, map(finite, values), strict=True), key=lambda point: point[0])
    lines = []
    for held, run in groupby(points, key=lambda point: point[1] is not None):
        if held:
            places = [f"{100 * x / last:.2f},{scale.y(y or 0.0, CURVE_HEIGHT):.1f}" for x, y in run]
            ends = " ".join(places if len(places) > 1 else places * 2)
            lines.append(_tag("polyline", class_=kind, points=ends))
    return "".join(lines)


def heat_map(
    grid: NDArray[Any], *, title: str, text: str, outline: tuple[int, int, int, int] | None = None
) -> Markup:
    """Return a figure of the shares of pairs by meaning and wording.

    Opacity grows with the square root of the share, so that rare pairs stay visible.

    Args:
        grid: counts or shares in equal bins from 0 to 100. # (meaning, wording)
        text: description for screen readers.
        outline: framed part: minimum and maximum meaning, minimum and maximum wording.
    """
    shares = grid / (float(grid.sum()) or 1.0)
    most = float(shares.max(initial=0.0))
    scale = ChartScale((0, 25, 50, 75, 100))
    width, height = 100 / grid.shape[0], 100 / grid.shape[1]
    foot = LINE + MAP_HEIGHT
    parts = [_line("level", (x, x), (LINE, foot)) for x in scale.lines]
    for column, row in np.argwhere(shares > 0).tolist():
        share, x, y = float(shares[column, row]), column * width, row * height
        words = f"meaning {x:g} to {x + width:g}, wording {y:g} to {y + height:g}: {percent(share)}"
        opacity = f"{max(math.sqrt(share / most), FAINTEST):.3f}"
        top, tall = scale.y(y + height, MAP_HEIGHT), MAP_HEIGHT * height / 100
        parts.append(_rect("bar", x, top, width, tall, _tag("title", words), fill_opacity=opacity))
    if outline is not None:
        left, right, low, high = outline
        tall = MAP_HEIGHT * (high - low) / 100
        parts.append(_rect("frame", left, scale.y(high, MAP_HEIGHT), right - left, tall))
    parts.append(_ticks([f"{x:g}" for x in scale.lines], foot + 14))
    parts.append(_text(50, foot + 30, "tick", "meaning"))
    chart = _beside_scale(
        scale, MAP_HEIGHT, foot + 2 * LINE, *parts, title=title, text=text, name="wording"
    )
    caption = _tag("figcaption", escape(title))
    return Markup(_tag("figure", caption, chart, _shades(most), class_="map"))


def gain_map(
    gains: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], *, title: str
) -> Markup:
    """Return a figure of gains, a square each: losses in another colour, opacity by size.

    Args:
        gains: in points. # (rows, columns)
    """
    most = float(np.abs(gains).max(initial=0.0)) or 1.0
    width, parts, said = 100 / (len(columns) + 1), [], []
    for row, name in enumerate(rows):
        top = LINE + row * GAIN_HEIGHT
        parts.append(_text(0, top + GAIN_HEIGHT / 2 + 4, "tick", name, "start"))
        for column, value in enumerate(gains[row].tolist()):
            x = (column + 1) * width
            opacity = f"{0.6 * abs(value) / most:.3f}"
            kind = "bar" if value > 0 else "bar drop"
            parts.append(_rect(kind, x, top, width, GAIN_HEIGHT, fill_opacity=opacity))
            parts.append(_text(x + width / 2, top + GAIN_HEIGHT / 2 + 4, "value", f"{value:+.1f}"))
            said.append(f"{name}, {columns[column]}: {value:+.1f}")
    foot = LINE + len(rows) * GAIN_HEIGHT
    for column, name in enumerate(columns):
        parts.append(_text((column + 1.5) * width, foot + 14, "tick", name))
    chart = _chart(foot + LINE, *parts, title=title, text="; ".join(said))
    return Markup(_tag("figure", _tag("figcaption", escape(title)), chart, class_="map"))


def _shades(most: float) -> str:
    """Return the legend of a heat map: the share of each shade."""
    parts = ["Share of the pairs in a square:" if most else "No pairs."]
    for opacity in SHADES if most else ():
        square = _rect("bar", 0, 0, 100, 13, fill_opacity=opacity)
        swatch = _tag("svg", square, class_="swatch", width=13, height=13, aria_hidden="true")
        parts.append(f"{swatch} {percent(most * opacity**2)}")
    return _tag("p", *(_tag("span", part) for part in parts), class_="means shades")


def _beside_scale(
    scale: ChartScale, plot: int, height: int, *parts: str, title: str, text: str, name: str = ""
) -> Markup:
    """Return a scale and, to its right, the chart on its grid lines."""
    numbers, grid = [], []
    places = max(0, -math.floor(math.log10(abs(scale.lines[1] - scale.lines[0])) + 1e-9))
    for value in scale.lines:
        y = scale.y(value, plot)
        numbers.append(_text(100, y + 4, "tick", f"{value + 0.0:.{places}f}", "end"))
        grid.append(_line("zero" if abs(value) < 1e-9 else "level", (0, 100), (y, y)))
    numbers.append(_text(100, 11, "tick", name, "end") if name else "")
    left = _tag("svg", *numbers, class_="scale", height=height, aria_hidden="true")
    return Markup(_tag("div", left, _chart(height, *grid, *parts, title=title, text=text),
                       class_="beside"))  # fmt: skip


def _chart(height: int, *parts: str, text: str, title: str = "") -> Markup:
    label = escape(f"{title}. {text}" if title else text)
    return Markup(_tag("svg", *parts, class_="chart", height=height, role="img", aria_label=label))


def _stretched(height: int, *parts: str) -> str:
    """Return an SVG part with x from 0 to 100 that stretches with the chart."""
    box = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none", "overflow": "visible"}
    return _tag("svg", *parts, width="100%", height=height, **box)


def _ticks(texts: Sequence[str], y: float) -> str:
    """Return evenly spaced tick labels; those at the edges stay inside the chart."""
    last = len(texts) - 1
    anchors = {0: "start", last: "end"}
    return "".join(
        _text(100 * place / last, y, "tick", text, anchors.get(place, "middle"))
        for place, text in enumerate(texts)
    )


def _text(x: float, y: float, kind: str, text: str, anchor: str = "middle") -> str:
    return _tag("text", escape(text), class_=kind, x=f"{x:.2f}%", y=y, text_anchor=anchor)


def _line(kind: str, x: tuple[float, ...], y: tuple[float, float]) -> str:
    return _tag("line", class_=kind, x1=f"{x[0]:.2f}%", x2=f"{x[1]:.2f}%", y1=y[0], y2=y[1])


def _rect(
    kind: str, x: float, y: float, width: float, height: float, *inside: str, **more: Any
) -> str:
    box = {"x": f"{x:.2f}%", "y": y, "width": f"{width:.2f}%", "height": height}
    return _tag("rect", *inside, class_=kind, **box, **more)


def _tag(name: str, *inside: str, **attributes: Any) -> str:
    """Return an element; contents and attributes are constants or escaped."""
    given = ""
    for key, value in attributes.items():
        shown = f"{value:.2f}" if isinstance(value, float) else value
        given += f' {key.rstrip("_").replace("_", "-")}="{shown}"'
    return f"<{name}{given}>{''.join(inside)}</{name}>"
