from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

from tests.selftrain.labelled import classed, several, tagged
from tests.tiny import write_rows
from tilth.classifiers.load import TaskData, TaskSources, read_task, read_training_sets
from tilth.data.writer import DatasetWriter
from tilth.errors import InputError


def read(train: Any, test: Any = None, validation: Any = None, **columns: Any) -> TaskData:
    labels = columns.pop("labels", None)
    seed = columns.pop("seed", 0)
    return read_task(TaskSources(train, validation, test, **columns), labels=labels, seed=seed)


def test_the_sets_of_a_task() -> None:
    task = read(classed(60), classed(30, seed=9))
    assert task.validation is not None
    assert task.test is not None
    assert (len(task.train), len(task.validation), len(task.test)) == (54, 6, 30)
    assert [texts for texts in task.examples.texts if texts in task.validation.texts] == []
    assert len(task.examples) == 54  # queries are made of what is trained on
    assert task.excluded_texts == {
        "test set": [row["text"] for row in classed(30, seed=9)],
        "validation set": [text for (text,) in task.validation.texts],
    }
    own = read(classed(60), None, classed(12, seed=8))
    assert (len(own.train), own.test) == (60, None)
    assert list(own.excluded_texts) == ["validation set"]
    assert read(tagged(60), tagged(9, seed=4)).train.kind == "tags"
    assert read(several(60), several(9, seed=4)).train.kind == "multi"
    other = read(classed(60), seed=3).validation
    assert other is not None
    assert other.texts != task.validation.texts


def test_columns_and_labels_are_taken() -> None:
    rows = [{"said": row["text"], "is": row["label"], "text": "x"} for row in classed(60)]
    task = read(rows, [*rows[:3], {"said": "a dog", "is": "animal", "text": "x"}],
                text="said", label="is", labels=["water", "none", "animal", "other"])  # fmt: skip
    assert task.train.labels == ["water", "none", "animal", "other"]
    assert task.train.texts[0] != ("x",)


def test_labels_without_names_are_numbers() -> None:
    numbers = {"animal": 0, "none": 1, "water": 2}
    rows = [{"text": row["text"], "label": numbers[row["label"]]} for row in classed(60)]
    assert read(rows, labels=["LABEL_0", "LABEL_1", "LABEL_2"]).train.labels == ["0", "1", "2"]
    named = [{**row, "label": f"LABEL_{row['label']}"} for row in rows]
    labels = ["LABEL_2", "LABEL_1", "LABEL_0"]
    assert read(named, labels=labels).train.labels == labels


def test_pairs_are_refused(tmp_path: Path) -> None:
    pairs = [{"text_a": "a", "text_b": "b", "label": label} for label in "xy"]
    file = write_rows(tmp_path / "pairs.jsonl", pairs)
    with pytest.raises(InputError, match=r"pairs.jsonl: rows are pairs \(text_a and text_b\)"):
        read(file)


def test_one_class_is_refused() -> None:
    rows = [{"text": row["text"], "label": "same"} for row in classed(30)]
    with pytest.raises(InputError, match="every row has the label 'same'"):
        read(rows)


def test_the_training_set_is_no_test_set(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "train.jsonl", classed(30))
    with pytest.raises(InputError, match=r"train.jsonl: every text of the test set is in the tr"):
        read(file, str(tmp_path / "." / "train.jsonl"))
    copy = write_rows(tmp_path / "copy.jsonl", classed(30)[:5])
    with pytest.raises(InputError, match=r"copy.jsonl: every text of the test set is in the tr"):
        read(file, copy)
    other = write_rows(tmp_path / "other.jsonl", classed(12, seed=5))
    with pytest.raises(InputError, match="in the validation set"):
        read(file, other, other)


def test_the_training_set_is_no_validation_set(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "train.jsonl", classed(30))
    with pytest.raises(InputError, match=r"every text of the validation set is in the training"):
        read(file, None, file)


def test_shared_texts_are_said(caplog: pytest.LogCaptureFixture) -> None:
    same, other = classed(30)[:2]
    with caplog.at_level(logging.WARNING):
        read(
            classed(30),
            [same, other | {"text": f" {other['text'].upper()}!"}, *classed(12, seed=5)],
        )
    assert "2 of 14 texts of the test set are in the training set too" in caplog.text


def test_texts_that_differ_in_punctuation_alone_may_be_a_test_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = classed(30)
    read(rows, [{**row, "text": f"{row['text']}?"} for row in rows[:9]])
    assert "9 of 9 texts of the test set are in the training set too" in caplog.text


def test_a_test_set_of_another_task_is_refused(tmp_path: Path) -> None:
    strange = write_rows(tmp_path / "test.jsonl", [{"text": "a dog", "label": "planet"}])
    with pytest.raises(InputError, match=r"test.jsonl:1: label 'planet' is none"):
        read(classed(30), strange)
    with pytest.raises(InputError, match="list of labels a row, not one label a row as the rows"):
        read(classed(30), several(6))


@pytest.mark.parametrize("name", ["labelled", "validation", "test"])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        (several(12), "has a list of labels a row, not one label a row"),
        (
            [{"text_a": row["text"], "text_b": "a", "label": row["label"]} for row in classed(12)],
            r"has pairs \(text_a and text_b\), not single texts as the rows given: name columns",
        ),
    ],
)
def test_a_set_of_another_form_is_refused(name: str, other: Any, said: str) -> None:
    given: dict[str, Any] = {"train": classed(30), name: other}
    reads = read_task if name == "test" else partial(read_training_sets, tags=False)
    with pytest.raises(InputError, match=f"the {name} set {said}"):
        reads(TaskSources(**given))


def test_validation_rows_of_the_labelled_set_are_not_among_the_others() -> None:
    labelled = classed(60)
    pseudo = [*({**row, "label": "none"} for row in labelled), *classed(30, seed=7)]
    rows, held = read_training_sets(TaskSources(pseudo, labelled=labelled), tags=False)
    assert held is not None
    assert len(held) == 6
    assert not set(rows.texts) & set(held.texts)
    loud = [{**row, "text": f"{row['text'].upper()}!"} for row in labelled]
    rows, held = read_training_sets(TaskSources(loud, labelled=labelled), tags=False)
    assert held is not None
    assert not {text.upper() + "!" for (text,) in held.texts} & {text for (text,) in rows.texts}
    pairs = [{"text_a": row["text"], "text_b": f"{n}", "label": row["label"]}
             for n, row in enumerate(labelled)]  # fmt: skip
    rewrites = [{**row, "text_b": f"again {row['text_b']}"} for row in pairs]
    rows, held = read_training_sets(TaskSources(rewrites, labelled=pairs), tags=False)
    assert held is not None
    assert not {first for first, _ in rows.texts} & {first for first, _ in held.texts}


def test_so_many_labels_of_one_row_are_no_misspellings(caplog: pytest.LogCaptureFixture) -> None:
    often = [f"label {chr(97 + n % 26) * (n // 26 + 2)}" for n in range(400) for _ in range(5)]
    rows = [{"text": f"{n}", "label": label} for n, label in enumerate(often)]
    rows += [{"text": f"t{n}", "label": f"lable {n}"} for n in range(300)]
    read_training_sets(TaskSources(rows), tags=False)
    assert "misspelt" not in caplog.text


def test_a_split_of_a_data_set_in_memory_has_any_usual_name() -> None:
    given = DatasetDict(
        train=Dataset.from_list(classed(60)), dev=Dataset.from_list(classed(12, seed=1))
    )
    rows, held = read_training_sets(TaskSources(given), tags=False)
    assert (len(rows), held and len(held)) == (60, 12)


def test_labels_that_are_named_twice_are_refused() -> None:
    with pytest.raises(InputError, match="labels name 'a' 2 times"):
        read_training_sets(TaskSources(classed(20)), tags=False, labels=["a", "b", "a"])


@pytest.mark.parametrize("kind", ["class", "tags"])
def test_probabilities_of_several_sets_are_read_by_label(kind: str) -> None:
    rows = classed(60) if kind == "class" else tagged(60)
    names = (
        ["water", "none", "animal"] if kind == "class" else ["O", "B-ANIMAL", "I-ANIMAL", "B-WATER"]
    )

    def soft(labels: list[str], some: list[dict[str, Any]]) -> Dataset:
        def probabilities(own: str) -> dict[str, float]:
            return {one: 0.7 if one == own else 0.3 / (len(labels) - 1) for one in labels}

        given = []
        for row in some:
            own = row["label"] if kind == "class" else row["tags"]
            own = probabilities(own) if kind == "class" else [probabilities(one) for one in own]
            given.append({**row, "probabilities": own})
        return Dataset.from_list(given)

    found = {}
    for order in (names, names[::-1]):
        sources = TaskSources(soft(names, rows[:40]), soft(order, rows[40:]))
        found[tuple(order)] = read_training_sets(sources, tags=kind == "tags")[1]
    one, two = found.values()
    assert one is not None
    assert two is not None
    assert one.labels == two.labels == names
    assert all((a == b).all() for a, b in zip(one.targets, two.targets, strict=True))
    with pytest.raises(InputError, match=r"are of the labels .*other.*, the model's are"):
        read_training_sets(
            TaskSources(soft(names, rows[:40]), soft([*names, "other"], rows[40:])),
            tags=kind == "tags",
        )


def test_probabilities_of_a_validation_set_have_names() -> None:
    names = Features(text=Value("string"), label=ClassLabel(names=["a", "b"]),
                     probabilities=List(Value("float32")))  # fmt: skip
    sure = [[0.9, 0.1], [0.1, 0.9]]
    rows = [{"text": f"t{n}", "label": n % 2, "probabilities": sure[n % 2]} for n in range(20)]
    train = Dataset.from_list(rows, names)
    held = [{"text": "new", "label": "a", "probabilities": [0.9, 0.1]}]
    with pytest.raises(InputError, match="the labels of the probabilities are not named"):
        read_training_sets(TaskSources(train, held), tags=False)
    found = read_training_sets(TaskSources(train, held), tags=False, labels=["a", "b"])[1]
    assert found is not None
    assert found.targets.tolist() == [pytest.approx([0.9, 0.1])]  # type: ignore[union-attr]


def test_the_validation_split_of_a_folder_is_taken(tmp_path: Path) -> None:
    splits = {"train": classed(60), "validation": classed(12, seed=8)}
    texts = [(row["text"],) for row in splits["validation"]]
    both = DatasetDict({name: Dataset.from_list(rows) for name, rows in splits.items()})
    both.save_to_disk(tmp_path / "saved")
    for name, rows in splits.items():
        write_rows(tmp_path / "carded" / f"{name}.jsonl", rows)
    head = "configs:\n- config_name: default\n  data_files:\n"
    head += "".join(f"  - split: {name}\n    path: {name}.jsonl\n" for name in splits)
    (tmp_path / "carded" / "README.md").write_text(f"---\n{head}---\n")
    run = tmp_path / "run"
    for folder, rows in ((run / "dataset", classed(90)), (run / "curated", None)):
        with DatasetWriter(folder) as writer:
            for name, own in splits.items() if rows is None else [("train", rows)]:
                writer.write(Dataset.from_list(own).data.table, split=name)
    (run / "run.json").write_text("{}")
    for source in ("saved", "carded", "run"):
        rows, held = read_training_sets(TaskSources(str(tmp_path / source)), tags=False)
        assert held is not None
        assert (len(rows), held.texts) == (60, texts), source
    for name, rows in (*splits.items(), ("test", classed(9, seed=9))):
        write_rows(tmp_path / "plain" / f"{name}.jsonl", rows)
    rows, held = read_training_sets(TaskSources(str(tmp_path / "plain")), tags=False)
    assert held is not None
    assert (len(rows), held.texts) == (60, texts)
    Dataset.from_list(splits["train"]).save_to_disk(tmp_path / "one")
    rows, held = read_training_sets(TaskSources(str(tmp_path / "one")), tags=False)
    assert held is not None
    assert (len(rows), len(held)) == (54, 6)


@pytest.mark.parametrize("name", ["all.csv", "all.jsonl", ""])
def test_a_column_of_splits_gives_the_validation_rows(name: str, tmp_path: Path) -> None:
    rows = [{**row, "split": ("train", "train", "dev", "test")[n % 4]}
            for n, row in enumerate(classed(80))]  # fmt: skip
    source: Any = rows
    if name:
        source = str(tmp_path / name)
        frame = pd.DataFrame(rows)
        if name == "all.csv":
            frame.to_csv(source, index=False)
        else:
            write_rows(Path(source), rows)
    learnt, held = read_training_sets(TaskSources(source, text="text"), tags=False)
    assert held is not None
    for found, split in ((learnt, "train"), (held, "dev")):
        assert found.texts == [(row["text"],) for row in rows if row["split"] == split]
    tests = TaskSources(source, text="text").read(source, "test")
    assert tests.texts == [(row["text"],) for row in rows if row["split"] == "test"]


def test_labels_that_differ_in_case_alone_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("Bird", "bird", "Sea  bird", "sea bird", "boat")
    rows = [{"text": f"{name} {n}", "label": name} for n in range(9) for name in names]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    read_training_sets(TaskSources(str(file)), tags=False)
    (said,) = [line for line in caplog.messages if "labels differ in" in line]
    assert said == (
        f"{file}: labels differ in case, spaces or the form of a number alone: 'Bird' and 'bird', "
        "'Sea  bird' and 'sea bird': give them one spelling if they are one"
    )


def test_labels_that_are_equal_numbers_or_several_in_one_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for names, said in (
        (("1", "1.0", "2"), "form of a number alone: '1' and '1.0': give"),
        (("Rain", "sun", "rain | Sun"), "label 'rain | Sun' is read as one, and its parts are"),
        (("Rain", "sun", "rain; snow"), ""),
        (("10115100", "10115101", "01", "1"), ""),
    ):
        rows = [{"text": f"{name} {n}", "label": name} for n in range(9) for name in names]
        caplog.clear()
        read_training_sets(TaskSources(str(write_rows(tmp_path / "r.jsonl", rows))), tags=False)
        assert said in caplog.text if said else not caplog.records


def test_a_label_that_may_be_misspelt_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = (
        ["positive"] * 6 + ["negative"] * 6 + ["postive", "rare", "intent 1"] + ["intent 2"] * 5
    )
    rows = [{"text": f"text {place}", "label": label} for place, label in enumerate(labels)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    read_training_sets(TaskSources(str(file)), tags=False)
    said = [line for line in caplog.messages if "misspelt" in line]
    assert said == [f"{file}: label 'postive' has 1 row: is it 'positive' misspelt?"]
    said = [line for line in caplog.messages if "one training row" in line]
    assert said == [
        f"{file}: one training row of 'intent 1', 'postive', 'rare': the model will hardly answer "
        "such labels; give more"
    ]
