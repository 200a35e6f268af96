from xml.etree import ElementTree

import numpy as np
import pytest

from tilth.paraphrase.tags import Cell
from tilth.report.charts import HEIGHT, heat_map


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


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
    assert right[1] - left[1] == pytest.approx(0.95 * HEIGHT, abs=0.2)
    assert found[0].attrib["width"] == "5.00%"
    assert float(found[0].attrib["height"]) == pytest.approx(HEIGHT / 20, abs=0.1)


def test_more_pairs_are_darker_and_none_are_not_drawn() -> None:
    found = squares(heat_map(plane(m95w0=400, m90w0=100, m80w5=1), title="x", text="y"))
    opacities = [float(rect.attrib["fill-opacity"]) for rect in found]
    assert opacities == [pytest.approx(0.05), pytest.approx(0.5), pytest.approx(1.0)]


def test_counts_and_shares_look_the_same() -> None:
    counts = plane(m95w0=3, m70w40=9)
    assert heat_map(counts, title="x", text="y") == heat_map(counts / 12, title="x", text="y")


def test_a_cell_is_framed() -> None:
    assert 'class="frame"' not in heat_map(plane(m95w0=1), title="x", text="y")
    markup = heat_map(plane(m95w0=1), title="x", text="y", outline=Cell(90, 0))
    frame = next(rect for rect in parsed(markup).iter("rect") if rect.get("class") == "frame")
    assert (frame.attrib["x"], frame.attrib["width"]) == ("90%", "5%")
    assert float(frame.attrib["height"]) == pytest.approx(HEIGHT / 10, abs=0.1)
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


def test_words_are_escaped_and_told() -> None:
    evil = '"><script>&'
    markup = heat_map(plane(m95w0=1), title=evil, text=evil)
    drawing = next(svg for svg in parsed(markup).iter("svg") if svg.get("role") == "img")
    assert drawing.attrib["aria-label"] == f"{evil}. {evil}"
    assert parsed(markup).findtext("figcaption") == evil
