"""The pages of runs and rows, as a browser gets them."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.report.augmented_run import write_run as write_augmented
from tests.report.page import EVIL
from tests.tiny import write_rows
from tests.view.pages import Visitor, pairs, write_run
from tilth.data.writer import DatasetWriter
from tilth.view.store import RowFilter


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    write_run(tmp_path / "pairs", pairs(120))
    visitor = Visitor(tmp_path)
    yield visitor
    visitor.close()


def test_the_list_says_how_far_each_run_is(tmp_path: Path) -> None:
    write_run(tmp_path / "whole")
    write_run(tmp_path / "nested" / "half", parts=4, done=1)
    working = write_run(tmp_path / "working", parts=3, done=1)
    (working / ".tilth-lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    visitor = Visitor(tmp_path)
    page = visitor.page("/")
    for line in ("whole generate finished 2 / 2", "half generate stopped 1 / 4",
                 "working generate running 1 / 3", "bad unknown damaged"):  # fmt: skip
        assert page.shows(line), line
    assert {"data-load": "/live/runs", "data-every": "2"} in page.all("div")
    assert "running" in visitor.client.get("/live/runs").text


@pytest.mark.parametrize("host", [socket.gethostname(), "another-host"])
def test_a_run_that_was_killed_is_not_running(host: str, tmp_path: Path) -> None:
    """Its process has another's number by now, or was on a host that cannot be asked."""
    run = write_run(tmp_path / "killed", parts=3, done=1)
    lock = run / ".tilth-lock"
    lock.write_text(f"process {os.getpid()} on {host}")
    page = Visitor(tmp_path).page("/")
    assert page.shows("killed generate running 1 / 3")
    for file in (lock, run / "run.json", run / "parts"):
        os.utime(file, (1e9, 1e9))
    page = Visitor(tmp_path).page("/")
    assert page.shows("killed generate stopped 1 / 3")


def test_a_damaged_data_set_does_not_hide_the_others(tmp_path: Path) -> None:
    write_run(tmp_path / "pairs")
    (tmp_path / "bad").mkdir()
    card = "---\nconfigs:\n- config_name: default\n  data_files: /etc/hostname\n---\n"
    (tmp_path / "bad" / "README.md").write_text(card)
    visitor = Visitor(tmp_path)
    page = visitor.page("/")
    assert page.shows("pairs generate finished")
    assert page.shows("names '/etc/hostname', which is not in its folder")
    assert visitor.page("/rows?run=bad", 404).shows("no rows to read")


def test_a_folder_without_runs_says_how_one_is_made(tmp_path: Path) -> None:
    assert Visitor(tmp_path).page("/").shows("tilth quickstart makes one")


def test_a_run_itself_may_be_opened(tmp_path: Path) -> None:
    visitor = Visitor(write_run(tmp_path / "pairs"))
    assert visitor.rows("/rows?run=.")[:3] == [0, 1, 2]
    visitor.close()


def test_links_lead_from_page_to_page(visitor: Visitor) -> None:
    page = visitor.page("/rows?run=pairs")
    assert page.shows("120 rows")
    following = [link["href"] for link in page.all("a") if link.get("rel") == "next"]
    second = visitor.rows(following[0])
    assert second == list(range(50, 100))
    before = [link["href"] for link in visitor.page(following[0]).all("a")
              if link.get("rel") == "prev"]  # fmt: skip
    assert visitor.rows(before[0]) == list(range(50))


def test_bars_filter_on_click(visitor: Visitor) -> None:
    page = visitor.page("/rows?run=pairs&label=0.5")
    assert page.shows("40 rows of 120")
    links = [link for link in page.all("a") if "tokens-min" in link["href"]]
    assert len(links) == 20  # a bar for each number of tokens
    assert links[4]["aria-label"] == "tokens 3.5 to 4.5: 2 rows"
    assert visitor.rows(links[4]["href"]) == [4, 64]


def test_bars_of_fractions_lead_to_the_rows_that_they_count(tmp_path: Path) -> None:
    shares = [0.49, 0.5, 0.65, 2 / 3, 0.9, 1.0]
    rows = [{"text": f"text {n}", "confidence": shares[n % 6]} for n in range(60)]
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    links = [link for link in visitor.page("/rows?run=rows.jsonl").all("a")
             if "confidence-min" in link["href"]]  # fmt: skip
    assert [link["aria-label"].rpartition(": ")[2] for link in links] == ["10 rows"] * 6
    for link, share in zip(links, range(6), strict=True):
        assert visitor.rows(link["href"]) == list(range(share, 60, 6))
    visitor.close()


def test_rows_without_a_label_are_a_bar_of_their_own(tmp_path: Path) -> None:
    labels = ["a", None, "", " a", "b"]
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(labels)]
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    links = {link["href"] for link in visitor.page("/rows?run=rows.jsonl").all("a")
             if "&label=" in link["href"]}  # fmt: skip
    assert {link: visitor.rows(link) for link in links} == {
        "/rows?run=rows.jsonl&label=a": [0, 3],
        "/rows?run=rows.jsonl&label=%28no+label%29": [1, 2],
        "/rows?run=rows.jsonl&label=b": [4],
    }
    visitor.close()


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"text": "x", "label": "pos", "tags": ["news"]}, "pos"),
        ({"tokens": ["Ada"], "label": "pos", "tags": ["B-PER"]}, "PER: Ada"),
        ({"text": "x", "labels": ["a", None, "b"]}, "a, b"),
        ({"tokens": ["Ada", "and", "Bo"], "tags": [None, "O", "B-PER"]}, "PER: Bo"),
        ({"text": "x", "label": {"kind": "odd"}}, "{'kind': 'odd'}"),
        ({"text": "x", "tokens": 7, "labels": ["a"]}, "a"),
    ],
)
def test_one_column_holds_the_labels(tmp_path: Path, row: dict[str, Any], shown: str) -> None:
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", [row]))
    visitor.page("/rows?run=rows.jsonl")
    (entry,) = visitor.site.runs.entries()
    assert visitor.site.store(entry).values_of("label") == [shown]
    visitor.close()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"text": "x", "labels": labels} for labels in (["a", "b"], [], ["b"], None)],
         {"a": [0], "b": [0, 2]}),
        ([{"tokens": ["Ada", "and", "Bo"], "tags": tags} for tags in
          (["B-PER", "O", "B-PER"], ["O", "O", "O"], ["B-LOC", "O", "B-PER"])],
         {"PER": [0, 2], "LOC": [2]}),
    ],
)  # fmt: skip
def test_rows_of_several_labels_are_found_by_one(
    tmp_path: Path, rows: list[dict[str, Any]], expected: dict[str, list[int]]
) -> None:
    visitor = Visitor(write_rows(tmp_path / "rows.jsonl", rows))
    page = visitor.page("/rows?run=rows.jsonl")
    assert page.shows("Among the labels")
    links = {link["href"] for link in page.all("a") if "&kind=" in link["href"]}
    assert {link.rpartition("=")[2]: visitor.rows(link) for link in links} == expected
    (entry,) = visitor.site.runs.entries()
    counts = visitor.site.store(entry).counts("kind", RowFilter(words="nowhere"))
    assert counts == {}
    counts = visitor.site.store(entry).counts("kind", RowFilter(kind="PER"))
    assert counts == {kind: len(places) for kind, places in expected.items()}
    visitor.close()


def test_folders_of_usual_names_are_looked_into(tmp_path: Path) -> None:
    write_run(tmp_path / "data" / "run")
    with DatasetWriter(tmp_path / "model" / "set") as writer:
        writer.write(pa.table({"text": ["Good."]}))
    page = Visitor(tmp_path).page("/")
    assert page.shows("data/run generate finished")
    assert page.shows("model/set data set")


def test_a_dropped_paraphrase_says_why(tmp_path: Path) -> None:
    rows = {"text": ["x"], "original": ["x"], "drop_reason": ["low meaning"]}
    write_run(tmp_path / "run", rows, command="paraphrase", parts=1)
    page = Visitor(tmp_path).page("/row?run=run&row=0")
    assert page.shows("nothing that came out reached the least meaning")


def test_a_row_shows_its_origin_attempts_and_neighbours(visitor: Visitor) -> None:
    page = visitor.page("/row?run=pairs&row=4")
    for words in ("Dropped: newline", "Output 4 is dry", "source_id id-1", "part-00000.parquet",
                  "Attempts on the same input", "Output 3 is dry", "Output 6 is dry",
                  "Similar rows", "The input 4 lies near a river"):  # fmt: skip
        assert page.shows(words) or page.shows(words.replace(" id-1", "id-1")), words
    assert visitor.page("/row?run=pairs&row=3").shows("Say the same")  # the label's instruction


def test_what_can_be_tried_is_linked(visitor: Visitor, tmp_path: Path) -> None:
    for name in ("corpus", "student"):
        write_run(tmp_path / name, {"text": ["a"]}, command="bank build", parts=1)
    (tmp_path / "corpus" / "bank.json").write_text("{}")
    (tmp_path / "student" / "model").mkdir()
    config = '{"architectures": ["BertForTokenClassification"]}'
    (tmp_path / "student" / "model" / "config.json").write_text(config)
    links = [link["href"] for link in Visitor(tmp_path).page("/").all("a")]
    assert {"/try/search?bank=corpus", "/try/label?classifier=student"} <= set(links)
    assert len([link for link in links if link.startswith("/try/")]) == 2
    links = [link["href"] for link in visitor.page("/row?run=pairs&row=4").all("a")]
    (address,) = (link for link in links if link.startswith("/try/rewrite"))
    assert visitor.page(address).shows("Output 4 is dry, number4.")


def test_rows_of_an_augmented_run_and_of_a_data_set(tmp_path: Path) -> None:
    write_augmented(tmp_path / "more", "tags")
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write(pa.table({"text": ["Good."], "label": ["yes"]}))
        writer.write(pa.table({"text": ["Bad."], "label": ["no"]}), split="test")
    visitor = Visitor(tmp_path)
    page = visitor.page("/rows?run=more")
    for words in ("labelled", "validation", "class is full", "ANIMAL", "similarity"):
        assert page.shows(words), words
    assert len(visitor.rows("/rows?run=more&config=dropped")) == 9
    page = visitor.page("/rows?run=set")
    assert page.shows("train 1") or page.shows("train1")
    assert visitor.rows("/rows?run=set&config=test") == [1]
    visitor.close()


def test_a_data_set_that_is_written_again_is_read_again(tmp_path: Path) -> None:
    """The search writes the best rows so far, each time over those before."""
    run = write_run(tmp_path / "grown", command="grow", parts=1)
    visitor = Visitor(tmp_path)
    for texts in (["First."], ["Second.", "Third."]):
        with DatasetWriter(run / "dataset") as writer:
            writer.write(pa.table({"text": texts, "label": ["a"] * len(texts)}))
        assert len(visitor.rows("/rows?run=grown")) == len(texts)
        assert visitor.page("/rows?run=grown").shows(texts[0])
    visitor.close()


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/rows?run=none", 404, "there is no run 'none' here"),
        ("/rows?run=../pairs", 404, "there is no run"),
        ("/rows?run=/etc", 404, "there is no run"),
        ("/rows?run=pairs&sort=text", 400, "sort is 'text'"),
        ("/rows?run=pairs&similarity-min=x", 400, "similarity-min is 'x': give a number"),
        ("/rows?run=pairs&tokens-max=nan", 400, "give a number"),
        ("/rows?run=pairs&after=-1", 400, "after is '-1': give a whole number"),
        ("/rows?run=pairs&state=odd", 400, "state is 'odd'"),
        (f"/rows?run=pairs&q={'a' * 400}", 400, "the search has 400 characters"),
        ("/row?run=pairs&row=120", 404, "there is no row 120"),
        ("/row?run=pairs", 404, "there is no row None"),
        ("/report?run=pairs", 404, "the run has no report"),
        ("/nowhere", 404, "there is no such page"),
        ("/static/../../etc/passwd", 404, "there is no such page"),
    ],
)
def test_wrong_addresses(visitor: Visitor, address: str, status: int, said: str) -> None:
    assert visitor.page(address, status).shows(said)


def test_nothing_from_a_run_becomes_markup(tmp_path: Path) -> None:
    """Texts, labels, reasons, settings and file names are shown as they are."""
    name = "x<img src=x onerror=alert(1)>\"'&amp;"
    rows = {
        "text_a": [EVIL, EVIL], "text_b": [EVIL, "\u202eodd\x00\x1b[31m"], "label": [EVIL, "a"],
        "source_id": [EVIL, EVIL], "drop_reason": [None, EVIL], "source": [EVIL, EVIL],
        EVIL: [EVIL, EVIL], "similarity": [0.5, 0.6],
    }  # fmt: skip
    folder = write_run(tmp_path / name, rows, parts=1)
    content = json.loads((folder / "run.json").read_text())
    content["settings"]["task"]["labels"] = {EVIL: {"instruction": EVIL}}
    (folder / "run.json").write_text(json.dumps(content))
    (folder / "report.html").write_text("<script>alert(1)</script>")
    damaged = tmp_path / f"{name}2"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    visitor = Visitor(tmp_path)
    links = [link["href"] for link in visitor.page("/").all("a")]
    run = next(link for link in links if link.startswith("/rows"))
    addresses = ["/", run, run + "&state=dropped", run.replace("/rows", "/row") + "&row=0",
                 run.replace("/rows", "/row") + "&row=1", "/rows?run=" + EVIL, "/live/runs",
                 run + "&q=" + EVIL, run + "&label=" + EVIL, run + "&sort=" + EVIL]  # fmt: skip
    for address in addresses:
        answer = visitor.client.get(address)
        assert "<img" not in answer.text, address
        assert "<script>" not in answer.text, address
        assert 'onmouseover="' not in answer.text, address
        assert "script-src 'self';" in answer.headers["content-security-policy"]
    # A report file may have come from elsewhere: its scripts do not run.
    answer = visitor.client.get(run.replace("/rows", "/report"))
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    (tmp_path / "else.html").write_text("of somebody else")
    (folder / "report.html").unlink()
    (folder / "report.html").symlink_to(tmp_path / "else.html")
    answer = visitor.client.get(run.replace("/rows", "/report"))
    assert (answer.status_code, "of somebody else" in answer.text) == (404, False)
    visitor.close()


def test_run_folders_stay_as_they_are(visitor: Visitor, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for address in ("/", "/rows?run=pairs&q=river", "/row?run=pairs&row=1"):
        visitor.page(address)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "secret")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "link").symlink_to(tmp_path / "secret")
    assert Visitor(tmp_path / "shown").page("/").shows("There is no run")


def test_a_training_that_measures_nothing_is_finished_with_its_model(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "trained")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "outputs": ["model", "results.json"]}))
    for state in ("stopped", "finished"):
        visitor = Visitor(tmp_path)
        assert visitor.page("/").shows(f"trained generate {state} 2 / 2")
        visitor.close()
        (folder / "model").mkdir(exist_ok=True)
