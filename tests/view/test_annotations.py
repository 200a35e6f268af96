"""Annotations as SQLite keeps them: people at once, answers sent twice, samples drawn by seed."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import tagged
from tests.view.pages import pairs, write_run
from tests.view.test_store import opened
from tilth.errors import InputError, TilthError
from tilth.view.annotations import (
    NO_LABEL,
    Annotation,
    Annotations,
    SampleAbout,
    SampleItem,
    annotations_folder,
    checked_value,
)
from tilth.view.draw import BY_LABEL, RANDOM, draw_sample, draws_of
from tilth.view.results import sample_result, verdict
from tilth.view.store import RowFilter


def about(task: str = "class", **more: Any) -> SampleAbout:
    given = {"labels": ["a", "b"], "draw": RANDOM, "seed": 0, "overlap": 0.0, "run": "r", **more}
    return SampleAbout(task=task, **given)


def item(
    row: int = 0, label: str | None = "a", text: str = "one two three", **more: Any
) -> SampleItem:
    return SampleItem(row=row, key=f"{row}", first=None, text=text, label=label, **more)


def said(place: int, person: str = "Ann", value: Any = "a", at: float = 0.0) -> Annotation:
    return Annotation(place, person, value, "", False, at, None)


@pytest.fixture
def notes(tmp_path: Path) -> Annotations:
    return Annotations(tmp_path / "run.annotations")


def test_nothing_is_made_before_the_first_sample(notes: Annotations) -> None:
    assert notes.samples() == []
    assert not notes.folder.exists()


def test_rows_of_one_person_are_not_given_to_two(notes: Annotations) -> None:
    number = notes.add("s", about(), [item(row) for row in range(4)])
    assert [notes.next_place(number, "Ann"), notes.next_place(number, "Bob")] == [0, 1]
    assert notes.next_place(number, "Ann") == 0  # her own row, still
    notes.answer(number, said(0))
    assert notes.next_place(number, "Ann") == 2
    assert notes.next_place(number, "Bob") == 1
    assert notes.next_place(number, "Eve") == 3
    assert notes.next_place(number, "Joe") is None


def test_rows_of_everybody_are_spread_and_given_to_all(notes: Annotations) -> None:
    number = notes.add("s", about(overlap=0.5), [item(row) for row in range(4)])
    for person in ("Ann", "Bob"):
        while (place := notes.next_place(number, person)) is not None:
            notes.answer(number, said(place, person))
    people = {place: [one.person for one in notes.answers(number) if one.place == place]
              for place in range(4)}  # fmt: skip
    assert people == {0: ["Ann"], 1: ["Ann", "Bob"], 2: ["Ann"], 3: ["Ann", "Bob"]}


def test_an_answer_sent_twice_is_one_and_the_last_counts(notes: Annotations) -> None:
    number = notes.add("s", about(), [item(), item(1)])
    notes.answer(number, said(0))
    notes.answer(number, said(0, value="b"))
    assert [one.value for one in notes.answers(number)] == ["b"]
    (sample,) = notes.samples()
    assert (sample.answered, sample.people, sample.items) == (1, {"Ann": 1}, 2)


def test_undo_takes_back_the_latest_answer_of_one_person(notes: Annotations) -> None:
    number = notes.add("s", about(), [item(row) for row in range(3)])
    for at, (place, person) in enumerate([(0, "Ann"), (1, "Ann"), (2, "Bob")]):
        notes.answer(number, said(place, person, at=float(at)))
    assert notes.undo(number, "Ann") == 1
    assert notes.next_place(number, "Ann") == 1
    assert [one.place for one in notes.answers(number)] == [0, 2]
    assert notes.undo(number, "Eve") is None


def test_two_servers_see_the_same(notes: Annotations) -> None:
    other = Annotations(notes.folder)
    number = notes.add("s", about(), [item()])
    other.answer(number, said(0))
    assert len(notes.answers(number)) == 1
    with pytest.raises(InputError, match="a sample 's' already"):
        other.add("s", about(), [item()])


def test_a_damaged_file_is_named(notes: Annotations) -> None:
    notes.folder.mkdir()
    notes.file.write_bytes(b"no database" * 100)
    with pytest.raises(TilthError, match=r"annotations\.sqlite: file is not a database"):
        notes.samples()
    notes.file.unlink()
    number = notes.add("s", about(), [item()])
    with sqlite3.connect(notes.file) as db:
        db.execute("UPDATE sample SET about = '{}'")
    with pytest.raises(TilthError, match="is not what tilth wrote"):
        notes.sample(number)


def test_annotations_lie_beside_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pairs")
    assert annotations_folder(run) == tmp_path / "pairs.annotations"
    assert annotations_folder(run / "curated") == tmp_path / "pairs.annotations" / "curated"
    chosen = annotations_folder(run, tmp_path / "mine")
    assert chosen == tmp_path / "mine" / "pairs.annotations"
    inner = write_run(tmp_path / "first" / "pairs")
    assert annotations_folder(inner, tmp_path / "mine", tmp_path) == (
        tmp_path / "mine" / "first" / "pairs.annotations"
    )  # not that of another run of the same name


@pytest.mark.parametrize(
    ("task", "form", "expected"),
    [
        ("class", {"value": "a"}, "a"),
        ("class", {"value": "a", "skip": "1"}, None),
        ("classes", {"value": "b\na"}, ["a", "b"]),
        ("classes", {}, []),
        ("grade", {"value": "0"}, 0),
        ("same meaning", {"value": "no"}, "no"),
        ("spans", {"value": '[[1, 3, "b"], [0, 1, "a"]]'}, [[0, 1, "a"], [1, 3, "b"]]),
    ],
)
def test_answers_of_forms(task: str, form: dict[str, str], expected: Any) -> None:
    assert checked_value(about(task), item(), form) == expected


@pytest.mark.parametrize(
    ("task", "value"),
    [("class", "c"), ("class", ""), ("classes", "a\nc"), ("grade", "6"), ("grade", "-1"),
     ("same meaning", "maybe"), ("spans", "x"), ("spans", '[[0, 4, "a"]]'), ("spans", "[[0]]"),
     ("spans", '[[0, 2, "a"], [1, 3, "a"]]'), ("spans", '[[0, 1, "c"]]'), ("spans", "[" * 9000)],
)  # fmt: skip
def test_answers_that_are_none(task: str, value: str) -> None:
    with pytest.raises(InputError):
        checked_value(about(task), item(), {"value": value})


def draw(folder: Path, **given: Any) -> Any:
    chosen = given.pop("chosen", RowFilter(state="kept"))
    asked = {"task": "class", "draw": RANDOM, "count": 12, "seed": 0, **given}
    return draw_sample(opened(folder), chosen, **asked)


def test_samples_follow_from_the_seed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", pairs(90))
    one, two = draw(folder), draw(folder)
    assert one == two
    assert len({item.row for item in one.items}) == 12
    assert all(item.reason is None for item in one.items)
    other = draw(folder, seed=1)
    assert [item.row for item in other.items] != [item.row for item in one.items]
    more = draw(folder, count=20)  # goes on with the same rows
    assert more.items[:12] == one.items
    assert len(draw(folder, count=500).items) == 72


def test_labels_are_drawn_alike(tmp_path: Path) -> None:
    rows = pairs(90)
    rows["label"] = ["rare" if row < 10 else "often" for row in range(90)]
    drawn = draw(write_run(tmp_path / "run", rows), draw=BY_LABEL, chosen=RowFilter())
    labels = [item.label for item in drawn.items]
    assert (labels.count("rare"), labels.count("often")) == (6, 6)
    assert drawn.shares == {"rare": 10, "often": 80}


def test_the_lowest_are_drawn(tmp_path: Path) -> None:
    rows = pairs(90)
    folder = write_run(tmp_path / "run", rows)
    drawn = draw(folder, draw="lowest similarity", chosen=RowFilter(), count=5)
    assert [rows["similarity"][item.row] for item in drawn.items] == [0.0] * 5
    with pytest.raises(InputError, match="draw is 'lowest x'"):
        draw(folder, draw="lowest x")
    with pytest.raises(InputError, match="no row passes the filter"):
        draw(folder, chosen=RowFilter(label="none"))


def test_spans_of_a_run_are_kept_with_a_sample(tmp_path: Path) -> None:
    rows = [{"tokens": ["A", "red", "cat"], "tags": ["O", "B-COLOUR", "B-ANIMAL"]}]
    folder = write_run(tmp_path / "run", {name: [row[name] for row in rows] for name in rows[0]},
                       parts=1)  # fmt: skip
    drawn = draw(folder, task="spans", chosen=RowFilter())
    assert drawn.items[0].made == [[1, 2, "COLOUR"], [2, 3, "ANIMAL"]]
    assert draws_of(opened(folder)) == [RANDOM]  # rows are not alike by their entities
    assert tagged(1)


def test_spans_count_the_words_of_tokens_that_hold_several_or_none(tmp_path: Path) -> None:
    rows = {
        "tokens": [["in", "New York", "", "with", "Anna"]],
        "tags": [["O", "B-LOC", "B-ODD", "O", "B-PER"]],
    }
    (item,) = draw(write_run(tmp_path / "run", rows, parts=1), task="spans",
                   chosen=RowFilter()).items  # fmt: skip
    assert item.made == [[1, 3, "LOC"], [4, 5, "PER"]]
    assert [item.words[first:last] for first, last, _ in item.made] == [["New", "York"], ["Anna"]]


def test_spans_of_tokens_inside_words_are_those_of_the_words(tmp_path: Path) -> None:
    rows = {
        "text": ['"Hi", said John.', "Anna-Lena saw Rome!", "not the tokens", "Paris/London"],
        "tokens": [['"', "Hi", '"', ",", "said", "John", "."],
                   ["Anna", "-", "Lena", "saw", "Rome", "!"], ["Ada", "flew"],
                   ["Paris", "/", "London"]],
        "tags": [["O"] * 5 + ["B-PER", "O"], ["B-PER", "I-PER", "I-PER", "O", "B-LOC", "O"],
                 ["B-PER", "O"], ["B-LOC", "O", "B-LOC"]],
    }  # fmt: skip
    folder = write_run(tmp_path / "run", rows, parts=1)
    made = {item.text: item.made for item in draw(folder, task="spans", chosen=RowFilter()).items}
    assert made == {
        '"Hi", said John.': [[2, 3, "PER"]],
        "Anna-Lena saw Rome!": [[0, 1, "PER"], [2, 3, "LOC"]],
        "not the tokens": [[0, 1, "PER"]],
        "Paris/London": [[0, 1, "LOC"]],
    }


def test_classes_and_tags_of_many_rows_are_those_of_the_rows(tmp_path: Path) -> None:
    rows = {"text": [f"text {n}" for n in range(5_000)],
            "labels": [[f"l{n % 7}", f"m{n % 11}"] for n in range(5_000)]}  # fmt: skip
    folder = write_run(tmp_path / "run", rows, parts=2)
    drawn = draw(folder, task="classes", chosen=RowFilter(), count=300)
    for item in drawn.items:
        assert item.made == [f"l{item.row % 7}", f"m{item.row % 11}"]


@pytest.mark.parametrize(
    ("task", "values", "expected"),
    [
        ("class", ["a", "b", "a"], "a"), ("class", ["a", "b"], None), ("grade", [2, 5], 3.5),
        ("classes", [["a"], ["a", "b"]], ["a"]), ("classes", [["a"], ["b"]], None),
        ("classes", [[], [], ["b"]], []), ("spans", [[[0, 1, "x"]], [[0, 2, "x"]]], None),
        ("spans", [[[0, 1, "x"]], [[0, 1, "x"], [1, 2, "y"]]], [[0, 1, "x"]]),
    ],
)  # fmt: skip
def test_what_people_say_together(task: str, values: list[Any], expected: Any) -> None:
    assert verdict(task, values) == expected


def result(task: str, items: list[SampleItem], answers: list[Annotation], **more: Any) -> Any:
    from tilth.view.annotations import Sample

    return sample_result(Sample(1, "s", about(task, **more), len(items), {}, 0), items, answers)


def test_accuracy_by_label_and_of_the_whole() -> None:
    items = [item(row, "ab"[row % 2]) for row in range(8)]
    # All rows of a are right, one of four of b.
    answers = [said(row, value="a" if row % 2 == 0 or row > 2 else "b") for row in range(8)]
    found = result("class", items, answers)
    assert [(one.label, one.rows, one.right) for one in found.labels] == [("a", 4, 4), ("b", 4, 1)]
    assert found.whole[0] == 5 / 8
    assert found.confusion == {"a": {"a": 4, "b": 0}, "b": {"a": 3, "b": 1}}
    assert found.more > 500
    weighted = result("class", items, answers, shares={"a": 900, "b": 100})
    assert weighted.whole[0] == pytest.approx(0.925)
    lowest = result("class", items, answers, draw="lowest confidence")
    assert (lowest.whole, lowest.labels) == (None, found.labels)  # of no others


def test_rows_without_a_label_are_neither_right_nor_wrong() -> None:
    items = [item(row, "a" if row % 2 else None) for row in range(8)]
    answers = [said(row, value="a" if row != 1 else "b") for row in range(8)]
    for shares in ({}, {"a": 9, NO_LABEL: 1}):
        found = result("class", items, answers, shares=shares)
        assert found.whole[0] == pytest.approx(0.75)
        assert [(one.label, one.rows) for one in found.labels] == [("a", 4)]
        assert found.confusion[NO_LABEL] == {"a": 4, "b": 0}
    found = result("class", [item(row, None) for row in range(3)], [said(row) for row in range(3)])
    assert (found.judged, found.labels, found.whole) == (3, [], None)
    same = result("same meaning", [item(0, None)], [said(0, value="yes")])
    assert same.whole[0] == 1.0


def test_rows_that_are_missing_follow_from_the_weighted_interval() -> None:
    items = [item(row, "ab"[row % 2]) for row in range(2_000)]
    answers = [said(row, value="ab"[row % 3 == 0]) for row in range(2_000)]
    found = result("class", items, answers, shares={"a": 50_000, "b": 10})
    assert found.whole[2] - found.whole[1] < 0.06
    assert found.more == 0
    few = result("class", items[:100], answers[:100], shares={"a": 50_000, "b": 10})
    assert few.more > result("class", items[:100], answers[:100]).more


def test_disputes_skips_and_agreement() -> None:
    items = [item(row) for row in range(4)]
    answers = [said(0), said(0, "Bob"), said(1), said(1, "Bob", "b"), said(2, value=None),
               said(3, value="b"), said(3, "Bob", "b")]  # fmt: skip
    found = result("class", items, answers)
    assert found.disputed == [1]
    assert (found.judged, found.shared) == (2, 3)
    assert found.kappa[("Ann", "Bob")][0] == 3
    assert found.kappa[("Ann", "Bob")][1] == pytest.approx(0.4)
    assert [(one.name, one.answers, one.skipped) for one in found.people] == [
        ("Ann", 4, 1), ("Bob", 3, 0)]  # fmt: skip


def test_grades_and_spans() -> None:
    items = [item(row, label) for row, label in enumerate(["0", "0.5", "1"])]
    found = result("grade", items, [said(row, value=grade) for row, grade in enumerate([0, 2, 5])])
    assert found.rank_correlation == pytest.approx(1.0)
    assert found.grades["1"] == (1, 5.0, 0.0)
    spans = [item(made=[[0, 1, "a"], [1, 2, "b"]])]
    found = result("spans", spans, [said(0, value=[[0, 1, "a"]])])
    assert found.spans == (1, 2, 1)
    assert found.whole[0] == pytest.approx(2 / 3)
    # Of many rows without a span the few with some decide.
    rare = [*spans, item(made=[[0, 1, "a"]]), *[item(made=[]) for _ in range(998)]]
    answers = [said(row, value=[[0, 1, "a"]] if row == 0 else []) for row in range(1_000)]
    found = result("spans", rare, answers)
    assert found.spans == (1, 3, 1)
    assert found.whole[0] == pytest.approx(0.5)
    assert found.whole[2] - found.whole[1] > 0.5
    none = result("spans", [item(made=[])], [said(0, value=[])])
    assert none.whole is None


def test_annotations_of_a_place_that_cannot_be_written_are_read(
    notes: Annotations, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = notes.add("s", about(), [item()])
    notes.answer(number, said(0))
    real = sqlite3.connect
    opened: list[str] = []

    def watched(place: str, *args: Any, **more: Any) -> sqlite3.Connection:
        opened.append(place)
        return real(place, *args, **more)

    monkeypatch.setattr(sqlite3, "connect", watched)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != notes.folder)
    assert [one.value for one in notes.answers(number)] == ["a"]
    assert opened[0].endswith("annotations.sqlite?immutable=1")


def test_old_samples_stay_readable(notes: Annotations) -> None:
    """What the file holds is JSON of these names: a later version reads it."""
    number = notes.add("s", about(), [item()])
    with sqlite3.connect(notes.file) as db:
        content = json.loads(db.execute("SELECT content FROM item").fetchone()[0])
    assert set(content) == {"row", "key", "first", "text", "label", "reason", "made"}
    assert notes.item(number, 0) == item()
    with pytest.raises(InputError, match="no row 7"):
        notes.item(number, 7)


def test_a_mean_grade_between_two_counts_as_the_higher() -> None:
    items = [item(row, "1") for row in range(2)]
    grades = ((0, 1), (0, 2), (1, 2), (1, 3))
    answers = [
        said(row, person=name, value=float(value))
        for name, (row, value) in zip(("Ann", "Bo", "Ann", "Bo"), grades, strict=True)
    ]
    assert result("grade", items, answers).confusion == {"1": {"2": 1, "3": 1}}
