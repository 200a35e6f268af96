"""The page that shows how good sentence encoders are: bars, a table, curves, pairs to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from markupsafe import Markup

from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.report.charts import (
    ChartRow,
    Column,
    all_curves,
    bar_chart,
    curve_chart,
    finite,
    scale_over,
)
from tilth.report.figures import number
from tilth.report.html import template

COLOURS = 8  # the style sheet's; with more encoders they come again, told apart by their key
SHOWN_CURVES = 12  # the rest unfolds
SHOWN_PAIRS = 8  # of each list; the rest unfolds
SCALE_WIDTH = 28  # pixels
BAR_WIDTH = 33  # pixels that a bar with its figure needs
LEAST_WIDTH = 220  # pixels of a chart
PAIR_KEYS = ("set", "text_a", "text_b", "gold", "cosine", "gold_rank", "cosine_rank")
RANKS = ("gold_rank", "cosine_rank")
# What a figure of each name says of an encoder's cosines.
METRICS = {
    "Spearman": "how far an encoder's cosines put the pairs of a set in the order people did. 100 "
    "is the same order, 0 none of it, below 0 the reverse.",
    "Pearson": "how near an encoder's cosines lie to a straight line of people's scores of the "
    "pairs of a set. 100 is on a rising line, 0 no line at all, -100 on a falling one.",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One encoder on one set.

    Attributes:
        set: name of the set, or "mean".
        name: name of the encoder.
        value: correlation times 100, -100 to 100; the page is told which.
        low: lower end of the interval, which `write_encoder_report` is told the meaning of.
        high: upper end of the interval.
        published: a paper's figure; never mixed with those measured here.
    """

    set: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    published: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A training, as its validation shows it.

    Attributes:
        name: name of the training, as in "x2, seed 1".
        steps: when it was validated.
        values: what was validated, times 100, at each of the steps.
        best: the step whose weights were kept.
        metric: what the values are, as in "Spearman correlation".
    """

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    best: int
    metric: str


@dataclass(frozen=True, slots=True)
class EncoderRow:
    """One row of the table, one bar of each chart: a name in its colour, its bar on each set."""

    key: str
    name: str
    published: bool
    colour: str
    bars: Mapping[str, Bar]


@dataclass(frozen=True, slots=True)
class WrongPairs:
    """The pairs of one encoder whose place by cosine is far from their place by gold."""

    name: str
    lists: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]


def write_encoder_report(
    file: Path,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    bars: Sequence[Bar],
    metric: str,
    interval: str,
    curves: Sequence[Curve] = (),
    wrong: Mapping[str, Sequence[Mapping[str, Any]]] = {},
    notes: Sequence[str] = (),
) -> None:
    """Write the page of a comparison of encoders: one HTML file that loads nothing.

    Args:
        file: where it is written, whole or not at all.
        title: what was compared.
        facts: name and value: the command, the data, what is smaller than in the paper.
        bars: the figures; sets and encoders are shown in the order of their first bar.
        metric: what the values of the bars are, one of `METRICS`.
        interval: what `low` and `high` of the bars are, as in "95% bootstrap interval".
        curves: the trainings.
        wrong: encoder -> pairs with `set`, `text_a`, `text_b`, `gold`, `cosine`, and `gold_rank`
            and `cosine_rank`: the share of pairs below it, 0 (least alike) to 1 (most alike).
        notes: sentences at the foot.

    Raises:
        InputError: two bars of one encoder on one set, a curve whose steps and values are not as
            many, or a wrong pair without one of its keys.
        TilthError: the file cannot be written.

    Example:
        >>> write_encoder_report(
        ...     Path("encoders.html"),
        ...     title="Encoders from generated pairs",
        ...     facts=[("command", "tilth recipe run dino-sts")],
        ...     bars=[Bar("stsb", "mean-pooled", 47.3, low=44.2, high=50.1)],
        ...     metric="Spearman",
        ...     interval="95% bootstrap interval",
        ... )  # doctest: +SKIP
    """
    encoders = _encoders(bars)
    behind, rows = _curve_rows(curves)
    page = template("encoders.html.jinja").render(
        title=title,
        facts=facts,
        sets=_names(bar.set for bar in bars),
        encoders=[encoder for encoder in encoders if not encoder.published],
        published=[encoder for encoder in encoders if encoder.published],
        metric=metric,
        meaning=METRICS[metric],
        learnt=" and ".join(_names(curve.metric for curve in curves)),
        interval=interval if any(map(_interval_text, bars)) else "",
        charts=_set_charts(bars, encoders, metric),
        behind=behind,
        curves=rows,
        wrong=[_wrong_pairs(name, pairs) for name, pairs in wrong.items()],
        notes=notes,
        shown=SHOWN_CURVES,
        shown_pairs=SHOWN_PAIRS,
        colours=COLOURS,
        scale_width=SCALE_WIDTH,
        set_width=max(LEAST_WIDTH, SCALE_WIDTH + BAR_WIDTH * len(encoders)),
        figure=_figure,
        share=_share,
        interval_text=_interval_text,
    )
    atomic_write(file, lambda out: _write(out, page))


def _write(out: BinaryIO, page: str) -> None:
    # A lone surrogate cannot be written in UTF-8; it becomes a question mark.
    out.write(page.lstrip().encode("utf-8", errors="replace"))


def _names(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _encoders(bars: Sequence[Bar]) -> list[EncoderRow]:
    """Return the encoders in order of their first bar, measured ones before published ones."""
    colours = {
        name: f"colour-{place % COLOURS}" for place, name in enumerate(_names(b.name for b in bars))
    }
    found: dict[tuple[bool, str], dict[str, Bar]] = {}
    for bar in bars:
        held = found.setdefault((bar.published, bar.name), {})
        if bar.set in held:
            raise InputError(
                f"bars: {bar.name!r} has two figures on {bar.set!r} "
                f"({held[bar.set].value} and {bar.value}); give one, or two names"
            )
        held[bar.set] = bar
    order = sorted(found.items(), key=lambda item: item[0][0])
    return [
        EncoderRow(str(place), name, published, colours[name], held)
        for place, ((published, name), held) in enumerate(order, start=1)
    ]


def _set_charts(
    bars: Sequence[Bar], encoders: Sequence[EncoderRow], metric: str
) -> list[tuple[str, Markup]]:
    """Return one chart per set, all on one scale, every encoder in the same place."""
    scale = scale_over((v for bar in bars for v in (bar.value, bar.low, bar.high)), zero=True)
    charts = []
    for name in _names(bar.set for bar in bars):
        columns = [_column(encoder, encoder.bars.get(name)) for encoder in encoders]
        text = "; ".join(f"{column.key} {column.text}" for column in columns)
        title = f"{name}: {metric} correlation times 100 of each encoder"
        charts.append((name, bar_chart(columns, scale, title=title, text=text)))
    return charts


def _column(encoder: EncoderRow, bar: Bar | None) -> Column:
    source = " (published)" if encoder.published else ""
    text = f"{encoder.name}{source}: "
    if bar is None or finite(bar.value) is None:
        return Column(
            encoder.key,
            f"{text}no figure",
            None,
            colour=encoder.colour,
            published=encoder.published,
        )
    ends = _interval_text(bar)
    return Column(
        encoder.key,
        f"{text}{bar.value:.2f}" + (f", {ends}" if ends else ""),
        bar.value,
        bar.low,
        bar.high,
        encoder.colour,
        encoder.published,
    )


def _interval_text(bar: Bar) -> str:
    """Return "low to high", or nothing when an end is missing."""
    low, high = finite(bar.low), finite(bar.high)
    return "" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def _curve_rows(curves: Sequence[Curve]) -> tuple[Markup, list[ChartRow]]:
    """Return the drawing of all curves, and one row per curve that shows it before them."""
    for one in curves:
        if len(one.steps) != len(one.values):
            raise InputError(
                f"curve {one.name!r} has {len(one.steps)} steps and {len(one.values)} values; "
                "give one value per step"
            )
    scale = scale_over((value for one in curves for value in one.values), zero=False)
    last = max((step for one in curves for step in (*one.steps, one.best)), default=1)
    drawing = all_curves(((one.steps, one.values) for one in curves), scale, last=last, name="all")
    rows = []
    for one in curves:
        kept = finite(dict(zip(one.steps, one.values, strict=True)).get(one.best))
        text = f"{_span(one)}; kept: step {one.best:,} with {number(kept, 2)}"
        chart = curve_chart(
            one.steps,
            one.values,
            scale,
            last=last,
            best=one.best,
            behind="all",
            title=f"{one.name}: validation {one.metric} times 100 by step",
            text=text,
        )
        note = f"kept, step {one.best:,}"
        rows.append(ChartRow(name=one.name, value=number(kept, 2), note=note, chart=chart))
    return drawing, rows


def _span(one: Curve) -> str:
    held = [value for value in one.values if finite(value) is not None]
    if not held:
        return "no values"
    return (
        f"{len(one.values)} values from {held[0]:.2f} at first to {held[-1]:.2f} at last, "
        f"between {min(held):.2f} and {max(held):.2f}"
    )


def _wrong_pairs(name: str, pairs: Sequence[Mapping[str, Any]]) -> WrongPairs:
    """Return the pairs in two lists, the farthest from their place first."""
    for pair in pairs:
        missing = [key for key in PAIR_KEYS if key not in pair]
        missing += [key for key in RANKS if key in pair and finite(pair[key]) is None]
        if missing:
            raise InputError(
                f"wrong pair of {name!r} has no {', '.join(missing)}; give {', '.join(PAIR_KEYS)}"
            )
    order = sorted(pairs, key=lambda pair: -abs(pair["cosine_rank"] - pair["gold_rank"]))
    similar = [pair for pair in order if pair["cosine_rank"] > pair["gold_rank"]]
    different = [pair for pair in order if pair["cosine_rank"] < pair["gold_rank"]]
    return WrongPairs(name, [("Rated too similar", similar), ("Rated too different", different)])


def _figure(value: float | None) -> str:
    return number(finite(value), 2)


def _share(rank: float) -> str:
    return f"{rank:.0%}"
