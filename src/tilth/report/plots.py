"""Small charts as inline SVG that fill the width they are given and take their colours from CSS.

Positions along x are percentages and heights are pixels, so that a chart fits a phone and a wide
screen without its text or lines growing. The numbers stand beside the charts as text: bars and
ridges that repeat them are hidden from screen readers by the page, or carry a text of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray


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
