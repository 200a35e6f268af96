"""The pages to annotate, as a browser uses them."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.report.page import EVIL
from tests.tiny import write_rows
from tests.view.pages import Visitor, pairs, write_run
from tilth.data.card import Card
from tilth.data.readers import read_rows
from tilth.data.writer import DatasetWriter
from tilth.view.annotations import Annotations, annotations_folder
from tilth.view.settings import TryModels
from tilth.view.site import Site
from tilth.view.store import RowStore

SAMPLE = {"run": "pairs", "name": "first", "task": "class", "labels": "1\r\n0.5\r\n0", "seed": "0",
          "count": "5", "draw": "random", "overlap": "100"}  # fmt: skip


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    write_run(tmp_path / "pairs", pairs(60))
    visitor = Visitor(tmp_path)
    yield visitor
    visitor.close()


def notes(tmp_path: Path) -> Annotations:
    return Annotations(annotations_folder(tmp_path / "pairs"))


def judge(visitor: Visitor, value: str, person: str = "Ann", **more: str) -> int | None:
    """Answer the next row; return its place."""
    text = visitor.client.get(f"/annotate?run=pairs&sample=1&person={person}").text
    place = re.search(r'name="place" value="(\d+)"', text)
    if place is None:
        return None
    fields = {"run": "pairs", "sample": "1", "person": person, "place": place[1], "value": value}
    visitor.post("/answer", **fields, **more)
    return int(place[1])


def test_a_sample_is_drawn_of_all_rows_although_they_are_still_read(
    visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large run is shown before its rows are read; a sample must not depend on when."""
    add, may_read = RowStore._add, threading.Event()

    def slow(self: RowStore, tables: Any) -> None:
        may_read.wait(60)
        add(self, tables)

    monkeypatch.setattr(RowStore, "_add", slow)
    monkeypatch.setattr("tilth.view.site._SECONDS_FOR_ROWS", 0.01)
    page = visitor.page("/rows?run=pairs")
    assert page.shows("The first rows are being read")
    assert not page.shows("No row passes")
    assert "data-first" in visitor.client.get("/rows?run=pairs").text
    assert "data-ready" not in visitor.client.get("/live/rows?run=pairs").text
    assert visitor.page("/samples?run=pairs").shows("the sample is drawn when all are read")
    threading.Timer(0.3, may_read.set).start()
    visitor.post("/sample", **(SAMPLE | {"count": "60"}))
    assert sorted(item.row for item in notes(tmp_path).items(1)) == list(range(60))
    assert "data-ready" in visitor.client.get("/live/rows?run=pairs").text
    assert visitor.page("/rows?run=pairs").shows("60 rows")


def test_a_sample_from_first_to_last(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page("/samples?run=pairs&label=0.5&state=kept")
    assert page.shows("Of 16 rows that pass the filters")
    made = visitor.post("/sample", **SAMPLE, label="0.5", state="kept")
    assert made.headers["location"] == "/annotate?run=pairs&sample=1"
    assert visitor.page("/annotate?run=pairs&sample=1").shows("Your name")
    assert judge(visitor, "0.5", shown="0") == 0
    assert judge(visitor, "1", note="hm", flag="1") == 1
    gone = visitor.post("/undo", run="pairs", sample="1", person="Ann")
    assert gone.headers["location"] == "/annotate?run=pairs&sample=1&person=Ann&place=1"
    for value in ("0.5", "0.5", "1"):
        judge(visitor, value)
    assert judge(visitor, "", skip="1") == 4
    assert visitor.page("/annotate?run=pairs&sample=1&person=Ann").shows("no row left for you")
    page = visitor.page("/results?run=pairs&sample=1")
    assert page.shows("75.0%")  # of the four that were not skipped
    assert page.shows("30.1% to 95.4%")
    assert [item.label for item in notes(tmp_path).items(1)] == ["0.5"] * 5
    assert "75.0%" in visitor.client.get("/live/results?run=pairs&sample=1").text


def test_the_label_is_not_shown_to_who_judges(visitor: Visitor) -> None:
    visitor.post("/sample", **{**SAMPLE, "labels": "yes\nno"})
    page = visitor.page("/annotate?run=pairs&sample=1&person=Ann")
    assert not page.shows("0.5")
    assert page.shows("Output")


def test_two_people_and_a_second_server(visitor: Visitor, tmp_path: Path) -> None:
    visitor.post("/sample", **SAMPLE)
    other = Visitor(tmp_path)
    for one, person, value in ((visitor, "Ann", "1"), (other, "Bob", "0")):
        while judge(one, value, person) is not None:
            pass
    page = other.page("/results?run=pairs&sample=1")
    assert page.shows("Without a majority")
    assert page.shows("Ann and Bob: Cohen's kappa 0.00 on 5 rows")
    other.close()


def test_rows_that_others_look_at_are_no_end(visitor: Visitor) -> None:
    visitor.post("/sample", **{**SAMPLE, "count": "1", "overlap": "0"})
    address = "/annotate?run=pairs&sample=1&person="
    visitor.page(f"{address}Ann")
    page = visitor.page(f"{address}Bob")
    assert page.shows("1 row left, open with others now")
    assert page.shows("comes free after 10 minutes")
    judge(visitor, "1", "Ann")
    assert visitor.page(f"{address}Bob").shows("no row left for you")


def test_labels_that_do_not_fit_the_form_are_counted(tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "label": f"label {n}"} for n in range(1_002)]
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    assert visitor.page("/samples?run=rows.jsonl").shows("the rows have 2 more, which do not fit")
    visitor.close()


def test_pairs_of_grades_below_zero_are_graded(tmp_path: Path) -> None:
    rows = [{"text_a": "x", "text_b": f"y {n}", "label": n} for n in (-1, 1)]
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    page = visitor.client.get("/samples?run=rows.jsonl").text
    assert re.search(r'<option value="grade" selected>', page)
    visitor.close()


def test_a_run_made_anew_is_said(visitor: Visitor, tmp_path: Path) -> None:
    visitor.post("/sample", **SAMPLE)
    content = (tmp_path / "pairs" / "run.json").read_text()
    (tmp_path / "pairs" / "run.json").write_text(re.sub(r'"start": "\w+"', '"start": "1"', content))
    page = visitor.page("/annotate?run=pairs&sample=1&person=Ann")
    assert page.shows("The run was made anew")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": " "}, "a name of the sample is missing"),
        ({"name": "x" * 61}, "too long"),
        ({"task": "odd"}, "task is 'odd'"),
        ({"labels": "\n \n"}, "there are 0 labels"),
        ({"count": "0"}, "count is 0: give a whole number from 1"),
        ({"count": "x"}, "count is 'x'"),
        ({"overlap": "101"}, "overlap is 101"),
        ({"draw": "odd"}, "draw is 'odd'"),
        ({"q": "nowhere"}, "no row passes the filter"),
    ],
)
def test_samples_that_cannot_be(
    visitor: Visitor, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    answer = visitor.post("/sample", 400, **{**SAMPLE, **changed})
    assert said in re.sub(r"&#39;", "'", answer.text)
    assert not notes(tmp_path).folder.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value": "2"}, "'2' is no answer"), ({"place": "5"}, "the sample has no row 5"),
        ({"place": ""}, "place is None"), ({"person": ""}, "your name is missing"),
        ({"sample": "7"}, "there is no sample 7"), ({"note": "x" * 4001}, "the note has 4,001"),
        ({"run": "../pairs"}, "there is no run"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be(visitor: Visitor, changed: dict[str, str], said: str) -> None:
    visitor.post("/sample", **SAMPLE)
    right = {"run": "pairs", "sample": "1", "person": "Ann", "place": "0", "value": "1"}
    fields: dict[str, Any] = {**right, **changed}
    answer = visitor.post("/answer", 404 if "run" in changed else 400, **fields)
    assert said in answer.text.replace("&#39;", "'")


def test_what_people_write_does_not_become_markup(visitor: Visitor) -> None:
    person = "<b>Ann</b>\"'"
    visitor.post("/sample", **{**SAMPLE, "name": EVIL[:60], "labels": f"{EVIL}\n0"})
    for value in (EVIL, "0"):
        judge(visitor, value, person, note=EVIL, flag="1")
    judge(visitor, "0", "Bob")
    for address in ("/samples?run=pairs", "/annotate?run=pairs&sample=1",
                    f"/annotate?run=pairs&sample=1&person={person}",
                    "/results?run=pairs&sample=1"):  # fmt: skip
        page = visitor.client.get(address)
        assert page.status_code == 200
        for markup in ("<b>Ann", "<img", "<script>", 'onmouseover="'):
            assert markup not in page.text, address


def test_the_folder_of_annotations_may_be_chosen(tmp_path: Path) -> None:
    write_run(tmp_path / "pairs", pairs(60))
    visitor = Visitor(tmp_path, tmp_path / "mine")
    visitor.post("/sample", **SAMPLE)
    assert (tmp_path / "mine" / "pairs.annotations" / "annotations.sqlite").is_file()
    assert not (tmp_path / "pairs.annotations").exists()
    visitor.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "pairs", pairs(60))
    (tmp_path / "pairs.annotations").write_text("a file")
    visitor = Visitor(tmp_path)
    answer = visitor.post("/sample", 500, **SAMPLE)
    assert "choose another folder with --annotations" in answer.text
    visitor.close()


def test_the_whole_text_is_judged(tmp_path: Path) -> None:
    rows = {"text": ["word " * 300 + "THE END"], "label": ["a"]}
    write_run(tmp_path / "pairs", rows, parts=1)
    visitor = Visitor(tmp_path)
    visitor.post("/sample", **(SAMPLE | {"count": "1", "labels": "a\r\nb"}))
    for path in ("/annotate?run=pairs&sample=1&person=Ann", "/row?run=pairs&row=0"):
        assert visitor.page(path).shows("THE END"), path
    visitor.close()


def test_texts_of_a_file_are_given_labels(tmp_path: Path) -> None:
    """Raw text, viewed as it is: people's labels make a labelled set of it."""
    file = tmp_path / "mails.txt"
    file.write_text("".join(f"Mail {number} says little.\n" for number in range(9)))
    visitor = Visitor(file)
    assert visitor.page("/").shows("mails.txt")
    assert visitor.page("/rows?run=mails.txt").shows("9 rows")
    assert visitor.page("/row?run=mails.txt&row=8").shows("Mail 8 says little.")
    given = {"run": "mails.txt", "sample": "1"}
    visitor.post("/sample", **(SAMPLE | given | {"labels": "bill\r\nother", "count": "4"}))
    for place, value in enumerate(("bill", "other", "bill", "bill")):
        visitor.post("/answer", **given, person="Ann", place=str(place), value=value)
    visitor.post("/set", **given, kind="corrected")
    visitor.close()
    rows = read_rows(tmp_path / "mails.txt.annotations" / "first-corrected")
    assert rows["label"][:] == ["bill", "other", "bill", "bill"]
    assert all(text.startswith("Mail ") for text in rows["text"])
    assert {path.name for path in tmp_path.iterdir()} == {"mails.txt", "mails.txt.annotations"}


@pytest.mark.parametrize(
    ("rows", "offered"),
    [
        ([{"tokens": ["Ada", "flew", "to", "Rome"], "tags": ["B-PER", "O", "O", "B-LOC"]},
          {"tokens": ["Home"], "tags": ["O"]}], ["LOC", "PER"]),
        ([{"text": "a", "labels": ["01", "big bug"]}, {"text": "b", "labels": []},
          {"text": "c", "labels": ["1"]}], ["01", "1", "big bug"]),
    ],
)  # fmt: skip
def test_types_and_classes_of_a_file_are_offered(
    tmp_path: Path, rows: list[dict[str, Any]], offered: list[str]
) -> None:
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    page = visitor.client.get("/samples?run=rows.jsonl").text
    visitor.close()
    found = re.search(r"<textarea[^>]*name=\"labels\"[^>]*>([^<]*)", page)
    assert found is not None
    assert found[1].split("\n") == offered


def test_sets_of_samples_of_other_scripts_do_not_share_a_folder(
    visitor: Visitor, tmp_path: Path
) -> None:
    for number, name in enumerate(("样本一", "样本二", "plain"), 1):
        visitor.post("/sample", **(SAMPLE | {"name": name, "count": "1"}))
        given = {"run": "pairs", "sample": str(number)}
        visitor.post("/answer", **given, person="Ann", place="0", value="1")
        visitor.post("/set", **given, kind="corrected")
    folders = {path.name for path in notes(tmp_path).folder.iterdir() if path.is_dir()}
    assert folders == {"sample-1-corrected", "sample-2-corrected", "plain-corrected"}


def test_a_data_set_that_is_written_again_is_read_again(visitor: Visitor, tmp_path: Path) -> None:
    for count in (3, 5):
        with DatasetWriter(tmp_path / "set") as writer:
            writer.write(pa.table({"text": [f"text {n}" for n in range(count)]}))
            writer.write_card(
                Card(title="t", summary="s", command="view", settings={}, counts={}, drops={},
                     seed=0, texts="t")
            )  # fmt: skip
        assert visitor.page("/rows?run=set").shows(f"{count} rows")


def test_rows_in_use_are_not_closed_when_others_are_opened(
    visitor: Visitor, tmp_path: Path
) -> None:
    for number in range(5):
        write_run(tmp_path / f"other{number}", pairs(6))
    site = Site(tmp_path, None, csrf="", models=TryModels())
    entry = site.runs.entry("pairs")
    assert entry is not None
    store = site.store(entry, is_whole=True)
    for number in range(5):
        other = site.runs.entry(f"other{number}")
        assert other is not None
        site.store(other, is_whole=True)
    assert store.fetch([59])[0]["text"].startswith("Output 59")
    site.close()
