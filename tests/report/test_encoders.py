import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.report.test_html import EVIL, Page
from tilth.errors import InputError, TilthError
from tilth.report.charts import (
    BAR_HEIGHT,
    CURVE_HEIGHT,
    ROOM,
    Column,
    all_curves,
    bar_chart,
    curve_chart,
    scale_over,
)
from tilth.report.encoders import (
    SHOWN_CURVES,
    SHOWN_PAIRS,
    Bar,
    Curve,
    write_encoder_report,
)

NAN = math.nan
BARS = [
    Bar("stsb", "trained on x2", 64.0, 60.0, 68.0),
    Bar("stsb", "mean-pooled", 47.5, 45.0, 50.0),
    Bar("stsb", "trained on x2", 77.125, published=True),
    Bar("sickr", "trained on x2", 61.0, 59.0, 63.0),
    Bar("sickr", "mean-pooled", -12.5, -15.0, -10.0),
]
PAIR = {
    "set": "stsb", "text_a": "The cat sleeps.", "text_b": "The cat does not sleep.",
    "gold": 0.8, "cosine": 0.93, "gold_rank": 0.11, "cosine_rank": 0.96,
}  # fmt: skip


def source(folder: Path, **given: Any) -> str:
    file = folder / "encoders.html"
    asked = {"title": "Encoders", "facts": [], "bars": BARS, "metric": "Spearman",
             "interval": "95% interval"}  # fmt: skip
    write_encoder_report(file, **(asked | given))
    return file.read_text(encoding="utf-8")


def page(folder: Path, **given: Any) -> Page:
    return Page(source(folder, **given))


def chart_of(
    columns: Sequence[Column], values: Sequence[float | None] = (0.0, 100.0)
) -> ElementTree.Element:
    scale = scale_over(values, zero=True)
    return ElementTree.fromstring(bar_chart(columns, scale, title="t", text="d"))


def of_class(svg: ElementTree.Element, kind: str) -> list[dict[str, float]]:
    """Return the numbers of all elements of a class."""
    return [
        {
            name: float(value.rstrip("%"))
            for name, value in element.attrib.items()
            if re.fullmatch(r"-?[\d.]+%?", value)
        }
        for element in svg.iter()
        if element.attrib.get("class") == kind
    ]


def words(svg: ElementTree.Element, kind: str) -> list[str | None]:
    return [text.text for text in svg.iter("text") if text.attrib["class"] == kind]


@pytest.mark.parametrize(
    ("values", "zero", "lines"),
    [
        ([63.0, 81.2], True, (0, 20, 40, 60, 80, 100)),
        ([-12.0, 81.2], True, (-20, 0, 20, 40, 60, 80, 100)),
        ([-31.0, -12.0], True, (-40, -30, -20, -10, 0)),
        ([70.0, 74.0], False, (70, 71, 72, 73, 74)),
        ([70.0, NAN, None, math.inf], False, (69.4, 69.6, 69.8, 70, 70.2, 70.4, 70.6)),
        ([], True, (0, 0.2, 0.4, 0.6, 0.8, 1)),
        ([0.0], True, (0, 0.2, 0.4, 0.6, 0.8, 1)),
    ],
)
def test_scale_holds_the_values(
    values: list[float | None], zero: bool, lines: tuple[float, ...]
) -> None:
    scale = scale_over(values, zero=zero)
    assert scale.low == scale.lines[0]
    assert scale.high == scale.lines[-1]
    held = [value for value in values if value is not None and math.isfinite(value)]
    assert all(scale.low <= value <= scale.high for value in held)
    if len(held) != 1 or zero:
        assert scale.lines == pytest.approx(lines)


def test_bar_is_as_high_as_its_value() -> None:
    svg = chart_of([Column("1", "a", 25.0), Column("2", "b", 100.0)])
    one, two = of_class(svg, "measured")
    assert (one["height"], two["height"]) == (BAR_HEIGHT / 4, BAR_HEIGHT)
    assert one["y"] == ROOM + BAR_HEIGHT * 0.75
    assert one["x"] + one["width"] < two["x"]
    assert words(svg, "value") == ["25.0", "100.0"]


def test_whisker_reaches_from_low_to_high() -> None:
    svg = chart_of([Column("1", "a", 50.0, low=40.0, high=65.0), Column("2", "b", 50.0, low=40.0)])
    (whisker,) = of_class(svg, "whisker")
    (bar, _) = of_class(svg, "measured")
    assert whisker["y1"] == pytest.approx(ROOM + BAR_HEIGHT * 0.35)
    assert whisker["y2"] == pytest.approx(ROOM + BAR_HEIGHT * 0.60)
    assert whisker["x1"] == whisker["x2"] == pytest.approx(bar["x"] + bar["width"] / 2, abs=0.01)
    assert [cap["y1"] for cap in of_class(svg, "cap")] == [whisker["y1"], whisker["y2"]]
    value = of_class(svg, "value")[0]
    assert value["y"] < whisker["y1"]  # the figure stands clear of the whisker


def test_negative_bar_hangs_from_the_zero_line() -> None:
    columns = [Column("1", "a", 60.0), Column("2", "b", -20.0, low=-30.0, high=-10.0)]
    svg = chart_of(columns, (-30.0, 60.0))
    (zero,) = of_class(svg, "zero")
    up, down = of_class(svg, "measured")
    assert up["y"] + up["height"] == pytest.approx(zero["y1"], abs=0.11)
    assert down["y"] == zero["y1"]
    assert down["height"] == pytest.approx(up["height"] / 3, abs=0.11)
    (whisker,) = of_class(svg, "whisker")
    assert whisker["y1"] > zero["y1"]
    assert of_class(svg, "value")[1]["y"] > whisker["y2"]
    assert of_class(svg, "tick")[-1]["y"] > of_class(svg, "value")[1]["y"]
    assert words(svg, "value") == ["60.0", "-20.0"]


def test_published_bar_is_hollow_labelled_and_apart() -> None:
    columns = [Column("2", "p", 70.0, published=True), Column("1", "a", 60.0), Column("3", "b", 5)]
    svg = chart_of(columns)
    (published,) = of_class(svg, "published")
    measured = of_class(svg, "measured")
    assert published["height"] == pytest.approx(0.7 * BAR_HEIGHT)
    places = [bar["x"] for bar in measured] + [published["x"]]
    assert places[2] - places[1] > places[1] - places[0]
    (line,) = of_class(svg, "between")
    assert measured[-1]["x"] + measured[-1]["width"] < line["x1"] < published["x"]
    assert words(svg, "tick publisher") == ["published"]
    assert words(chart_of(columns[1:]), "tick publisher") == []


@pytest.mark.parametrize("value", [None, NAN, math.inf])
def test_missing_bar_is_a_dash(value: float | None) -> None:
    svg = chart_of([Column("1", "a", value, low=1.0, high=2.0), Column("2", "b", 3.0, NAN, 4.0)])
    assert words(svg, "value") == ["\u2013", "3.0"]
    assert len(of_class(svg, "measured")) == 1
    assert of_class(svg, "whisker") == []


def test_bar_has_its_colour_and_its_text() -> None:
    (group,) = chart_of([Column("1", EVIL, 5.0, colour="colour-3")]).iter("g")
    assert group.attrib["class"] == "colour-3"
    assert group.find("title").text == EVIL


def curve_of(steps: list[int], values: list[float], **given: Any) -> ElementTree.Element:
    scale = scale_over([0.0, 100.0], zero=False)
    asked = {"last": 200, "best": 100, "behind": "all", "title": "t", "text": "d"}
    return ElementTree.fromstring(curve_chart(steps, values, scale, **(asked | given)))


def lines_of(svg: ElementTree.Element) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in svg.iter("polyline")
    ]


def test_curve_passes_through_its_values() -> None:
    svg = curve_of([200, 50, 100], [75.0, 25.0, 100.0])
    height = CURVE_HEIGHT
    assert lines_of(svg) == [[(25, height * 0.75), (50, 0), (100, height * 0.25)]]
    (kept,) = of_class(svg, "kept")
    assert (kept["cx"], kept["cy"]) == (50, ROOM)
    assert "200 steps" in words(svg, "tick")
    assert next(svg.iter("use")).attrib["href"] == "#all"


def test_curve_has_gaps_where_values_miss() -> None:
    svg = curve_of([0, 50, 100, 150, 200], [10.0, NAN, 20.0, 30.0, NAN], best=50)
    assert [[x for x, _ in line] for line in lines_of(svg)] == [[0, 0], [50, 75]]
    assert of_class(svg, "kept") == []  # nothing was measured there
    assert of_class(svg, "kept-line")[0]["x1"] == 25


def test_all_curves_are_one_drawing() -> None:
    scale = scale_over([0.0, 1.0], zero=False)
    many = [([0, 10], [0.1 * i, 0.5]) for i in range(7)]
    svg = ElementTree.fromstring(all_curves(many, scale, last=10, name="all"))
    assert next(svg.iter("g")).attrib["id"] == "all"
    assert len(lines_of(svg)) == 7


def test_page_shows_what_it_is_given(tmp_path: Path) -> None:
    shown = page(
        tmp_path,
        facts=[("command", "tilth recipe run dino-sts"), ("smaller", "3 seeds, not 5")],
        curves=[Curve("x2, seed 0", [50, 100], [60.5, 62.25], best=100, metric="Spearman")],
        wrong={"mean-pooled": [PAIR]},
        notes=["SICK-R is its test set."],
    )
    for said in ("tilth recipe run dino-sts", "3 seeds, not 5", "Whiskers: 95% interval."):
        assert shown.shows(said)
    assert shown.shows("x2, seed 0 62.25 kept, step 100")
    assert shown.shows("The cat does not sleep.")
    assert shown.shows("0.93above 96%")
    assert shown.shows("SICK-R is its test set.")
    ids = {attributes.get("id") for _, attributes in shown.elements}
    assert all(link["href"].lstrip("#") in ids for link in shown.all("a"))


def test_figures_and_curves_carry_the_names_of_what_was_measured(tmp_path: Path) -> None:
    curve = Curve("seed 0", [1, 2], [2.0, 3.0], best=2, metric="reciprocal rank")
    html = source(tmp_path, metric="Pearson", curves=[curve])
    assert "Spearman" not in html
    for words in ("a Pearson correlation times 100", "stsb: Pearson correlation times 100",
                  "Validation reciprocal rank \u00d7 100 by step",
                  "seed 0: validation reciprocal rank times 100"):  # fmt: skip
        assert words in html


def test_nothing_is_loaded(tmp_path: Path) -> None:
    html = source(
        tmp_path, curves=[Curve("c", [1], [2.0], best=1, metric="Spearman")], wrong={"a": [PAIR]}
    )
    assert "http://" not in html
    assert "https://" not in html
    assert "<script" not in html
    assert "url(" not in html
    assert Page(html).all("link") == []


def test_sets_and_encoders_keep_their_order_and_colour(tmp_path: Path) -> None:
    html = source(tmp_path)
    charts = re.findall(r'<div class="beside">.*?</div>', html)
    assert [re.search("<title>(.*?):", chart)[1] for chart in charts] == ["stsb", "sickr"]
    for chart in charts:
        titles = re.findall(r'<g class="(.*?)"><title>(.*?):', chart)
        assert titles == [
            ("colour-0", "trained on x2"),
            ("colour-1", "mean-pooled"),
            ("colour-0", "trained on x2 (published)"),  # hollow, in the same colour
        ]


def test_all_charts_have_one_scale(tmp_path: Path) -> None:
    charts = re.findall(r'<svg class="scale".*?</svg>', source(tmp_path))
    assert len(set(charts)) == 1
    assert ">-20<" in charts[0]


def test_table_has_every_figure_and_published_rows_apart(tmp_path: Path) -> None:
    html = source(tmp_path)
    table = re.search(r'<table class="health".*?</table>', html, re.DOTALL)[0]
    ours, papers = re.findall(r"<tbody.*?</tbody>", table, re.DOTALL)
    figures = [re.findall(r'class="figure">([^<]*)', part) for part in (ours, papers)]
    assert figures == [["64.00", "61.00", "47.50", "-12.50"], ["77.12", "\u2013"]]
    assert "-15.0 to -10.0" in ours
    assert "published" in papers
    assert "published" not in ours


def test_interval_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    assert not page(tmp_path, bars=[Bar("stsb", "a", 3.0)]).shows("95% interval")


def test_text_alternatives(tmp_path: Path) -> None:
    shown = page(
        tmp_path,
        curves=[Curve("x2, seed 0", [50, 100], [60.5, 62.25], best=100, metric="Spearman")],
    )
    pictures = [svg for svg in shown.all("svg") if svg.get("class") == "chart"]
    assert len(pictures) == 3
    assert all(svg["role"] == "img" for svg in pictures)
    assert shown.shows("1 trained on x2: 64.00, 60.0 to 68.0; 2 mean-pooled: 47.50")
    assert shown.shows("3 trained on x2 (published): no figure")
    assert shown.shows("kept: step 100 with 62.25")


def test_wrong_pairs_are_in_two_lists_the_worst_first(tmp_path: Path) -> None:
    ranks = [(0.5, 0.6), (0.1, 0.9), (0.9, 0.2), (0.4, 0.4)]
    pairs = [
        PAIR | {"text_a": f"pair {i}", "gold_rank": gold, "cosine_rank": cosine}
        for i, (gold, cosine) in enumerate(ranks)
    ]
    html = source(tmp_path, wrong={"mean-pooled": pairs})
    similar, different = html.split("Rated too similar")[1].split("Rated too different")
    assert re.findall(r"pair \d", similar) == ["pair 1", "pair 0"]
    assert re.findall(r"pair \d", different) == ["pair 2"]


def test_many_pairs_and_curves_unfold(tmp_path: Path) -> None:
    curves = [
        Curve(f"seed {i}", [1, 2], [i, i + 1.0], best=2, metric="Spearman")
        for i in range(SHOWN_CURVES + 3)
    ]
    shown = page(tmp_path, curves=curves, wrong={"a": [PAIR] * (SHOWN_PAIRS + 5)})
    assert shown.shows("The other 3 trainings")
    assert shown.shows("The other 5")
    assert len(shown.all("circle")) == len(curves)


@pytest.mark.parametrize("bars", [[], BARS])
def test_without_curves_pairs_and_notes(tmp_path: Path, bars: list[Bar]) -> None:
    shown = page(tmp_path, bars=bars)
    ids = {attributes["id"] for _, attributes in shown.elements if "id" in attributes}
    assert ids == {"sets"}
    assert shown.shows("There are no figures.") == (not bars)


def test_no_nan_is_shown(tmp_path: Path) -> None:
    html = source(
        tmp_path,
        bars=[Bar("stsb", "a", NAN, NAN, NAN), Bar("stsb", "b", -math.inf), Bar("x", "a", 1.0)],
        curves=[
            Curve("broken", [1, 2], [NAN, NAN], best=2, metric="Spearman"),
            Curve("empty", [], [], best=0, metric="Spearman"),
            Curve("good", [1, 2], [NAN, 5.0], best=2, metric="Spearman"),
        ],
        wrong={"a": [PAIR | {"gold": NAN, "cosine": NAN}]},
    )
    text = "".join(Page(html).text)
    assert not re.search(r"\b(nan|NaN|inf|None)\b", html)
    assert text.count("\u2013") >= 8


def test_everything_is_escaped(tmp_path: Path) -> None:
    clean = page(
        tmp_path,
        facts=[("x", "x")],
        bars=[Bar("x", "x", 1.0, 0.5, 2.0), Bar("x", "x", 1.0, published=True)],
        curves=[Curve("x", [1], [1.0], best=1, metric="Spearman")],
        wrong={"x": [PAIR]},
        notes=["x"],
    )
    evil = page(
        tmp_path,
        title=EVIL,
        facts=[(EVIL, EVIL)],
        bars=[Bar(EVIL, EVIL, 1.0, 0.5, 2.0), Bar(EVIL, EVIL, 1.0, published=True)],
        interval=EVIL,
        curves=[Curve(EVIL, [1], [1.0], best=1, metric="Spearman")],
        wrong={EVIL: [PAIR | {"set": EVIL, "text_a": EVIL, "text_b": EVIL}]},
        notes=[EVIL],
    )
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in clean.elements]
    assert not any("onerror" in attributes for _, attributes in evil.elements)
    assert not any("onmouseover" in attributes for _, attributes in evil.elements)
    assert evil.shows(EVIL)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bars": [*BARS, Bar("stsb", "mean-pooled", 1.0)]}, "two figures on 'stsb'"),
        (
            {"curves": [Curve("c", [1, 2], [1.0], best=1, metric="Spearman")]},
            "2 steps and 1 values",
        ),
        ({"wrong": {"a": [{"set": "stsb"}]}}, "no text_a, text_b, gold"),
        ({"wrong": {"a": [PAIR | {"gold_rank": NAN}]}}, "no gold_rank;"),
    ],
)
def test_wrong_input_is_named(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        page(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


def test_page_is_written_whole(tmp_path: Path) -> None:
    source(tmp_path)
    source(tmp_path, title="\ud800 and again")
    assert [file.name for file in tmp_path.iterdir()] == ["encoders.html"]
    with pytest.raises(TilthError, match="nowhere"):
        source(tmp_path / "nowhere")
