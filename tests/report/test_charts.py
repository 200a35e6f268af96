import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.report.page import EVIL
from tilth.report.charts import (
    BAR_HEIGHT,
    CURVE_HEIGHT,
    LINE,
    MAP_HEIGHT,
    ChartBar,
    bar,
    bar_chart,
    curve_charts,
    density,
    heat_map,
    histogram,
    ridge,
    scale_over,
)

NAN = math.nan


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def widths(markup: str, kind: str) -> list[float]:
    return [
        float(rect.attrib["width"].rstrip("%"))
        for rect in parsed(markup).iter("rect")
        if rect.attrib["class"] == kind
    ]


@pytest.mark.parametrize(("value", "width"), [(0, 0), (1, 25), (4, 100), (1e-6, 0.6)])
def test_bar_is_as_wide_as_its_share(value: float, width: float) -> None:
    assert widths(bar(value, 4), "bar") == [width]
    assert widths(bar(value, 4, "bar drop"), "bar drop") == [width]


def test_histogram_heights() -> None:
    bars = [
        float(rect.attrib["height"])
        for rect in parsed(histogram([0, 5, 10], ["0", "9"], text="x")).iter("rect")
        if rect.attrib["class"] == "bar"
    ]
    assert bars == [22.0, 44.0]


def test_density_has_its_peak_at_the_values() -> None:
    values = np.concatenate([np.full(50, 0.25), np.full(20, 0.75)])
    heights = density(values, low=0, high=1)
    assert heights.shape == (96,)
    assert abs(heights.argmax() / 96 - 0.25) < 0.02
    assert heights[72] == pytest.approx(0.4, abs=0.05)
    assert heights.max() == pytest.approx(1.0)


def test_density_keeps_a_pile_at_the_edge() -> None:
    heights = density(np.concatenate([np.zeros(50), np.full(50, 0.5)]), low=0, high=1)
    assert heights[0] > 0.95 * heights[48]


def test_ridge_marks_quarters_and_median() -> None:
    svg = parsed(ridge(np.linspace(0, 1, 101), [0.0, 1.0], text="x"))
    half, median = of_class(svg, "half")[0], of_class(svg, "median")[0]
    assert (half["x"], half["width"], median["x1"]) == (25, 50, 50)
    svg = parsed(ridge(np.full(3, -0.2), [-0.2, 1.0], text="x"))
    assert of_class(svg, "half")[0]["x"] == 0


def chart_of(
    columns: Sequence[ChartBar], values: Sequence[float | None] = (0.0, 100.0)
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
    held = [value for value in values if value is not None and math.isfinite(value)]
    assert all(scale.lines[0] <= value <= scale.lines[-1] for value in held)
    if len(held) != 1 or zero:
        assert scale.lines == pytest.approx(lines)


def test_bar_is_as_high_as_its_value() -> None:
    svg = chart_of([ChartBar("1", "a", 25.0), ChartBar("2", "b", 100.0)])
    one, two = of_class(svg, "measured")
    assert (one["height"], two["height"]) == (BAR_HEIGHT / 4, BAR_HEIGHT)
    assert one["y"] == LINE + BAR_HEIGHT * 0.75
    assert one["x"] + one["width"] < two["x"]
    assert words(svg, "value") == ["25.0", "100.0"]


def test_whisker_reaches_from_low_to_high() -> None:
    svg = chart_of(
        [ChartBar("1", "a", 50.0, low=40.0, high=65.0), ChartBar("2", "b", 50.0, low=40.0)]
    )
    (whisker,) = of_class(svg, "whisker")
    (bar_, _) = of_class(svg, "measured")
    assert whisker["y1"] == pytest.approx(LINE + BAR_HEIGHT * 0.35)
    assert whisker["y2"] == pytest.approx(LINE + BAR_HEIGHT * 0.60)
    assert whisker["x1"] == whisker["x2"] == pytest.approx(bar_["x"] + bar_["width"] / 2, abs=0.01)
    assert [cap["y1"] for cap in of_class(svg, "cap")] == [whisker["y1"], whisker["y2"]]
    value = of_class(svg, "value")[0]
    assert value["y"] < whisker["y1"]  # the figure stands clear of the whisker


def test_negative_bar_hangs_from_the_zero_line() -> None:
    columns = [ChartBar("1", "a", 60.0), ChartBar("2", "b", -20.0, low=-30.0, high=-10.0)]
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
    columns = [
        ChartBar("2", "p", 70.0, published=True),
        ChartBar("1", "a", 60.0),
        ChartBar("3", "b", 5),
    ]
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
    svg = chart_of(
        [ChartBar("1", "a", value, low=1.0, high=2.0), ChartBar("2", "b", 3.0, NAN, 4.0)]
    )
    assert words(svg, "value") == ["\u2013", "3.0"]
    assert len(of_class(svg, "measured")) == 1
    assert of_class(svg, "whisker") == []


def test_bar_has_its_colour_and_its_text() -> None:
    (group,) = chart_of([ChartBar("1", EVIL, 5.0, colour="colour-3")]).iter("g")
    assert group.attrib["class"] == "colour-3"
    assert group.find("title").text == EVIL


def curve_of(steps: list[int], values: list[float], best: int = 100) -> ElementTree.Element:
    # The other curve makes the scale reach from 0 to 100 and the steps to 200.
    curves = [("a", steps, values, best), ("b", [0, 200], [0.0, 100.0], 0)]
    return parsed(curve_charts(curves, title="t")[1][0].chart)


def lines_of(svg: ElementTree.Element) -> list[list[tuple[float, ...]]]:
    return [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in svg.iter("polyline")
    ]


def test_curve_passes_through_its_values() -> None:
    svg = curve_of([200, 50, 100], [75.0, 25.0, 100.0])
    height = CURVE_HEIGHT
    (line,) = lines_of(svg)
    points = [(25, LINE + height * 0.75), (50, LINE), (100, LINE + height * 0.25)]
    assert line == [pytest.approx(point, abs=0.06) for point in points]
    (kept,) = of_class(svg, "kept")
    assert (kept["cx"], kept["cy"]) == (50, LINE)
    assert "200 steps" in words(svg, "tick")
    assert next(svg.iter("use")).attrib["href"] == "#all"


def test_curve_has_gaps_where_values_miss() -> None:
    svg = curve_of([0, 50, 100, 150, 200], [10.0, NAN, 20.0, 30.0, NAN], best=50)
    assert [[x for x, _ in line] for line in lines_of(svg)] == [[0, 0], [50, 75]]
    assert of_class(svg, "kept") == []  # nothing was measured there
    assert of_class(svg, "kept-line")[0]["x1"] == 25


def test_all_curves_are_one_drawing() -> None:
    drawing, rows = curve_charts(
        [(f"{i}", [0, 10], [0.1 * i, 0.5], 10) for i in range(7)], title="t"
    )
    assert next(parsed(drawing).iter("g")).attrib["id"] == "all"
    assert len(lines_of(parsed(drawing))) == len(rows) == 7
    assert (rows[3].name, rows[3].value, rows[3].note) == ("3", "0.5", "kept, step 10")


def squares(markup: str) -> list[ElementTree.Element]:
    """Return the squares of the plane, without the legend's."""
    return [rect for rect in parsed(markup).iter("rect") if rect.find("title") is not None]


def plane(**counts: int) -> np.ndarray:
    found = np.zeros((20, 20), np.int64)
    for name, count in counts.items():
        meaning, wording = map(int, name.removeprefix("m").split("w"))
        found[meaning // 5, wording // 5] = count
    return found


def test_meaning_grows_to_the_right_and_wording_upwards() -> None:
    found = squares(heat_map(plane(m95w0=1, m0w95=1), title="x", text="y"))
    places = {rect.findtext("title"): (rect.attrib["x"], float(rect.attrib["y"])) for rect in found}
    right = places["meaning 95 to 100, wording 0 to 5: 50%"]
    left = places["meaning 0 to 5, wording 95 to 100: 50%"]
    assert (right[0], left[0]) == ("95.00%", "0.00%")
    assert right[1] - left[1] == pytest.approx(0.95 * MAP_HEIGHT, abs=0.2)
    assert found[0].attrib["width"] == "5.00%"
    assert float(found[0].attrib["height"]) == pytest.approx(MAP_HEIGHT / 20, abs=0.1)


def test_more_pairs_are_darker_and_none_are_not_drawn() -> None:
    found = squares(heat_map(plane(m95w0=400, m90w0=100, m80w5=1), title="x", text="y"))
    opacities = [float(rect.attrib["fill-opacity"]) for rect in found]
    assert opacities == [pytest.approx(0.05), pytest.approx(0.5), pytest.approx(1.0)]


def test_counts_and_shares_look_the_same() -> None:
    counts = plane(m95w0=3, m70w40=9)
    assert heat_map(counts, title="x", text="y") == heat_map(counts / 12, title="x", text="y")


def test_a_cell_is_framed() -> None:
    assert 'class="frame"' not in heat_map(plane(m95w0=1), title="x", text="y")
    markup = heat_map(plane(m95w0=1), title="x", text="y", outline=(90, 95, 0, 10))
    frame = next(rect for rect in parsed(markup).iter("rect") if rect.get("class") == "frame")
    assert (frame.attrib["x"], frame.attrib["width"]) == ("90.00%", "5.00%")
    assert float(frame.attrib["height"]) == pytest.approx(MAP_HEIGHT / 10, abs=0.1)
    foot = float(frame.attrib["y"]) + float(frame.attrib["height"])
    lowest = max(float(r.attrib["y"]) + float(r.attrib["height"]) for r in squares(markup))
    assert foot == pytest.approx(lowest, abs=0.2)


def test_legend_says_what_shades_mean() -> None:
    words = "".join(parsed(heat_map(plane(m95w0=1, m0w0=1), title="x", text="y")).itertext())
    assert "Share of the pairs in a square:" in words
    assert "50%" in words


def test_nothing_to_draw_is_said() -> None:
    markup = heat_map(np.zeros((20, 20)), title="x", text="y")
    assert squares(markup) == []
    assert "No pairs." in markup
