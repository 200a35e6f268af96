import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.report.page import Page
from tilth.errors import TilthError
from tilth.report.encoders import (
    SHOWN_PAIRS,
    EncoderComparison,
    EncoderScore,
    ValidationCurve,
    write_encoder_report,
)
from tilth.report.html import SHOWN

NAN = math.nan
SCORES = [
    EncoderScore("stsb", "trained on x2", 64.0, 60.0, 68.0),
    EncoderScore("stsb", "mean-pooled", 47.5, 45.0, 50.0),
    EncoderScore("stsb", "trained on x2", 77.125, published=True),
    EncoderScore("sickr", "trained on x2", 61.0, 59.0, 63.0),
    EncoderScore("sickr", "mean-pooled", -12.5, -15.0, -10.0),
]
CURVE = ValidationCurve("x2, seed 0", [50, 100], [60.5, 62.25], best=100, metric="Spearman")
PAIR = {
    "set": "stsb", "text_a": "The cat sleeps.", "text_b": "The cat does not sleep.",
    "gold": 0.8, "cosine": 0.93, "gold_rank": 0.11, "cosine_rank": 0.96,
}  # fmt: skip


def source(folder: Path, **given: Any) -> str:
    file = folder / "encoders.html"
    asked = {"title": "Encoders", "facts": [], "scores": SCORES, "interval": "95% interval"} | given
    names = [field.name for field in fields(EncoderComparison) if field.name in asked]
    compared = EncoderComparison(**{name: asked.pop(name) for name in names})
    write_encoder_report(file, compared, **asked)
    return file.read_text(encoding="utf-8")


def page(folder: Path, **given: Any) -> Page:
    return Page(source(folder, **given))


def test_page_shows_what_it_is_given(tmp_path: Path) -> None:
    shown = page(
        tmp_path,
        facts=[("command", "tilth recipe run dino-sts"), ("smaller", "3 seeds, not 5")],
        curves=[CURVE],
        wrong={"mean-pooled": [PAIR]},
        notes=["SICK-R is its test set."],
    )
    for said in ("tilth recipe run dino-sts", "3 seeds, not 5", "Whiskers: 95% interval."):
        assert shown.shows(said)
    assert shown.shows("x2, seed 0 62.25 kept, step 100")
    assert shown.shows("The cat does not sleep.")
    assert shown.shows("0.93above 96%")
    assert shown.shows("SICK-R is its test set.")


def test_figures_and_curves_carry_the_names_of_what_was_measured(tmp_path: Path) -> None:
    curve = ValidationCurve("seed 0", [1, 2], [2.0, 3.0], best=2, metric="reciprocal rank")
    html = source(tmp_path, metric="Pearson", curves=[curve])
    assert "Spearman" not in html
    for words in ("a Pearson correlation times 100", "stsb: Pearson correlation times 100",
                  "Validation reciprocal rank \u00d7 100 by step",
                  "seed 0: validation reciprocal rank times 100"):  # fmt: skip
        assert words in html


def test_sets_and_encoders_keep_their_order_and_colour(tmp_path: Path) -> None:
    html = source(tmp_path)
    charts = re.findall(r'<div class="beside">.*?</div>', html)
    assert [re.search('aria-label="(.*?):', chart)[1] for chart in charts] == ["stsb", "sickr"]
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
    table = re.search(r'<table class="data.*?</table>', html, re.DOTALL)[0]
    ours, papers = re.findall(r"<tbody.*?</tbody>", table, re.DOTALL)
    figures = [re.findall(r'class="figure">([^<]*)', part) for part in (ours, papers)]
    assert figures == [["64.00", "61.00", "47.50", "-12.50"], ["77.12", "\u2013"]]
    assert "-15.0 to -10.0" in ours
    assert "published" in papers
    assert "published" not in ours


def test_interval_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    assert not page(tmp_path, scores=[EncoderScore("stsb", "a", 3.0)]).shows("95% interval")


def test_text_alternatives(tmp_path: Path) -> None:
    shown = page(tmp_path, curves=[CURVE])
    pictures = [svg for svg in shown.all("svg") if svg.get("class") == "chart"]
    assert len(pictures) == 3
    assert all(svg["role"] == "img" for svg in pictures)
    said = " ".join(svg["aria-label"] for svg in pictures)
    assert "1 trained on x2: 64.00, 60.0 to 68.0; 2 mean-pooled: 47.50" in said
    assert "3 trained on x2 (published): no figure" in said
    assert "kept: step 100 with 62.25" in said


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
        ValidationCurve(f"seed {i}", [1, 2], [i, i + 1.0], best=2, metric="Spearman")
        for i in range(SHOWN + 3)
    ]
    shown = page(tmp_path, curves=curves, wrong={"a": [PAIR] * (SHOWN_PAIRS + 5)})
    assert shown.shows("The other 3 trainings")
    assert shown.shows("The other 5")
    assert len(shown.all("circle")) == len(curves)


@pytest.mark.parametrize("scores", [[], SCORES])
def test_without_curves_pairs_and_notes(tmp_path: Path, scores: list[EncoderScore]) -> None:
    shown = page(tmp_path, scores=scores)
    ids = {attributes["id"] for _, attributes in shown.elements if "id" in attributes}
    assert ids == {"sets"}
    assert shown.shows("There are no figures.") == (not scores)


def test_no_nan_is_shown(tmp_path: Path) -> None:
    html = source(
        tmp_path,
        scores=[
            EncoderScore("stsb", "a", NAN, NAN, NAN),
            EncoderScore("stsb", "b", -math.inf),
            EncoderScore("x", "a", 1.0),
        ],
        curves=[
            ValidationCurve("broken", [1, 2], [NAN, NAN], best=2, metric="Spearman"),
            ValidationCurve("empty", [], [], best=0, metric="Spearman"),
            ValidationCurve("good", [1, 2], [NAN, 5.0], best=2, metric="Spearman"),
        ],
        wrong={"a": [PAIR | {"gold": NAN, "cosine": NAN}]},
    )
    text = "".join(Page(html).text)
    assert not re.search(r"\b(nan|NaN|inf|None)\b", html)
    assert text.count("\u2013") >= 8


def test_page_is_written_whole(tmp_path: Path) -> None:
    source(tmp_path)
    source(tmp_path, title="\ud800 and again")
    assert [file.name for file in tmp_path.iterdir()] == ["encoders.html"]
    with pytest.raises(TilthError, match="nowhere"):
        source(tmp_path / "nowhere")
