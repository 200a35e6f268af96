import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.report.augmented_run import ROWS, write_run
from tests.report.page import Page
from tests.system.commands import tilth
from tests.tiny import read_json
from tilth.errors import InputError
from tilth.report.augment import augment_page, write_augment_report
from tilth.report.generation import write_report
from tilth.report.html import render_page
from tilth.report.retrieved import ClassCounts, entities, read_augmentation
from tilth.runs import Run

HIT = {"accuracy": {"value": 70.0, "low": 60.0, "high": 80.0},
       "macro_f1": {"value": 50.0, "low": 40.0, "high": 60.0}, "classes": {}}  # fmt: skip
GAIN = {name: {"value": 4.0, "low": 1.5, "high": 6.5, "p": 0.01} for name in HIT}


def page_of(folder: Path) -> Page:
    return Page(write_augment_report(folder).read_text(encoding="utf-8"))


def write_student(run: Path, name: str, *, start: str | None = None) -> None:
    """Write what a training on a run leaves in its results.json."""
    if start is None:
        start = read_json(run / "run.json")["start"]
    systems = [{"name": which, "base": "tiny", "scores": HIT} for which in
               ("retrieved", "labelled rows alone", "teacher")]  # fmt: skip
    found = {
        "start": start, "notes": ["Take care."], "measure": "accuracy",
        "best": {"seed": 0, "step": 5, "score": None}, "seeds": [{}],
        "tested": {"on": "test", "data": "test.jsonl", "n": 90, "systems": systems,
                   "differences": {"labelled rows alone": GAIN}},
    }  # fmt: skip
    (run / name).mkdir()
    (run / name / "results.json").write_text(json.dumps(found))


def test_figures_are_those_of_the_rows(tmp_path: Path) -> None:
    found = read_augmentation(write_run(tmp_path, rows=60, dropped=10, labelled=17))
    rows = ROWS["class"](70, seed=1)
    kept, every = (Counter(row["label"] for row in some) for some in (rows[:60], rows))
    assert (found.labelled, found.retrieved, found.kept) == (17, 70, 60)
    assert found.drops == {"class is full": 5, "not drawn": 5}
    assert found.sources == {"novels.txt": 60}
    assert {group.name: group.kept for group in found.classes} == kept
    assert {group.name: group.predicted for group in found.classes} == every
    assert {group.name: group.retrieved for group in found.classes} == every  # their own queries
    assert sum(group.labelled for group in found.classes) == 17
    assert sum(group.confidence.sum() for group in found.classes) == 60
    assert {name: int(counts.sum()) for name, counts in found.similarity.items()} == {
        "retrieved": 70,
        "kept": 60,
    }


def test_sentences_to_read_are_the_ends_of_each_class(tmp_path: Path) -> None:
    found = read_augmentation(write_run(tmp_path, rows=90, dropped=30))
    for one in found.classes:
        first = {"animal": 0, "water": 1, "none": 2}[one.name]
        sure = sorted(0.5 + 0.5 * (row % 50) / 50 for row in range(first, 90, 3))
        near = sorted(0.9 - 0.01 * (row % 40) for row in range(first, 90, 3))
        surest, least, nearest, dropped = one.examples.values()
        assert [s.confidence for s in surest] == pytest.approx(sure[::-1][:4])
        assert [s.confidence for s in least] == pytest.approx(sure[:4])
        assert [s.similarity for s in nearest] == pytest.approx(near[::-1][:4])
        assert sorted(s.reason for s in dropped) == ["class is full"] * 2 + ["not drawn"] * 2
        assert {s.label for s in surest} == {one.name}


def test_tags_make_a_group_of_each_type(tmp_path: Path) -> None:
    found = read_augmentation(write_run(tmp_path, "tags", rows=40, dropped=0))
    rows = ROWS["tags"](40, seed=1)
    with_animal = sum("B-ANIMAL" in row["tags"] for row in rows)
    neither = sum(set(row["tags"]) == {"O"} for row in rows)
    groups = {group.name: group for group in found.classes}
    assert list(groups) == ["ANIMAL", "WATER", "no entity"]
    assert (groups["ANIMAL"].kept, groups["no entity"].kept) == (with_animal, neither)
    assert groups["ANIMAL"].retrieved is None  # queries of no class
    assert "ANIMAL: " in next(iter(groups["ANIMAL"].examples.values()))[0].label
    page = page_of(tmp_path)
    assert page.shows("tilth train tagger")
    assert page.shows("Nothing was dropped.")


def test_several_classes_a_row_count_for_each(tmp_path: Path) -> None:
    found = read_augmentation(write_run(tmp_path, "multi", rows=40, dropped=0))
    rows = ROWS["multi"](40, seed=1)
    groups = {group.name: group.kept for group in found.classes}
    assert groups == {
        "animal": sum("animal" in row["labels"] for row in rows),
        "water": sum("water" in row["labels"] for row in rows),
        "none": sum(not row["labels"] for row in rows),
    }
    page = page_of(tmp_path)
    assert page.shows("animal, water")
    assert page.shows("teacher's label, or why dropped")


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O B-X I-X O", [("X", "b c")]),
        ("B-X B-X I-Y O", [("X", "a"), ("X", "b"), ("Y", "c")]),
        ("I-X I-X O B-Y", [("X", "a b"), ("Y", "d")]),
        ("O O O O", []),
    ],
)
def test_entities(tags: str, found: list[tuple[str, str]]) -> None:
    assert entities(["a", "b", "c", "d"], tags.split()) == found


def test_page_shows_what_it_promises(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path))
    for said in (
        "60 sentences added", "18 labelled rows of train.jsonl", "the teacher tiny", "animal: 20",
        "Kept, the teacher is least sure", "class is full", "What the queries found",
        "novels.txt", "label-average", f"tilth train classifier {tmp_path}", "begun",
    ):  # fmt: skip
        assert page.shows(said), said


def test_gain_is_that_of_trainings_on_this_very_run(tmp_path: Path) -> None:
    write_student(write_run(tmp_path), "classifier")
    write_student(tmp_path, "hard")
    write_student(tmp_path, "stale", start="another")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "results.json").write_text("{")
    assert list(read_augmentation(tmp_path).students) == ["classifier", "hard"]
    page = page_of(tmp_path)
    for said in (
        "+4.0", "+1.5 to +6.5", "p 0.0100", "accuracy of hard", "Take care.",
        "classifier: on test.jsonl, 90 rows; base tiny, teacher tiny",
    ):  # fmt: skip
        assert page.shows(said), said
    assert not page.shows("stale")
    assert not page.shows("Nothing is trained on it yet")


def test_teacher_is_shown_where_it_was_measured(tmp_path: Path) -> None:
    write_run(tmp_path)
    results = {"teacher": {"validation": HIT, "test": HIT, "name": "tiny"}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    page = page_of(tmp_path)
    assert page.shows("macro F1 on test")
    assert page.shows("50.0, 95%: 40.0 to 60.0")


def test_what_is_missing_or_was_left_out_is_said(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert not page_of(tmp_path).shows("Never retrieved")
    found = {"shortfall": {"water": 7, "animal": 1_200}, "left_out": {"test set": 3, "other": 0}}
    (tmp_path / "results.json").write_text(json.dumps(found))
    page = page_of(tmp_path)
    assert page.shows("1,207 rows fewer than were wanted")
    assert page.shows("animal 1,200, water 7.")
    assert page.shows("Never retrieved")
    assert page.shows("test set")
    assert not page.shows("other")


def test_without_hits_or_results(tmp_path: Path) -> None:
    write_run(tmp_path, hits=False)
    (tmp_path / "results.json").unlink()
    page = page_of(tmp_path)
    assert page.shows("The run's folder holds no hits any more.")


def test_many_classes_unfold(tmp_path: Path) -> None:
    found = read_augmentation(write_run(tmp_path))
    found.classes[:] = [ClassCounts(f"c{place}", predicted=1) for place in range(200)]
    page = Page(render_page("augment", **augment_page(found, "run")))
    assert page.shows("The other 188 classes")
    assert not any("open" in given for given in page.all("details"))


def test_report_command_writes_this_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert write_report(folder) == folder / "report.html"
    write_student(folder, "classifier")
    done = tilth("report", folder)
    assert "60 of 69 retrieved sentences kept" in done.stdout
    assert "animal │           6 │         6 │" in done.stdout
    assert "+1.5 to +6.5" in done.stdout
    assert "What it gained" in (folder / "report.html").read_text(encoding="utf-8")
    found = json.loads(tilth("report", folder, "--json").stdout)
    assert found["trained"]["classifier"]["notes"] == ["Take care."]
    tilth("report", folder, "--encoder", "starter", code=2)


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"train": "train.jsonl"}
    Run.open(tmp_path / "begun", command="augment", settings=settings, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="not finished"):
        write_augment_report(tmp_path / "begun")
    Run.open(tmp_path / "other", command="generate", settings={}, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="holds a run of `tilth generate`"):
        write_augment_report(tmp_path / "other")
