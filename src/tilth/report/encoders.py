"""Write the page that compares sentence encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tilth.report.charts import ChartBar, bar_chart, curve_charts, finite, scale_over
from tilth.report.html import number, write_page

COLOURS = 8  # the style sheet's; with more encoders they come again, told apart by their key
SHOWN_PAIRS = 8  # of each list; the rest unfolds
BAR_WIDTH = 33  # pixels that a bar with its figure needs
LEAST_WIDTH = 220  # pixels of a chart
# Metric -> its explanation.
MEANINGS = {
    "Spearman": "how far an encoder's cosines put the pairs of a set in the order people did. 100 "
    "is the same order, 0 none of it, below 0 the reverse.",
    "Pearson": "how near an encoder's cosines lie to a straight line of people's scores of the "
    "pairs of a set. 100 is on a rising line, 0 no line at all, -100 on a falling one.",
}


@dataclass(frozen=True, slots=True)
class EncoderScore:
    """The correlation of one encoder on one set.

    Attributes:
        set: name of the set, or "mean".
        value: correlation times 100, -100 to 100.
        published: whether a paper reports it; never mixed with those measured here.
    """

    set: str
    name: str
    value: float
    low: float | None = None
    high: float | None = None
    published: bool = False


@dataclass(frozen=True, slots=True)
class ValidationCurve:
    """The validation scores of a training.

    Attributes:
        name: as in "x2, seed 1".
        values: scores times 100, one per step.
        best: the step whose weights were kept.
        metric: as in "Spearman correlation".
    """

    name: str
    steps: Sequence[int]
    values: Sequence[float]
    best: int
    metric: str


@dataclass(frozen=True, slots=True)
class EncoderComparison:
    """Scores of encoders, and what is shown beside them.

    Attributes:
        scores: sets and encoders are shown in the order of their first score.
        metric: of the scores, one of `MEANINGS`.
        interval: meaning of `low` and `high`.
        wrong: encoder -> pairs with `set`, `text_a`, `text_b`, `gold`, `cosine`, and `gold_rank`
            and `cosine_rank`: the share of pairs below it, 0 (least similar) to 1 (most similar).
    """

    scores: Sequence[EncoderScore]
    metric: str = "Spearman"
    interval: str = "bootstrap 95%"
    curves: Sequence[ValidationCurve] = ()
    wrong: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EncoderRow:
    """A table row and a bar of each chart: its key, colour, and score on each set."""

    key: str
    name: str
    published: bool
    colour: str
    scores: Mapping[str, EncoderScore]


def write_encoder_report(
    file: Path,
    compared: EncoderComparison,
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    notes: Sequence[str] = (),
) -> None:
    """Write the page of a comparison of encoders.

    Args:
        file: written atomically.
        facts: name and value: the command, the data, what is smaller than in the paper.
        notes: sentences at the foot.
    """
    scores, metric, curves = compared.scores, compared.metric, compared.curves
    sets, encoders = list(dict.fromkeys(score.set for score in scores)), _encoders(scores)
    curve_metric = " and ".join(dict.fromkeys(curve.metric for curve in curves))
    drawing, curve_rows = curve_charts(
        [(one.name, one.steps, one.values, one.best) for one in curves],
        title=f"validation {curve_metric} times 100 by step",
        places=2,
    )
    interval = compared.interval if any(map(_interval, scores)) else ""
    ours = [encoder for encoder in encoders if not encoder.published]
    published = [encoder for encoder in encoders if encoder.published]
    write_page(
        file,
        "encoders",
        title=title,
        kind="report of sentence encoders",
        claim=f"Every figure is a {metric} correlation times 100: {MEANINGS[metric]}",
        made=list(facts),
        metric=metric,
        interval=interval,
        legends=[
            ("measured here", "measured", ours),
            ("published, from papers: hollow", "published", published),
        ],
        charts=_set_charts(scores, sets, encoders, metric),
        set_width=max(LEAST_WIDTH, BAR_WIDTH * (len(encoders) + 1)),
        caption="The same in figures" + (f"; beneath each: {interval}" if interval else ""),
        head=["encoder", *sets],
        lines=[_line(encoder, sets) for encoder in ours],
        published=[("published, from papers", [_line(one, sets) for one in published])]
        if published
        else [],
        all_curves=drawing,
        curves=curve_rows,
        curve_metric=curve_metric,
        wrong=[(name, _wrong_pairs(pairs)) for name, pairs in compared.wrong.items()],
        pair_columns={"pair": "pair", "gold": "score", "cosine": "score"},
        shown_pairs=SHOWN_PAIRS,
        notes=notes,
    )


def _encoders(scores: Sequence[EncoderScore]) -> list[EncoderRow]:
    """Return the encoders by first score, measured ones before published ones."""
    names = dict.fromkeys(score.name for score in scores)
    colours = {name: f"colour-{place % COLOURS}" for place, name in enumerate(names)}
    found: dict[tuple[bool, str], dict[str, EncoderScore]] = {}
    for score in scores:
        found.setdefault((score.published, score.name), {})[score.set] = score
    order = sorted(found.items(), key=lambda item: item[0][0])
    return [
        EncoderRow(str(place), name, published, colours[name], held)
        for place, ((published, name), held) in enumerate(order, start=1)
    ]


def _set_charts(
    scores: Sequence[EncoderScore], sets: Sequence[str], encoders: Sequence[EncoderRow], metric: str
) -> list[tuple[str, Markup]]:
    """Return one chart per set, with a shared scale and encoder order."""
    scale = scale_over((v for one in scores for v in (one.value, one.low, one.high)), zero=True)
    charts = []
    for name in sets:
        bars = [_bar(encoder, encoder.scores.get(name)) for encoder in encoders]
        text = "; ".join(f"{bar.key} {bar.text}" for bar in bars)
        title = f"{name}: {metric} correlation times 100 of each encoder"
        charts.append((name, bar_chart(bars, scale, title=title, text=text)))
    return charts


def _bar(encoder: EncoderRow, score: EncoderScore | None) -> ChartBar:
    text = f"{encoder.name}{' (published)' if encoder.published else ''}: "
    value = low = high = None
    if score is None or finite(score.value) is None:
        text += "no figure"
    else:
        value, low, high, ends = score.value, score.low, score.high, _interval(score)
        text += f"{value:.2f}" + (f", {ends}" if ends else "")
    return ChartBar(encoder.key, text, value, low, high, encoder.colour, encoder.published)


def _line(encoder: EncoderRow, sets: Sequence[str]) -> list[Any]:
    """Return a table row: key, name, and score and interval on each set."""
    found = [encoder.scores.get(name) for name in sets]
    cells = [(_figure(one.value), _interval(one)) if one else _figure(None) for one in found]
    return [f"{encoder.key} {encoder.name}", *cells]


def _interval(score: EncoderScore) -> str:
    """Return "low to high", or an empty string when an end is missing."""
    low, high = finite(score.low), finite(score.high)
    return "" if low is None or high is None else f"{low:.1f} to {high:.1f}"


def _wrong_pairs(pairs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[list[Any]]]]:
    """Return the pairs in two lists, the largest rank error first."""
    order = sorted(pairs, key=lambda pair: -abs(pair["cosine_rank"] - pair["gold_rank"]))
    similar = [_pair_line(pair) for pair in order if pair["cosine_rank"] > pair["gold_rank"]]
    different = [_pair_line(pair) for pair in order if pair["cosine_rank"] < pair["gold_rank"]]
    return [("Rated too similar", similar), ("Rated too different", different)]


def _pair_line(pair: Mapping[str, Any]) -> list[Any]:
    scores = [
        (_figure(pair[key]), f"above {pair[f'{key}_rank']:.0%}") for key in ("gold", "cosine")
    ]
    return [(pair["text_a"], pair["text_b"], pair["set"]), *scores]


def _figure(value: float | None) -> str:
    return number(finite(value), 2)
