"""Files of annotations: what is written is read again; data sets say how they were checked."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from tests.report.page import EVIL
from tests.view.pages import BASE, Visitor, pairs, write_run
from tests.view.test_annotate import SAMPLE, judge, notes
from tests.view.test_annotations import about, item
from tilth.errors import InputError
from tilth.view.annotations import Annotation, Sample, SampleItem
from tilth.view.exchange import (
    ARGILLA,
    FORMATS,
    JSONL,
    LABEL_STUDIO,
    matched,
    read_records,
    records_of,
    studio_config,
)
from tilth.view.take import ACCEPTED, CORRECTED, _slug, write_set

VALUES: dict[str, list[Any]] = {
    "class": ["a", "b"], "classes": [["a", "b"], []], "grade": [0, 5],
    "same meaning": ["yes", "no"], "spans": [[[0, 1, "a"], [1, 3, "b"]], []],
}  # fmt: skip


def sample_of(task: str) -> Sample:
    return Sample(1, "s", about(task), 3, {}, 0)


def items_of(task: str) -> list[SampleItem]:
    texts = ["one  two\nthree", f"{EVIL} two three", "never judged at all"]
    first = None if task == "spans" else "before"
    return [SampleItem(row=n, key=f"k{n}", first=first, text=text, label="a")
            for n, text in enumerate(texts)]  # fmt: skip


def answers_of(task: str) -> list[Annotation]:
    one, two = VALUES[task]
    return [Annotation(0, "Ann, B.", one, "a note", True, 0.0, None),
            Annotation(0, "Bob", two, "", False, 0.0, None),
            Annotation(1, "Bob", None, "", False, 0.0, None)]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("task", VALUES)
def test_what_is_written_is_read_again(task: str, form: str) -> None:
    items, answers = items_of(task), answers_of(task)
    text = records_of(sample_of(task), items, answers, form)
    records = read_records(text.encode(), about(task))
    assert [place for place, _ in matched(records, items)] == [0, 1, 2]
    found = [(place, value) for place, record in matched(records, items)
             for _, value, _, _ in record.answers if value is not None]  # fmt: skip
    assert found == [(one.place, one.value) for one in answers if one.value is not None]
    people = [person for person, *_ in records[0].answers]
    assert "Bob" in people
    assert "Ann, B." in people
    assert [(p, f) for p, _, _, f in records[0].answers] == [("Ann, B.", True), ("Bob", False)]
    if form == JSONL:
        assert [note for _, _, note, _ in records[0].answers] == ["a note", ""]


@pytest.mark.parametrize("form", FORMATS)
def test_words_are_counted_between_ascii_spaces_alone(form: str) -> None:
    text = "New\u00a0York is\u2003big"
    items = [SampleItem(row=0, key="k0", first=None, text=text, label="a")]
    value = [[0, 1, "a"], [1, 2, "b"]]
    answers = [Annotation(0, "Bob", value, "", False, 0.0, None)]
    written = records_of(sample_of("spans"), items, answers, form)
    assert form == JSONL or f'"end": {len("New York")}' in written
    (record,) = read_records(written.encode(), about("spans"))
    assert [found for _, found, _, _ in record.answers] == [value]


@pytest.mark.parametrize("form", FORMATS)
def test_rows_without_a_key_are_found_by_their_texts(form: str) -> None:
    items = items_of("class")
    text = records_of(sample_of("class"), items, answers_of("class"), form)
    for n in range(3):
        text = text.replace(f'"k{n}"', '"other"')
    assert [place for place, _ in matched(read_records(text.encode()), items)] == [0, 1, 2]


def test_texts_with_other_ends_of_lines_are_read_again() -> None:
    items = [replace(items_of("class")[0], text="one\u2028two\x85three")]
    text = records_of(sample_of("class"), items, answers_of("class")[:1], JSONL)
    (record,) = read_records(text.encode(), about("class"))
    assert record.texts[1] == items[0].text


def test_rows_of_the_same_content_keep_their_own_answers() -> None:
    items = [replace(one, key="k", text="the same") for one in items_of("class")]
    answers = [Annotation(place, "Ann", "ab"[place % 2], "", False, 0.0, None)
               for place in range(3)]  # fmt: skip
    records = read_records(records_of(sample_of("class"), items, answers, JSONL).encode())
    found = [(place, one.answers[0][1]) for place, one in matched(records, items)]
    assert found == [(0, "a"), (1, "b"), (2, "a")]


def test_argillas_records_have_the_form_of_its_client() -> None:
    records = json.loads(records_of(sample_of("spans"), items_of("spans"), answers_of("spans"),
                                    ARGILLA))  # fmt: skip
    first = records[0]
    assert set(first) == {"id", "fields", "metadata", "suggestions", "responses", "vectors"}
    assert first["responses"]["label"][0]["value"] == [
        {"start": 0, "end": 3, "label": "a"}, {"start": 5, "end": 14, "label": "b"}]  # fmt: skip
    assert len(first["responses"]["label"][0]["user_id"]) == 36
    assert first["responses"]["label"][0]["status"] == "submitted"  # else, they are drafts there
    assert records[2]["responses"] == {}


def test_drafts_and_discarded_answers_of_argilla_are_none() -> None:
    responses = [
        {"value": value, "user_id": value, "status": status}
        for value, status in (("a", "submitted"), ("b", "discarded"), ("c", "draft"))
    ]
    del responses[1]["value"]
    record = {
        "id": "k",
        "fields": {"text": "one"},
        "metadata": {},
        "responses": {"label": responses},
    }
    (found,) = read_records(json.dumps(record).encode())
    assert [value for _, value, _, _ in found.answers] == ["a"]


def test_people_who_came_from_argilla_keep_their_ids() -> None:
    known = "3f0cba2c-3d8a-4c4e-9f5e-0a0b6f3f9a11"
    given = [Annotation(0, known, "a", "", False, 0.0, None)]
    records = json.loads(records_of(sample_of("class"), items_of("class"), given, ARGILLA))
    assert [one["user_id"] for one in records[0]["responses"]["label"]] == [known]


def test_label_studio_takes_answers_of_people_who_are_none_of_its_users() -> None:
    """It refuses a whole file with `completed_by` of an unknown user."""
    tasks = json.loads(records_of(sample_of("class"), items_of("class"), answers_of("class"),
                                  LABEL_STUDIO))  # fmt: skip
    annotations = [one for task in tasks for one in task["annotations"]]
    assert {one["person"] for one in annotations} == {"Ann, B.", "Bob"}
    assert not any("completed_by" in one for one in annotations)


def test_label_studio_exports_of_others_are_read() -> None:
    """As Label Studio's JSON export writes them, with ids of users and ratings."""
    task = {
        "id": 7, "data": {"text": "one two three"}, "annotations": [
            {"id": 1, "completed_by": 3, "was_cancelled": False, "result": [
                {"id": "x", "from_name": "grade", "to_name": "text", "type": "rating",
                 "value": {"rating": 4}}]}],
    }  # fmt: skip
    (record,) = read_records(json.dumps([task]).encode(), about("grade"))
    assert record.answers == [("3", 4, "", False)]
    assert record.texts == (None, "one two three")


@pytest.mark.parametrize("task", VALUES)
def test_the_labelling_interface_is_xml(task: str) -> None:
    config = studio_config(about(task, labels=[EVIL, "b"]), is_pair=True)
    root = ET.fromstring(config)
    values = [one.get("value") for one in root.iter() if one.tag in ("Choice", "Label")]
    assert len(values) == {"grade": 6}.get(task, 2)
    if task in ("class", "classes", "spans"):
        assert values == [EVIL, "b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "no JSON"), (b"\xff\xfe", "no JSON"), (b"[1]", "record 1: is no record"),
     (b'{"a": 1}', "line 1: is no record"), (b'[{"data": {}}]', "record 1: is no record"),
     (b'{"text": "x", "annotations": [{"person": "a", "value": "none"}]}', "line 1: 'none' is no"),
     (b'{"text": ["x"], "annotations": []}', "line 1: is no record"),
     (b'{"text": "x", "key": {}, "annotations": []}', "line 1: is no record"),
     (b"[" * 100_000, "no JSON")],
)  # fmt: skip
def test_damaged_files_are_named(content: bytes, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_records(content, about("class"))


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    write_run(tmp_path / "pairs", pairs(60))
    visitor = Visitor(tmp_path)
    visitor.post("/sample", **SAMPLE)
    yield visitor
    visitor.close()


def test_data_sets_of_the_page(visitor: Visitor, tmp_path: Path) -> None:
    labels = [item.label for item in notes(tmp_path).items(1)]
    for label in (*labels[:2], "0" if labels[2] != "0" else "1"):
        judge(visitor, str(label))
    judge(visitor, str(labels[3]), flag="1")
    visitor.post("/set", run="pairs", sample="1", kind="accepted")
    done = visitor.post("/set", run="pairs", sample="1", kind="corrected")
    assert visitor.page(done.headers["location"]).shows("first-corrected")
    folder = tmp_path / "pairs.annotations"
    accepted = load_dataset(str(folder / "first-accepted"), split="train")
    assert accepted["label"][:] == labels[:2]
    corrected = load_dataset(str(folder / "first-corrected"), split="train")
    assert len(corrected) == 3  # not the flagged one
    assert corrected[2]["label"] != corrected[2]["generated_label"] == labels[2]
    assert set(corrected.column_names) >= {"text_a", "text_b", "people"}
    card = (folder / "first-corrected" / "README.md").read_text()
    assert "4 rows were checked by 1 person (task: class; drawn random, seed 0)" in card
    assert "75.0% have the right label" in card
    assert "| flagged | 1 |" in card
    accepted_card = (folder / "first-accepted" / "README.md").read_text()
    assert "| judged, not accepted | 1 |" in accepted_card
    answer = visitor.post("/set", 400, run="pairs", sample="1", kind="odd")
    assert "kind is" in answer.text
    assert not (tmp_path / "pairs" / "first-accepted").exists()


def test_samples_of_like_names_have_sets_of_their_own() -> None:
    names = ("a b", "a-b-1", "a-b", "first")
    samples = [replace(sample_of("class"), id=n, name=name) for n, name in enumerate(names, 1)]
    assert [_slug(sample) for sample in samples] == ["a-b-1", "a-b-1-2", "a-b", "first"]


def test_data_sets_of_each_task(tmp_path: Path) -> None:
    for task, (value, _) in VALUES.items():
        rows = [item(0, "a", made=value)]
        answers = [Annotation(0, "Ann", value, "", False, 0.0, None)]
        folder = tmp_path / task.replace(" ", "-")
        write_set(folder, sample_of(task), rows, answers, CORRECTED, "run")
        (row,) = load_dataset(str(folder), split="train").to_list()
        expected = {"class": {"label": "a"}, "classes": {"labels": ["a", "b"]},
                    "grade": {"label": 0.0}, "same meaning": {"label": "yes"},
                    "spans": {"tags": ["B-a", "B-b", "I-b"]}}[task]  # fmt: skip
        assert expected.items() <= row.items()
    with pytest.raises(InputError, match="no row is accepted yet"):
        write_set(tmp_path / "x", sample_of("class"), [item()], [], ACCEPTED, "run")


@pytest.mark.parametrize("form", FORMATS)
def test_files_go_out_and_come_back(visitor: Visitor, tmp_path: Path, form: str) -> None:
    for value in ("1", "0", "0.5"):
        judge(visitor, value)
    before = [(one.place, one.value) for one in notes(tmp_path).answers(1)]
    seconds = [one.seconds for one in notes(tmp_path).answers(1)]
    answer = visitor.client.get(f"/file?run=pairs&sample=1&format={form}")
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''first.")
    headers = {"Origin": BASE, "X-CSRF": visitor.keys.csrf}
    address = "/import?run=pairs&sample=1"
    visitor.client.post(address, content=answer.content, headers=headers)
    assert [one.seconds for one in notes(tmp_path).answers(1)] == seconds
    for _ in range(3):
        visitor.post("/undo", run="pairs", sample="1", person="Ann")
    done = visitor.client.post(address, content=answer.content, headers=headers)
    assert done.text == "taken in: 3 answers.\n"
    assert [(one.place, one.value) for one in notes(tmp_path).answers(1)] == before
    refused = visitor.client.post(address, content=answer.content, headers={"Origin": BASE})
    assert refused.status_code == 403
    other = b'{"text": "another text", "annotations": []}'
    refused = visitor.client.post(address, content=other, headers=headers)
    assert refused.status_code == 400
    assert "no record of the file is a row of this sample" in refused.text


def test_a_flag_from_argilla_takes_no_answer_away(visitor: Visitor, tmp_path: Path) -> None:
    judge(visitor, "1", flag="1")
    records = json.loads(visitor.client.get("/file?run=pairs&sample=1&format=argilla").text)
    for record in records:
        record["responses"] = {}  # drafts are left out
    headers = {"Origin": BASE, "X-CSRF": visitor.keys.csrf}
    address = "/import?run=pairs&sample=1"
    done = visitor.client.post(address, content=json.dumps(records), headers=headers)
    assert done.text == "taken in: 1 answer.\n"
    (answer,) = notes(tmp_path).answers(1)
    assert (answer.value, answer.flagged) == ("1", True)


def test_names_of_people_in_files_are_tidied(visitor: Visitor, tmp_path: Path) -> None:
    judge(visitor, "1")
    record = json.loads(
        visitor.client.get("/file?run=pairs&sample=1&format=jsonl").text.split("\n")[0]
    )
    (own,) = record["annotations"]
    record["annotations"] = [{**own, "person": name} for name in ("", " Bo \n Ek ", "Bo Ek")]
    headers = {"Origin": BASE, "X-CSRF": visitor.keys.csrf}
    done = visitor.client.post("/import?run=pairs&sample=1", content=json.dumps(record),
                               headers=headers)  # fmt: skip
    assert done.text == "taken in: 2 answers.\n"
    assert {one.person for one in notes(tmp_path).answers(1)} == {"Ann", "Bo Ek", "someone"}


def test_other_formats_are_refused(visitor: Visitor) -> None:
    visitor.page("/file?run=pairs&sample=1&format=odd", 400)
    answer = visitor.client.get("/file?run=pairs&sample=1&format=label-studio-config")
    assert answer.text.startswith("<View>")
    assert LABEL_STUDIO in FORMATS
