from xml.etree import ElementTree

import numpy as np
import pytest

from tilth.report.charts import axis, bar, density, histogram, ridge


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def widths(markup: str, kind: str) -> list[float]:
    return [
        float(rect.attrib["width"].rstrip("%"))
        for rect in parsed(markup).iter("rect")
        if rect.attrib["class"] == kind
    ]


@pytest.mark.parametrize(("share", "width"), [(0, 0), (0.25, 25), (1, 100), (7, 100), (-1, 0)])
def test_bar_is_as_wide_as_its_share(share: float, width: float) -> None:
    assert widths(bar(share), "bar") == [width]


def test_smallest_bar_is_seen() -> None:
    assert widths(bar(1e-6), "bar")[0] > 0.5


def test_bar_has_its_class() -> None:
    assert widths(bar(0.5, kind="bar drop"), "bar drop") == [50]


def test_histogram_heights() -> None:
    bars = [
        float(rect.attrib["height"])
        for rect in parsed(histogram([0, 5, 10], text="x")).iter("rect")
        if rect.attrib["class"] == "bar"
    ]
    assert bars == [22.0, 44.0]


def test_text_alternatives_are_there_and_escaped() -> None:
    evil = '"><script>&'
    for chart in (histogram([1, 2], text=evil), ridge(np.ones(3), low=0, high=1, text=evil)):
        svg = parsed(chart)
        assert svg.attrib["role"] == "img"
        assert svg.attrib["aria-label"] == evil
    assert parsed(axis([(0.5, evil)])).find("text").text == evil


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
    svg = parsed(ridge(np.linspace(0, 1, 101), low=0, high=1, text="x"))
    half = next(rect for rect in svg.iter("rect") if rect.attrib["class"] == "half")
    assert (half.attrib["x"], half.attrib["width"]) == ("25.00%", "50.00%")
    assert any(inner.attrib.get("x") == "50.00%" for inner in svg.iter("svg"))


def test_ridge_with_negative_values() -> None:
    svg = parsed(ridge(np.array([-0.2, -0.2, -0.2]), low=-0.2, high=1.0, text="x"))
    half = next(rect for rect in svg.iter("rect") if rect.attrib["class"] == "half")
    assert half.attrib["x"] == "0.00%"
