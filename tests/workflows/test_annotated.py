"""Curating with annotations: people's labels count, rejected rows are dropped with a reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, Features, Value

from tilth.data import load_folder
from tilth.data.settings import CurateOptions
from tilth.data.writer import DatasetWriter
from tilth.errors import InputError
from tilth.view.annotations import Annotation, Annotations, SampleAbout, SampleItem
from tilth.view.exchange import FORMATS, records_of
from tilth.view.rows import row_key
from tilth.workflows.annotated import Judged, apply_annotations, read_judged
from tilth.workflows.curate import curate_folder

PLAIN = CurateOptions(smoothing=0.0, sampled_pairs=0, validation_share=0.0)


def rows(count: int = 8) -> list[dict[str, Any]]:
    return [
        {"text_a": f"in {n}", "text_b": f"out {n}", "label": float(n % 2)} for n in range(count)
    ]


def annotated(folder: Path, task: str, values: dict[int, Any], flagged: int | None = None) -> Any:
    """Keep answers on some of `rows` as the page does; labels are those of the parts."""
    notes = Annotations(folder)
    items = [
        SampleItem(row=n, key=row_key(row["text_a"], row["text_b"], f"{row['label']:g}"),
                   first=row["text_a"], text=row["text_b"], label=f"{row['label']:g}")
        for n, row in enumerate(rows())
    ]  # fmt: skip
    about = SampleAbout(task=task, labels=["0", "1"], draw="random", seed=0, overlap=0.0, run="r")
    number = notes.add("s", about, items)
    for place, value in values.items():
        notes.answer(number, Annotation(place, "Ann", value, "", place == flagged, 0.0, None))
    return notes, number, items


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    with DatasetWriter(folder) as writer:
        writer.write(Dataset.from_list(rows()).data.table)
    return folder


def test_labels_are_corrected_and_flagged_rows_dropped(source: Path, tmp_path: Path) -> None:
    annotated(tmp_path / "notes", "class", {0: "1", 1: "1", 2: "0", 3: "1"}, flagged=2)
    out, counts = curate_folder(
        str(source), tmp_path / "out", PLAIN, annotations=tmp_path / "notes"
    )
    assert (counts["annotated"], counts["corrected"], counts["flagged"]) == (4, 1, 1)
    labels = {row["text_a"]: row["label"] for row in load_folder(out).to_list()}
    assert labels["in 0"] == 1.0
    assert "in 2" not in labels
    dropped = load_folder(out, config="dropped").to_list()
    assert [(row["text_a"], row["drop_reason"]) for row in dropped] == [("in 2", "flagged")]
    card = (out / "README.md").read_text()
    assert "4 rows were checked by people, who corrected the label of 1" in card
    assert "| flagged | 1 |" in card


def test_pairs_that_are_not_equivalent_are_dropped(source: Path, tmp_path: Path) -> None:
    annotated(tmp_path / "notes", "same meaning", {0: "no", 1: "yes"})
    out, counts = curate_folder(
        str(source), tmp_path / "out", PLAIN, annotations=tmp_path / "notes"
    )
    assert counts["not-equivalent"] == 1
    assert len(load_folder(out)) == 7


def test_grades_become_labels_of_the_sets_range(source: Path, tmp_path: Path) -> None:
    annotated(tmp_path / "notes", "grade", {0: 4, 1: 5})
    out, counts = curate_folder(
        str(source), tmp_path / "out", PLAIN, annotations=tmp_path / "notes"
    )
    labels = {row["text_a"]: row["label"] for row in load_folder(out).to_list()}
    assert (labels["in 0"], labels["in 1"]) == (0.8, 1.0)
    assert counts["corrected"] == 1


def test_a_grade_that_agrees_corrects_nothing() -> None:
    rows = Dataset.from_dict({"text_a": ["a", "b"], "text_b": ["c", "d"], "label": [0.6, 1.0]})
    key = row_key("a", "c", "0.6")
    found = apply_annotations(rows, {key: Judged("grade", 3, False, "0.6")})
    assert (found.counts["corrected"], found.dataset["label"][:]) == (0, [0.6, 1.0])
    written = Dataset.from_dict({"text_a": ["a"], "text_b": ["c"], "label": ["0.60"]})
    narrow = rows.cast_column("label", Value("float32"))
    for one in (written, narrow):
        found = apply_annotations(one, {key: Judged("grade", 3, False, "0.6")})
        assert (found.counts["annotated"], found.counts.get("corrected", 0)) == (1, 0)
        assert found.dataset["label"][0] == one["label"][0]


def test_a_reason_of_an_earlier_drop_is_replaced() -> None:
    rows = Dataset.from_dict({"text": ["Ada flew"], "label": [1], "drop_reason": [None]})
    key = row_key(None, "Ada flew", None)
    flagged = apply_annotations(rows, {key: Judged("class", None, True, None)})
    assert flagged.rejected.column_names.count("drop_reason") == 1


def test_labels_of_a_named_column_are_corrected(tmp_path: Path) -> None:
    file = tmp_path / "set.csv"
    file.write_text("sentence1,sentence2,score,label\nx,y, pos,?\nz,w,neg,?\nq,r,neg,?\n")
    judged = {
        row_key("x", "y", None): Judged("class", "pos", False),
        row_key("z", "w", None): Judged("class", "pos", False),
        row_key("q", "r", None): Judged("class", None, True),
    }
    records = [
        {"key": key, "text": "", "task": "class", "annotations": [
            {"person": "p", "value": one.value, "flagged": one.flagged}]}
        for key, one in judged.items()
    ]  # fmt: skip
    notes = tmp_path / "notes.jsonl"
    notes.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    columns = ("sentence1", "sentence2"), "score"
    out, counts = curate_folder(
        str(file), tmp_path / "out", PLAIN, annotations=notes, columns=columns
    )
    assert (counts["annotated"], counts["corrected"], counts["flagged"]) == (3, 1, 1)
    assert load_folder(out)["label"][:] == ["pos", "pos"]
    (dropped,) = load_folder(out, config="dropped").to_list()
    assert (dropped["text_a"], dropped["label"], dropped["drop_reason"]) == ("q", "neg", "flagged")


@pytest.mark.parametrize("form", FORMATS)
def test_exported_files_are_taken(source: Path, tmp_path: Path, form: str) -> None:
    notes, number, items = annotated(tmp_path / "notes", "class", {0: "1", 3: "0"})
    file = tmp_path / "annotations.json"
    file.write_text(records_of(notes.sample(number), items, notes.answers(number), form))
    assert read_judged(file) == {
        items[0].key: Judged("class", "1", False, items[0].label),
        items[3].key: Judged("class", "0", False, items[3].label),
    }  # fmt: skip
    out, counts = curate_folder(str(source), tmp_path / "out", PLAIN, annotations=file)
    assert counts["corrected"] == 2
    assert load_folder(out)["label"][:4] == [1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("value", [["pos", "neg"], {"a": 1}, [[1]]])
def test_answers_of_several_values_are_none_of_one_class(tmp_path: Path, value: object) -> None:
    record = {
        "text": "x", "task": "class",
        "annotations": [{"person": "p", "value": value}],
    }  # fmt: skip
    file = tmp_path / "notes.jsonl"
    file.write_text(json.dumps(record))
    with pytest.raises(InputError, match="are no answers to 'class'"):
        read_judged(file)


def test_classes_that_are_numbers_keep_their_names() -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    found = apply_annotations(
        Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features),
        {row_key(None, "x", "no"): Judged("class", "yes", False)},
    )
    assert found.dataset["label"][:] == [1, 1]


def test_grades_of_whole_and_written_labels_keep_their_value() -> None:
    judged = {
        row_key("in 0", "out 0", None): Judged("grade", 4, False),
        row_key("in 1", "out 1", None): Judged("grade", 5, False),
    }
    whole = [{**row, "label": int(row["label"])} for row in rows(3)]
    found = apply_annotations(Dataset.from_list(whole), judged).dataset
    assert found["label"][:] == [0.8, 1.0, 0.0]
    assert found.features["label"] == Value("float64")
    written = [{**row, "label": f"{row['label']:g}"} for row in rows(3)]
    assert apply_annotations(Dataset.from_list(written), judged).dataset["label"][:] == [
        "0.8", "1", "0",
    ]  # fmt: skip
    only = {row_key("in 1", "out 1", None): Judged("grade", 0, False)}
    found = apply_annotations(Dataset.from_list(whole), only).dataset
    assert (found["label"][:], found.features["label"]) == ([0, 0, 0], Value("int64"))


def test_labels_are_as_their_column_is() -> None:
    given = [{"text": "x", "label": True}, {"text": "y", "label": False}]
    found = apply_annotations(
        Dataset.from_list(given), {row_key(None, "x", None): Judged("class", "False", False)}
    )
    assert found.dataset["label"][:] == [False, False]
    given = [{"text": "x", "label": None}, {"text": "y", "label": 1}]
    found = apply_annotations(
        Dataset.from_list(given), {row_key(None, "x", None): Judged("class", "2", False)}
    )
    assert found.dataset["label"][:] == [2, 1]


@pytest.mark.parametrize(
    ("row", "task", "value", "said"),
    [
        ({"tokens": ["Ada"], "tags": ["O"]}, "spans", [[0, 1, "PER"]], "people gave spans"),
        ({"text": "Ada", "labels": ["a"]}, "classes", ["b"], "people gave classes"),
        ({"text": "Ada"}, "class", "b", "the set has no labels"),
    ],
)
def test_what_has_not_one_label_is_refused(
    row: dict[str, Any], task: str, value: object, said: str
) -> None:
    with pytest.raises(InputError, match=rf"{said}.*results in tilth view"):
        apply_annotations(
            Dataset.from_list([row]), {row_key(None, "Ada", None): Judged(task, value, False)}
        )


def test_what_cannot_be_applied_is_said(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        read_judged(tmp_path / "none")
    annotated(tmp_path / "empty", "class", {})
    with pytest.raises(InputError, match="holds no answer"):
        read_judged(tmp_path / "empty")
    annotated(tmp_path / "more" / "curated", "class", {0: "1"})
    with pytest.raises(InputError, match="holds no answer: those of its folder curated"):
        read_judged(tmp_path / "more")
    with pytest.raises(InputError, match="no annotated row is in the set"):
        apply_annotations(Dataset.from_list(rows()), {"other": Judged("class", "1", False)})
    annotated(tmp_path / "notes", "class", {0: "x"})
    with pytest.raises(InputError, match="the label 'x' that people gave is no number"):
        curate_folder(str(source), tmp_path / "out", PLAIN, annotations=tmp_path / "notes")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FORMATS)
def test_exported_files_say_which_task_people_answered(tmp_path: Path, form: str) -> None:
    for task, value, read in (
        ("class", "no", "no"), ("same meaning", "no", "no"), ("grade", 3, 3),
        ("classes", ["a"], ["a"]),
    ):  # fmt: skip
        notes, number, items = annotated(tmp_path / task, task, {0: value})
        file = tmp_path / "annotations.json"
        file.write_text(records_of(notes.sample(number), items, notes.answers(number), form))
        assert list(read_judged(file).values()) == [Judged(task, read, False, items[0].label)]


def test_a_row_of_two_samples_keeps_its_answer_and_its_flag(tmp_path: Path) -> None:
    notes, _, items = annotated(tmp_path, "class", {0: "1", 1: "1"}, flagged=0)
    about = SampleAbout(
        task="class", labels=["0", "1"], draw="random", seed=1, overlap=0.0, run="r"
    )
    second = notes.add("again", about, items)
    notes.answer(second, Annotation(0, "Ann", None, "", False, 0.0, None))  # skipped
    notes.answer(second, Annotation(1, "Ann", "0", "", False, 0.0, None))
    notes.answer(second, Annotation(2, "Ann", None, "", False, 0.0, None))
    assert read_judged(tmp_path) == {
        items[0].key: Judged("class", "1", True, items[0].label),
        items[1].key: Judged("class", "0", False, items[1].label),
        items[2].key: Judged("class", None, False, items[2].label),
    }  # fmt: skip


def test_labels_that_are_whole_numbers_are_corrected() -> None:
    given = Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]})
    judged = {row_key(None, "x", "0"): Judged("class", "1", False)}
    assert apply_annotations(given, judged).dataset["label"][:] == [1, 1]
    judged = {row_key(None, "x", "0"): Judged("class", "b", False)}
    with pytest.raises(InputError, match="the label 'b' that people gave is no number"):
        apply_annotations(given, judged)


def test_rejected_rows_keep_the_names_of_their_classes(tmp_path: Path) -> None:
    names = ClassLabel(names=["bad", "good"])
    features = Features({"text": Value("string"), "label": names})
    made = Dataset.from_dict(
        {"text": [f"text {n}" for n in range(6)], "label": [0, 1] * 3}, features=features
    )
    with DatasetWriter(tmp_path / "set", {"default": features}) as writer:
        writer.write(made.data.table)
    notes = Annotations(tmp_path / "notes")
    item = SampleItem(
        row=0, key=row_key(None, "text 1", "good"), first=None, text="text 1", label="good"
    )
    about = SampleAbout(
        task="class", labels=["bad", "good"], draw="random", seed=0, overlap=0.0, run="r"
    )
    number = notes.add("s", about, [item])
    notes.answer(number, Annotation(0, "Ann", None, "", True, 0.0, None))
    out, counts = curate_folder(
        str(tmp_path / "set"), tmp_path / "out", PLAIN, annotations=tmp_path / "notes"
    )
    assert [row["label"] for row in load_folder(out, config="dropped").to_list()] == ["good"]
    assert (counts["rows in"], counts["train"]) == (6, 5)
    assert "from 6 labelled rows" in (out / "README.md").read_text()
