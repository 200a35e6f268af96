"""Properties of every kind of page, and the text formatting they share."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.report import augmented_run, test_classifier, test_encoders, test_paraphrase
from tests.report.page import EVIL, Page
from tests.tiny.rows import SENTENCES, pair_rows, write_run
from tilth.report.encoders import (
    EncoderComparison,
    EncoderScore,
    ValidationCurve,
    write_encoder_report,
)
from tilth.report.generation import write_report
from tilth.report.html import duration, percent, shown_text
from tilth.report.paraphrase import HeatMap, write_map_report


def generation(folder: Path, word: str) -> Path:
    rows = [
        {**row, "text_a": f"{word} {i}", "text_b": f"{word} {i}", "label": word,
         "drop_reason": word if i % 3 == 0 else None}
        for i, row in enumerate(pair_rows(SENTENCES[:4]))
    ]  # fmt: skip
    task = {"task_name": word, "labels": {word: {"instruction": word}}}
    return write_report(write_run(folder, rows, settings={"task": task, "model": word, word: word}))


def augment(folder: Path, word: str) -> Path:
    return write_report(augmented_run.write_run(folder, word=word))


def classifier(folder: Path, word: str) -> Path:
    found = test_classifier.results(word, names=("no", word))
    return write_report(test_classifier.write_run(folder, found, word=word))


def paraphrase(folder: Path, word: str) -> Path:
    text = f"The old boat {word} sank."
    rows = [
        test_paraphrase.row(0, text, f"{text} Twice.", (90, 50), label=word),
        test_paraphrase.dropped(1, text, word),
    ]
    return write_report(test_paraphrase.write_run(folder, rows, model=word, scorer=word))


def encoders(folder: Path, word: str) -> Path:
    scores = [
        EncoderScore(word, word, 1.0, 0.5, 2.0),
        EncoderScore(word, word, 1.0, published=True),
    ]
    write_encoder_report(
        folder / "report.html",
        EncoderComparison(
            scores,
            interval=word,
            curves=[ValidationCurve(word, [1], [1.0], best=1, metric=word)],
            wrong={word: [test_encoders.PAIR | {"set": word, "text_a": word, "text_b": word}]},
        ),
        title=word,
        facts=[(word, word)],
        notes=[word],
    )
    return folder / "report.html"


def maps(folder: Path, word: str) -> Path:
    write_map_report(
        folder / "report.html",
        [HeatMap(word, np.eye(20, dtype=np.int64), word)],
        title=word,
        head=[word, word],
        lines=[[word, word]],
        notes=[word],
        facts=[(word, word)],
    )
    return folder / "report.html"


KINDS = (generation, augment, classifier, paraphrase, encoders, maps)


@pytest.mark.parametrize("write", KINDS)
def test_every_page(tmp_path: Path, write: Callable[[Path, str], Path]) -> None:
    sources = []
    for name, word in (("clean", "x"), ("evil", EVIL)):
        if write in (encoders, maps):
            (tmp_path / name).mkdir()
        sources.append(write(tmp_path / name, word).read_text(encoding="utf-8"))
    clean, evil = map(Page, sources)
    # Everything is escaped: the same elements, and the words are shown as they are.
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in clean.elements]
    assert not any(name.startswith("on") for _, given in evil.elements for name in given)
    assert evil.shows("<script>alert('x')</script>")
    # Nothing is loaded.
    for forbidden in ("http://", "https://", "url(", "@import"):
        assert forbidden not in sources[0]
    for tag, attributes in clean.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
    policy = next(one["content"] for one in clean.all("meta") if "http-equiv" in one)
    assert policy.startswith("default-src 'none'")
    assert len(clean.all("script")) == ("script-src" in policy)
    # Every link leads somewhere, no figure is broken, charts have text alternatives.
    assert clean.broken_links() == []
    assert not re.search(r"\b(nan|NaN|inf|None)\b", "".join(clean.text))
    for svg in clean.all("svg"):
        if "chart" in svg.get("class", ""):
            assert svg.get("aria-hidden") == "true" or svg.get("aria-label")
    for words in ("prefers-color-scheme: dark", "width=device-width", "max-width: 760px"):
        assert words in sources[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(tmp_path: Path, scheme: str) -> None:
    html = maps(tmp_path, "x").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
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


def test_percent_hides_no_rest() -> None:
    assert [percent(share) for share in (0.004, 0.996, 0.5, None)] == [
        "0.4%", "99.6%", "50%", "\u2013",
    ]  # fmt: skip
