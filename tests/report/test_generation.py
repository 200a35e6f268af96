import base64
import hashlib
import json
import os
import re
import shlex
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.page import Page
from tests.tiny import read_json
from tests.tiny.rows import SENTENCES, pair_rows, single_rows, write_curated, write_run
from tilth.errors import InputError, TilthError
from tilth.report.generation import _of_so_many, generation_page, read_curated, write_report
from tilth.report.html import render_page
from tilth.report.tries import quality_of_run

ROWS = pair_rows(SENTENCES[:40])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "sts", ROWS)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    run = write_run(folder / "sts", pair_rows(SENTENCES[:60]))
    write_curated(run / "curated", {0.9: 50, 0.1: 60}, {"near-duplicate": 7})
    assert write_report(run) == run / "report.html"
    return (run / "report.html").read_text(encoding="utf-8")


def page_of(run: Path) -> Page:
    return Page(render_page("generation", **generation_page(run)))


def test_page_shows_what_it_promises(html: str, tmp_path: Path) -> None:
    page = Page(html)
    rows = pair_rows(SENTENCES[:60])
    kept = sum(row["drop_reason"] is None for row in rows)
    for words in (
        f"{kept:,} labelled text pairs that the language model starter wrote for 60 inputs",
        "train 99, validation 11", "near-duplicate", "tilth generate sts-x2", "decay100.0",
        "transformers 5.23.0", "begun2026-11-21T09:00:00+00:00", "mean the same thing",
    ):  # fmt: skip
        assert page.shows(words), words
    quality = quality_of_run(write_run(tmp_path / "sts", rows))
    assert (quality.tries, quality.kept) == (len(rows), kept)
    assert all(page.shows(f"{label.tries:,}") for label in quality.labels)


def test_same_input_shows_all_labels_of_an_input(run: Path) -> None:
    groups = generation_page(run)["same_input"]
    assert len(groups) == 8
    for rows in groups:
        inputs = {row.text_a for row in rows}
        assert len(inputs) == 1
        expected = {
            (row["label"], row["text_b"])
            for row in ROWS
            if row["text_a"] in inputs and row["drop_reason"] is None
        }
        assert {(row.label, row.text) for row in rows} == expected
        labels = [float(row.label) for row in rows]
        assert labels == sorted(labels, reverse=True)
        assert all(page_of(run).shows(row.text) for row in rows[:1])


def test_many_labels_are_shown_label_by_label(tmp_path: Path) -> None:
    rows = [{**row, "label": f"intent {i % 9}"} for i, row in enumerate(ROWS)]
    found = generation_page(write_run(tmp_path / "r", rows))
    assert not found["same_input"]
    assert len({line[0] for line in found["examples"][0][2]}) == 9


def test_dropped_examples_cover_the_reasons(run: Path) -> None:
    _, columns, lines = generation_page(run)["examples"][1]
    assert list(columns) == ["label", "input", "written", "dropped because"]
    dropped = {(row["label"], row["drop_reason"]) for row in ROWS if row["drop_reason"] is not None}
    assert {(line[0], line[-1]) for line in lines} == dropped


def test_similarity_is_word_overlap_unless_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Same:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.ones((len(sentences), 3))

    found = generation_page(run)
    medians = {row.name: float(row.value) for row in found["similarity"]}
    assert medians["1"] > medians["0.5"] > medians["0"]
    assert "Word overlap" in found["measure"]
    monkeypatch.setattr("tilth.models.load_encoder", lambda _: Same())
    found = generation_page(run, encoder="same")
    assert {row.value for row in found["similarity"]} == {"1.00"}
    assert "sentence encoder same" in found["measure"]


def test_similarity_that_the_run_measured_comes_first(run: Path) -> None:
    for part in (run / "parts").iterdir():
        table = pq.read_table(part)
        column = pa.array([0.25] * len(table), pa.float32())
        pq.write_table(table.append_column("similarity", column), part)
    found = generation_page(run)
    assert {row.value for row in found["similarity"]} == {"0.25"}
    assert "starter encoder" in found["measure"]
    assert found["quality"].labels[0].similarity == pytest.approx(0.25)


def test_a_thinned_histogram_keeps_the_shares_of_its_bins() -> None:
    counts = np.array([*[1] * 70, 600_000, 399_930])
    found = _of_so_many(counts, 2_000)
    assert found.sum() == 2_000
    assert found[:70].sum() <= 1
    assert abs(found[70] - 1_200) <= 1
    assert _of_so_many(np.array([1, 0, 2]), 6).tolist() == [2, 0, 4]


def test_time(run: Path) -> None:
    began = datetime(2026, 11, 21, 9, tzinfo=timezone.utc).timestamp()
    for part in (run / "parts").iterdir():
        os.utime(part, (began + 90, began + 90))
    figures = {name: (value, note) for name, value, note in generation_page(run)["figures"]}
    note = "from the start to the last part written, pauses included"
    assert figures["time"] == ("1 min 30 s", note)
    assert figures["kept per second"][0] == f"{quality_of_run(run).kept / 90:.1f}"
    for part in (run / "parts").iterdir():
        os.utime(part, (began - 90, began - 90))  # copied from elsewhere
    assert "time" not in {name for name, *_ in generation_page(run)["figures"]}
    asked = read_json(run / "run.json")
    (run / "run.json").write_text(json.dumps({**asked, "created": "yesterday"}))
    assert "time" not in {name for name, *_ in generation_page(run)["figures"]}


def test_next_steps(run: Path, tmp_path: Path) -> None:
    def commands(folder: Path) -> list[str]:
        return [command for _, command in generation_page(folder)["next_steps"]]

    clean, load, _ = commands(run)
    assert clean == f"tilth curate {run}"
    assert f"{run}/dataset" in load
    write_curated(run / "curated", {1.0: 10}, {})
    load, more = commands(run)
    assert f"{run}/curated" in load
    assert "tilth curate" not in more
    rows = [{**row, "drop_reason": "not-closed"} for row in ROWS]
    (again,) = commands(write_run(tmp_path / "none", rows))
    assert "--plan" in again
    for command in commands(write_run(tmp_path / "it's; rm", ROWS))[:2]:
        assert "it's; rm" in " ".join(shlex.split(command))
        assert "rm" not in shlex.split(command)
    compile(shlex.split(command)[2], "step", "exec")


def test_curated_folder(run: Path, tmp_path: Path) -> None:
    labels = {0.0: 40, 0.1: 30, 0.5: 20, 0.9: 10}
    folder = write_curated(tmp_path / "clean", labels, {"duplicate": 3, "identical-pair": 1})
    curated = read_curated(folder)
    assert curated.splits == {"train": 90, "validation": 10}
    assert curated.labels == {"0.9": 10, "0.5": 20, "0.1": 30, "0": 40}
    assert curated.dropped == {"duplicate": 3, "identical-pair": 1}
    assert not page_of(run).shows("after curation")
    write_curated(run / "curated", {1.0: 10}, {"duplicate": 1})  # inside the run it is found
    assert page_of(run).shows("after curation10")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no curated rows"):
        read_curated(tmp_path / "empty")
    (folder / "dataset" / "data" / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(TilthError, match="curate again"):
        read_curated(folder)


def test_single_texts(tmp_path: Path) -> None:
    rows = single_rows({"good": ["Nice."] * 3, "bad": ["Awful."] * 2})
    task = {"task_name": "moods", "labels": {"good": {"instruction": "Praise:"}}}
    found = generation_page(write_run(tmp_path / "r", rows, settings={"model": "m", "task": task}))
    assert (found["similarity"], found["same_input"]) == ([], [])
    _, columns, lines = found["examples"][0]
    assert list(columns) == ["label", "written"]
    assert [line[1] for line in lines] == ["Nice."] * 3 + ["Awful."] * 2
    assert (found["title"], found["instructions"]) == ("moods", {"good": "Praise:"})
    page = Page(render_page("generation", **found))
    assert page.shows("5 labelled texts")
    assert not page.shows("Similarity of input")
    assert not page.shows("copies")
    with pytest.raises(InputError, match="the run has none: leave it out"):
        write_report(tmp_path / "r", encoder="starter-static")


def test_unfinished_and_damaged_parts_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = write_run(tmp_path / "r", ROWS, parts=3, planned=8)
    (run / "parts" / "part-00001.parquet").write_bytes(b"PAR1 and then nothing")
    page = page_of(run)
    assert page.shows("The run is not finished: 3 of 8 parts are there.")
    assert page.shows("part-00001.parquet could not be read and is left out.")
    assert 0 < quality_of_run(run).tries < len(ROWS)
    assert "part-00001" in caplog.text


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    for read in (generation_page, quality_of_run, write_report):
        with pytest.raises(InputError, match=r"no run\.json"):
            read(tmp_path)
    empty = write_run(tmp_path / "r", [])
    for read in (generation_page, quality_of_run):
        with pytest.raises(InputError, match="no tries to report"):
            read(empty)
    asked = read_json(run / "run.json")
    (run / "run.json").write_text(json.dumps({**asked, "command": "train encoder"}))
    with pytest.raises(InputError, match="holds a run of `tilth train encoder`"):
        write_report(run)
    for text in ("{", "[1]"):
        (run / "run.json").write_text(text)
        with pytest.raises(TilthError, match=r"run\.json"):
            generation_page(run)


def test_policy_lets_only_this_script_run(html: str) -> None:
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(meta["content"] for meta in Page(html).all("meta") if "http-equiv" in meta)
    assert f"script-src 'sha256-{digest}'" in policy


def test_page_can_be_read_without_seeing_it(html: str) -> None:
    page = Page(html)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(page.all("table")) == len(page.all("caption"))
    assert page.all("html")[0]["lang"] == "en"


def test_right_to_left_text_has_its_own_direction(tmp_path: Path) -> None:
    arabic = "\u0627\u0644\u0642\u0647\u0648\u0629 \u0644\u0630\u064a\u0630\u0629"
    rows = single_rows({"good": [arabic], arabic: ["fine"]})
    html = write_report(write_run(tmp_path / "r", rows)).read_text(encoding="utf-8")
    before = re.findall(r"<(\w+)([^<>]*)>[^<>]*" + arabic, html)
    assert len(before) >= 4
    for tag, attributes in before:
        assert "dir" in attributes or tag == "option"


def test_zero_kept_and_one_row(tmp_path: Path) -> None:
    rows = [{**row, "drop_reason": "not-closed"} for row in pair_rows(SENTENCES[:20])]
    page = page_of(write_run(tmp_path / "none", rows))
    assert page.shows("No try was kept")
    assert page.shows("none of its")
    page = page_of(write_run(tmp_path / "one", pair_rows(SENTENCES[:1])[:1]))
    assert page.shows("Too few kept texts to judge")
    assert page.shows("1 label")


def test_150_labels(tmp_path: Path) -> None:
    rows = single_rows({f"intent-{i:03d}": [f"Word{i} and word{i * 7}."] * 2 for i in range(150)})
    html = write_report(write_run(tmp_path / "r", rows)).read_text(encoding="utf-8")
    page = Page(html)
    assert page.shows("The other 138 labels")
    assert all(page.shows(f"intent-{i:03d}") for i in range(150))
    assert len(html) < 1_500_000


def test_labels_with_warnings_are_marked(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "r", pair_rows(SENTENCES[:40], close=0.2)))
    assert any("marked" in row.get("class", "") for row in page.all("tr"))
    assert page.shows("closed their quotation mark")
