"""Heat maps of meaning and wording as inline SVG: the darker a square, the more pairs lie there.

As in the paper's figures 1 and 3, meaning grows to the right and wording upwards, so pairs of the
same meaning in other words lie at the right foot. Shades are the accent colour, more or less
opaque, and so fit light and dark pages alike.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from tilth.report.figures import percent

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
