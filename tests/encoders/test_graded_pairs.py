from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from tests.tiny import graded_pairs, write_rows
from tilth.encoders.graded_pairs import ANY, read_dev_pairs, read_pairs
from tilth.errors import InputError
from tilth.evaluate.sts_sets import StsSet
from tilth.workflows.train_encoder import drop_shared


def rows(**columns: list[Any]) -> Dataset:
    return Dataset.from_dict(columns)


def test_a_set_without_validation_part_is_split_by_label_and_content() -> None:
    given = rows(**graded_pairs(300))
    pairs = read_pairs(given)
    assert (len(pairs.train), len(pairs.validation)) == (270, 30)
    assert sorted(set(pairs.validation["label"])) == [0.1, 0.5, 0.9]
    reordered = read_pairs(given.select(range(299, -1, -1)))
    assert set(pairs.validation["text_a"]) == set(reordered.validation["text_a"])
    assert set(pairs.validation["text_a"]) != set(read_pairs(given, seed=1).validation["text_a"])


def test_no_group_straddles_the_split_and_generated_rows_are_counted() -> None:
    given = graded_pairs(300)
    given["text_a"] = [f"first text {place // 5}" for place in range(300)]
    origin = {"source_id": [f"source {place // 10}" for place in range(300)]}
    pairs = read_pairs(rows(**given, **origin, model=["lm"] * 300))
    assert 20 <= len(pairs.validation) <= 40
    assert not set(pairs.train["text_a"]) & set(pairs.validation["text_a"])
    sources = [{int(name.split()[-1]) // 2 for name in part["text_a"]}
               for part in (pairs.train, pairs.validation)]  # fmt: skip
    assert not sources[0] & sources[1]
    assert pairs.written is not None
    assert pairs.written.sum() == len(pairs.validation)
    people = read_pairs(rows(**given)).written
    assert people is not None
    assert not people.any()


def test_of_few_pairs_more_are_held_out(caplog: pytest.LogCaptureFixture) -> None:
    pairs = read_pairs(rows(**graded_pairs(9)))
    assert (len(pairs.train), len(pairs.validation)) == (6, 3)
    assert "3 of 9 choose the checkpoint" in caplog.text


@pytest.mark.parametrize(("count", "grades"), [(50, 50), (200, 50), (600, 61)])
def test_pairs_of_many_grades_are_split_by_content(count: int, grades: int) -> None:
    given = graded_pairs(count)
    given["label"] = [place % grades / grades for place in range(count)]
    pairs = read_pairs(rows(**given))
    assert 0.08 * count <= len(pairs.validation) <= 0.12 * count
    assert np.ptp(pairs.validation["label"][:]) > 0.6  # low and high grades
    reordered = read_pairs(rows(**given).select(np.random.default_rng(0).permutation(count)))
    assert set(pairs.validation["text_a"]) == set(reordered.validation["text_a"])


def test_given_splits_are_kept() -> None:
    splits = DatasetDict(train=rows(**graded_pairs(30)), validation=rows(**graded_pairs(6, seed=1)))
    pairs = read_pairs(splits)
    assert (len(pairs.train), len(pairs.validation)) == (30, 6)
    with pytest.raises(InputError, match="no split 'train' among test"):
        read_pairs(DatasetDict(test=splits["train"]))


def test_files_named_after_splits_are_splits(tmp_path: Path) -> None:
    for seed, name in enumerate(("train", "dev", "test")):
        write_rows(tmp_path / f"{name}.jsonl", graded_pairs(20 + seed, seed=seed))
    pairs = read_pairs(tmp_path)
    assert (len(pairs.train), len(pairs.validation)) == (20, 21)
    assert (len(read_dev_pairs(tmp_path)), len(read_dev_pairs(tmp_path, "test"))) == (21, 22)
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(InputError, match="no split 'test': there are validation, train"):
        read_dev_pairs(tmp_path, "test")
    (tmp_path / "dev.jsonl").unlink()
    assert len(read_dev_pairs(tmp_path, "test")) == 20


def test_other_names_of_columns_and_other_columns() -> None:
    given = graded_pairs(60)
    renamed = rows(
        sentence1=given["text_a"],
        sentence2=given["text_b"],
        score=given["label"],
        source=["x"] * 60,
    )
    assert read_pairs(renamed).train.column_names == ["text_a", "text_b", "label"]


def test_columns_are_taken_by_any_names(tmp_path: Path) -> None:
    given = graded_pairs(60)
    usual = read_pairs(rows(**given))
    one, two, label = (given[name] for name in ("text_a", "text_b", "label"))
    names = ("Satz A", "Satz B"), "Note"
    own = {"Satz B": two, "Note": label, "Satz A": one, "text_a": ["another"] * 60}
    found = read_pairs(rows(**own), names=names)
    assert found.train.to_dict() == usual.train.to_dict()
    turned = read_pairs(rows(**given), names=(("text_b", "text_a"), None))
    assert set(turned.all_rows()["text_a"]) == set(two)
    file = write_rows(tmp_path / "a.jsonl", Dataset.from_dict(own).to_list())
    assert read_dev_pairs(str(file), names=names).to_dict() == rows(**given).to_dict()
    for wrong, said in (
        ((("Satz A",), None), "--text names one column, 'Satz A': name the two of pairs"),
        ((("Satz A", "Satz C"), None), "no column 'Satz C': there are Satz B, Note, Satz A"),
        ((names[0], "Grade"), "no column 'Grade'"),
    ):
        with pytest.raises(InputError, match=said):
            read_pairs(rows(**own), names=wrong)


def test_an_empty_validation_part_counts_as_none_and_an_empty_set_is_named() -> None:
    given = rows(**graded_pairs(60))
    pairs = read_pairs(DatasetDict(train=given, validation=given.select([])))
    assert (len(pairs.train), len(pairs.validation)) == (54, 6)
    with pytest.raises(InputError, match="the train part has no rows"):
        read_pairs(given.select([]))


def test_a_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    given = graded_pairs(60)
    given["label"][7] = 3.2
    path = write_rows(tmp_path / "pairs.jsonl", given)
    with pytest.raises(
        InputError, match=r"pairs.jsonl: train row 7 .*label 3.2; most others are at most 1: labels"
    ):
        read_pairs(path)
    given["label"][7] = 0.5
    assert len(read_pairs(write_rows(path, given)).train) == 54


def test_labels_of_0_to_5_are_divided_by_5_in_both_parts() -> None:
    given = graded_pairs(60)
    times_5 = {**given, "label": [5 * label for label in given["label"]]}
    one, five = read_pairs(rows(**given)), read_pairs(rows(**times_5))
    assert (one.highest, five.highest) == (1, 5)
    for part in (five.train, five.validation):
        for row in part:
            place = given["text_a"].index(row["text_a"])
            assert row["label"] == pytest.approx(given["label"][place])
    splits = DatasetDict(train=rows(**times_5), validation=rows(**graded_pairs(6)))
    assert max(read_pairs(splits).validation["label"][:]) <= 0.2
    assert read_dev_pairs(rows(**times_5))["label"][:] == pytest.approx(given["label"])
    assert read_dev_pairs(rows(**times_5), highest=ANY)["label"][:] == times_5["label"]


def test_whole_numbers_up_to_3_are_classes() -> None:
    given = graded_pairs(60)
    with pytest.raises(InputError, match="train part are whole numbers up to 2, as classes are"):
        read_pairs(rows(**{**given, "label": [n % 3 for n in range(60)]}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": [-0.5]}, "label -0.5: labels are 0 to 1 or 0 to 5, scale them"),
        ({"label": [float("nan")]}, "row 0 .*: label is nan"),
        ({"text_b": ["  "]}, r"train row 0 .* has an empty text_b: remove it"),
        ({"text_a": [None]}, "row 0 .*: text_a is empty"),
    ],
)
def test_a_wrong_row_is_named(change: dict[str, list[Any]], said: str) -> None:
    given = graded_pairs(60)
    for name, values in change.items():
        given[name] = values + given[name][1:]
    with pytest.raises(InputError, match=said):
        read_pairs(rows(**given))


def test_sets_from_which_nothing_can_be_learned() -> None:
    given = graded_pairs(60)
    with pytest.raises(InputError, match=r"every label of the train part is 0.5.*undefined"):
        read_pairs(rows(**{**given, "label": [0.5] * 60}))
    for wrong, said in (("alike", "is no number"), ("0,7", "is no number.*after a point")):
        labels = ["0.5", wrong, *["1"] * 58]
        with pytest.raises(InputError, match=rf"train row 1 .*: label '{wrong}' {said}"):
            read_pairs(rows(**{**given, "label": labels}))
    with pytest.raises(InputError, match="no column 'label'"):
        read_pairs(rows(text_a=given["text_a"], text_b=given["text_b"]))
    with pytest.raises(InputError, match="single texts"):
        read_pairs(rows(text=given["text_a"], label=given["label"]))
    alike = {**graded_pairs(9), "text_a": ["one first text"] * 9}
    with pytest.raises(InputError, match="9 pairs of 1 first texts are too few"):
        read_pairs(rows(**alike))
    constant = rows(**{**graded_pairs(6), "label": [0.9] * 6})
    with pytest.raises(InputError, match=r"every label of the validation part is 0\.9"):
        read_pairs(DatasetDict(train=rows(**given), validation=constant))


def test_generated_pairs_are_counted_among_those_that_are_left() -> None:
    given = {"text_a": [f"v{n}" for n in range(60)], "text_b": [f"w{n}" for n in range(60)],
             "label": [n % 5 / 4 for n in range(60)]}  # fmt: skip
    model = ["lm" if n < 30 else None for n in range(60)]
    held = rows(**given, model=model, source_id=[str(n) for n in range(60)])
    train = rows(**{**given, "text_a": [f"t{n}" for n in range(60)], "text_b": ["x"] * 60})
    parts = read_pairs(DatasetDict(train=train, validation=held))
    texts = [f"v{n}" for n in range(20)]
    found = StsSet("x", texts, texts, np.arange(20.0), [""] * 20)
    left = drop_shared(parts, [found])
    assert left.written is not None
    assert (len(left.validation), left.written.tolist()) == (40, [True] * 10 + [False] * 30)
