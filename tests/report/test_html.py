import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tiny.rows import SENTENCES, pair_rows, single_rows, table, write_curated, write_run
from tilth.errors import InputError, TilthError
from tilth.report import Report, gather, health, render, write_report
from tilth.report.html import duration, shown_text

VOID = {"meta", "link", "br", "input", "hr", "img"}
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\" onmouseover=\"alert(2)"


class Page(HTMLParser):
    """The elements and the text of a page; fails when elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def shows(self, words: str) -> bool:
        return words in re.sub(r"\s+", " ", "".join(self.text))


def page_of(folder: Path, rows: list[dict[str, object]], **options: object) -> Page:
    return Page(render(gather(write_run(folder / "run", rows), **options)))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("page")
    run = write_run(folder / "sts", pair_rows(SENTENCES[:60]))
    curated = write_curated(folder / "clean", {0.9: 50, 0.1: 60}, {"near-duplicate": 7})
    return gather(run, curated=curated, seconds=90.0)


def test_page_shows_what_it_promises(pairs: Report) -> None:
    page = Page(render(pairs))
    assert page.shows(f"{pairs.health.kept:,} labelled text pairs")
    assert page.shows("1 min 30 s")
    assert page.shows(f"{pairs.health.kept / 90:.1f}")
    assert page.shows("train 99, validation 11")
    assert page.shows("near-duplicate")
    assert page.shows("tilth generate sts-x2")
    assert page.shows("transformers 5.23.0")
    assert page.shows("mean the same thing")
    for label in pairs.health.labels:
        assert page.shows(f"{label.tries:,}")
    for rows in pairs.same_input:
        assert all(page.shows(row.text) for row in rows)


def test_untrusted_text_is_escaped_everywhere(tmp_path: Path) -> None:
    rows = [
        {**row, "text_a": f"{EVIL} {i}", "text_b": f"{EVIL} {i}", "label": EVIL,
         "drop_reason": EVIL if i % 3 == 0 else None}
        for i, row in enumerate(pair_rows(SENTENCES[:30]))
    ]  # fmt: skip
    settings = {"task": {"task_name": EVIL, "labels": {EVIL: {"instruction": EVIL}}}, "model": EVIL}
    run = write_run(tmp_path / "run", rows, settings={**settings, EVIL: EVIL})
    report = gather(run, method=EVIL, command=EVIL, next_steps=[(EVIL, EVIL)])
    page = Page(render(replace(report, notices=[EVIL], versions={EVIL: EVIL}, created=EVIL)))
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
    assert page.shows("<script>alert('x')</script>")


def test_nothing_is_loaded_from_anywhere(pairs: Report) -> None:
    html = render(pairs)
    page = Page(html)
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert all(link.startswith("#") for link in [attributes.get("href", "#")])
    assert "@import" not in html
    assert "url(" not in html


def test_policy_lets_only_this_script_run(pairs: Report) -> None:
    html = render(pairs)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(
        meta["content"] for meta in Page(html).all("meta") if "Policy" in meta.get("http-equiv", "")
    )
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_page_can_be_read_without_seeing_it(pairs: Report) -> None:
    page = Page(render(pairs))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(page.all("table")) == len(page.all("caption"))
    assert page.all("html")[0]["lang"] == "en"
    for svg in page.all("svg"):
        if "chart" in svg.get("class", ""):
            assert svg.get("aria-hidden") == "true" or svg.get("aria-label")
    targets = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert {link["href"].removeprefix("#") for link in page.all("a")} <= targets


def test_page_fits_narrow_screens_and_dark_ones(pairs: Report) -> None:
    html = render(pairs)
    assert "prefers-color-scheme: dark" in html
    assert "width=device-width" in html
    assert "max-width: 760px" in html


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(pairs: Report, scheme: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", render(pairs), re.DOTALL)
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", blocks[scheme == "dark"]))

    def light(name: str) -> float:
        parts = [int(colours[name][i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for ink, paper, least in [
        ("ink", "paper", 7), ("quiet", "paper", 4.5), ("quiet", "card", 4.5),
        ("accent", "paper", 4.5), ("warn-ink", "warn-paper", 4.5), ("warn-ink", "paper", 4.5),
        ("drop", "paper", 3),
    ]:  # fmt: skip
        high, low = sorted((light(ink), light(paper)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= least, (ink, paper)


def test_right_to_left_text_has_its_own_direction(tmp_path: Path) -> None:
    arabic = "\u0627\u0644\u0642\u0647\u0648\u0629 \u0644\u0630\u064a\u0630\u0629"
    rows = single_rows({"good": [arabic], arabic: ["fine"]})
    html = render(gather(write_run(tmp_path / "r", rows)))
    before = re.findall(r"<(\w+)([^<>]*)>[^<>]*" + arabic, html)
    assert len(before) >= 4
    for tag, attributes in before:
        assert "dir" in attributes or tag == "option"


def test_single_texts_have_no_input_column(tmp_path: Path) -> None:
    page = page_of(tmp_path, single_rows({"good": ["Nice."] * 5}))
    assert page.shows("5 labelled texts")
    assert not page.shows("Similarity of input")
    assert not page.shows("copies")


def test_zero_kept(tmp_path: Path) -> None:
    rows = [{**row, "drop_reason": "not-closed"} for row in pair_rows(SENTENCES[:20])]
    page = page_of(tmp_path, rows)
    assert page.shows("No try was kept")
    assert page.shows("none of its")


def test_one_row(tmp_path: Path) -> None:
    page = page_of(tmp_path, pair_rows(SENTENCES[:1])[:1])
    assert page.shows("Not measured: whether texts fit their labels. Read some.")
    assert page.shows("1 label")


def test_150_labels(tmp_path: Path) -> None:
    rows = single_rows({f"intent-{i:03d}": [f"Word{i} and word{i * 7}."] * 2 for i in range(150)})
    html = render(gather(write_run(tmp_path / "r", rows)))
    page = Page(html)
    assert page.shows("The other 138 labels")
    for i in range(150):
        assert page.shows(f"intent-{i:03d}")
    assert len(html) < 1_500_000


def test_unfinished_run_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", pair_rows(SENTENCES[:9]), planned=7)
    assert Page(render(gather(run))).shows("3 of 7 parts")


def test_sick_labels_are_marked(tmp_path: Path) -> None:
    page = page_of(tmp_path, pair_rows(SENTENCES[:40], close=0.2))
    assert any("sick" in row.get("class", "") for row in page.all("tr"))
    assert page.shows("closed their quotation mark")


def test_render_needs_the_report_alone() -> None:
    figures = health([table(pair_rows(SENTENCES[:10]))])
    page = Page(render(Report(folder="x", task="t", model="m", health=figures)))
    assert page.shows(f"{figures.kept} labelled")


def test_write_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "sts", pair_rows(SENTENCES[:9]))
    assert write_report(run) == run / "report.html"
    html = (run / "report.html").read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert write_report(run, out=tmp_path / "other.html").read_text(encoding="utf-8") == html
    left = {path.name for path in run.iterdir()}
    assert left == {"run.json", "parts", "report.html"}


def test_page_is_the_same_each_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "sts", pair_rows(SENTENCES[:30]))
    assert write_report(run).read_text() == write_report(run, out=tmp_path / "b.html").read_text()


def test_no_place_to_write(tmp_path: Path) -> None:
    run = write_run(tmp_path / "sts", pair_rows(SENTENCES[:3]))
    with pytest.raises(TilthError, match=r"no-such.*cannot be written"):
        write_report(run, out=tmp_path / "no-such" / "report.html")
    with pytest.raises(InputError, match=r"no run\.json"):
        write_report(tmp_path)


def test_shown_text() -> None:
    assert shown_text("a\x00b\x1b") == "a\u2400b\u241b"
    assert shown_text("a\nb") == "a\u23ce\nb"
    long = shown_text("x" * 5000)
    assert len(long) < 700
    assert "5,000 characters" in long


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.21, "3.2 s"), (59, "59 s"), (90, "1 min 30 s"), (3600, "1 h 0 min"), (9000, "2 h 30 min")],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
