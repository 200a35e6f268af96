from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

import tilth
from tests.tiny import write_rows
from tests.tiny.classifiers import Fake
from tilth.errors import InputError, TilthError
from tilth.evaluate.classify import (
    aligned,
    classify_scores,
    compare_classify_scores,
    evaluate_classifier,
    most_wrong_rows,
)

LABELS = ["calm", "merry", "grim"]
ROWS = [
    {"text": f"The {word} stands by the gate, day {day}.", "label": LABELS[day % 3]}
    for day, word in enumerate(["lantern", "plough", "barrow", "kettle"] * 6)
]


def sure_of(answers: np.ndarray, labels: int) -> np.ndarray:
    """Return probabilities whose largest are the answers, each row a little surer."""
    sure = 0.6 + 0.3 * np.arange(len(answers)) / len(answers)
    rows = np.repeat((1 - sure[:, None]) / (labels - 1), labels, axis=1)
    rows[np.arange(len(answers)), answers] = sure
    return rows


def refused(kind: type[Exception], *arguments: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        evaluate_classifier(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(2, 6), st.integers(0, 1000))
def test_figures_of_classes_equal_sklearn(rows: int, labels: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    gold, answers = random.integers(0, labels, rows), random.integers(0, labels, rows)
    names = [f"c{n}" for n in range(labels)]
    found = classify_scores(gold, sure_of(answers, labels), names, bootstrap=0)
    assert found["n"] == rows
    assert found["accuracy"]["value"] == pytest.approx(100 * metrics.accuracy_score(gold, answers))
    macro = metrics.f1_score(gold, answers, average="macro", zero_division=0)
    assert found["macro_f1"]["value"] == pytest.approx(100 * macro)
    matrix = metrics.confusion_matrix(gold, answers, labels=range(labels))
    assert found["confusion"] == matrix.tolist()
    by_label = metrics.precision_recall_fscore_support(
        gold, answers, labels=range(labels), zero_division=np.nan
    )
    for place, name in enumerate(names):
        one = found["classes"][name]
        assert one["n"] == by_label[3][place] == matrix[place].sum()
        assert one["predicted"] == matrix[:, place].sum()
        for key, values in zip(("precision", "recall"), by_label, strict=False):
            known = None if np.isnan(values[place]) else pytest.approx(100 * values[place])
            assert one[key] == known
        if one["n"] or one["predicted"]:
            f1 = metrics.f1_score(gold == place, answers == place, zero_division=0)
            assert one["f1"] == pytest.approx(100 * f1)
        else:
            assert one["f1"] is None


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 1000))
def test_figures_of_several_labels_equal_sklearn(rows: int, labels: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    gold = random.integers(0, 2, (rows, labels))
    probabilities = random.random((rows, labels)).round(1)
    answers = probabilities > 0.5
    names = [f"c{n}" for n in range(labels)]
    found = classify_scores(gold, probabilities, names, kind="multi", bootstrap=0)
    assert found["accuracy"]["value"] == pytest.approx(100 * (gold == answers).all(1).mean())
    occurs = gold.any(0) | answers.any(0)
    by_label = [
        metrics.f1_score(gold[:, n], answers[:, n], zero_division=0) for n in np.flatnonzero(occurs)
    ]
    if not occurs.any():
        assert found["macro_f1"]["value"] is found["micro_f1"]["value"] is None
        return
    assert found["macro_f1"]["value"] == pytest.approx(100 * np.mean(by_label))
    micro = metrics.f1_score(gold.ravel(), answers.ravel(), zero_division=0)
    assert found["micro_f1"]["value"] == pytest.approx(100 * micro)
    assert "confusion" not in found


def test_calibration_is_of_answers_and_of_labels() -> None:
    gold = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    found = classify_scores(gold, probabilities, ["a", "b"], bootstrap=0)["calibration"]
    assert found["error"] == pytest.approx(0.9 - 0.75)
    assert found["bins"][0]["n"] == 4
    several = classify_scores(
        np.array([[1, 0], [0, 1]]), np.array([[0.9, 0.1], [0.9, 0.1]]), ["a", "b"], kind="multi",
        bootstrap=0,
    )["calibration"]  # fmt: skip
    assert [one["n"] for one in several["bins"]] == [2, 2]
    assert several["error"] == pytest.approx(0.4)


def test_differences_of_two_classifiers() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 300)
    bad = np.where(random.random(300) < 0.4, gold, random.integers(0, 3, 300))
    good = np.where(random.random(300) < 0.7, gold, bad)
    first, second = sure_of(good, 3), sure_of(bad, 3)
    found = compare_classify_scores(gold, first, second, LABELS, bootstrap=300)
    one, two = (classify_scores(gold, p, LABELS, bootstrap=0) for p in (first, second))
    for name in ("accuracy", "macro_f1"):
        assert found[name]["value"] == pytest.approx(one[name]["value"] - two[name]["value"])
        assert 0 < found[name]["low"] < found[name]["value"] < found[name]["high"]
    assert found["mcnemar"]["first"] == ((good == gold) & (bad != gold)).sum()
    assert found["mcnemar"]["second"] == ((bad == gold) & (good != gold)).sum()
    assert found["accuracy"]["p"] == found["mcnemar"]["p"] < 1e-6
    assert found["macro_f1"]["p"] == 1 / 301
    assert compare_classify_scores(gold, first, second, LABELS, bootstrap=300, seed=1) != found
    gold = np.eye(3, dtype=int)[gold]
    several = compare_classify_scores(gold, first, second, LABELS, kind="multi", bootstrap=50)
    assert several["micro_f1"]["low"] > 0
    assert several["mcnemar"]["first"] == found["mcnemar"]["first"]


def test_the_surest_wrong_rows_come_first() -> None:
    texts = [(f"{n}",) for n in range(4)]
    probabilities = np.array([[0.6, 0.4], [0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    found = most_wrong_rows(texts, np.array([1, 1, 1, 0]), probabilities, ["a", "b"], count=2)
    assert found == [
        {"texts": ["2"], "gold": "b", "predicted": "a", "probability": 0.8},
        {"texts": ["3"], "gold": "a", "predicted": "b", "probability": 0.7},
    ]
    gold = np.array([[1, 0], [0, 0], [1, 0], [0, 0]])
    found = most_wrong_rows(texts, gold, probabilities, ["a", "b"], kind="multi", count=9)
    assert [row["texts"] for row in found] == [["1"], ["3"]]
    assert (found[0]["gold"], found[0]["predicted"]) == ([], ["b"])


def test_other_orders_of_labels() -> None:
    probabilities = np.array([[0.2, 0.8]])
    assert aligned(probabilities, ["b", "a"], ["a", "c", "b"]).tolist() == [[0.8, 0, 0.2]]


@pytest.mark.parametrize(
    ("gold", "shape", "options", "said"),
    [
        ([0, 1], (3, 2), {}, r"shape (3, 2): give (2, 2)"),
        ([], (0, 2), {}, "no rows"),
        ([0, 2], (2, 2), {}, "give 0 to 1"),
        ([0, 1], (2, 2), {"kind": "multi"}, "gold has the shape (2,)"),
        ([0, 1], (2, 2), {"kind": "tags"}, "kind 'tags' is unknown"),
        ([0, 1], (2, 2), {"bootstrap": -3}, "bootstrap is -3"),
    ],
)
def test_what_does_not_go_together(
    gold: list[int], shape: tuple[int, int], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as caught:
        classify_scores(np.array(gold, int), np.full(shape, 0.5), ["a", "b"], **options)
    assert said in str(caught.value)


def test_a_broken_model_is_said() -> None:
    with pytest.raises(TilthError, match="NaN probabilities"):
        classify_scores(np.array([0]), np.array([[np.nan, 1.0]]), ["a", "b"])


def test_models_are_measured_on_data_of_any_kind(tmp_path: Path) -> None:
    fake = Fake(LABELS[::-1])
    file = tmp_path / "rows.jsonl"
    write_rows(file, ROWS)
    found = tilth.evaluate_classifier(fake, ROWS, seed=4, precision="float32")
    assert fake.asked == [{"precision": "float32"}]
    assert evaluate_classifier(fake, file, seed=4) == found
    gold = np.array([fake.labels.index(row["label"]) for row in ROWS])
    expected = classify_scores(
        gold, fake.probabilities([(row["text"],) for row in ROWS]), fake.labels, seed=4
    )
    assert found == expected
    assert evaluate_classifier(fake, ROWS, seed=5) != found
    assert evaluate_classifier(fake, ROWS, bootstrap=0)["accuracy"]["low"] is None
    named = [{"body": row["text"], "mood": row["label"], "text": "x", "label": 1} for row in ROWS]
    assert evaluate_classifier(fake, named, text="body", label="mood", seed=4) == found


def test_splits_and_numbers_for_labels() -> None:
    from datasets import Dataset, DatasetDict

    rows = [{"text": row["text"], "label": LABELS.index(row["label"])} for row in ROWS]
    sets = DatasetDict({"test": Dataset.from_list(rows[:8]), "dev": Dataset.from_list(rows)})
    by_number, unnamed = Fake(["0", "1", "2"]), Fake(["LABEL_0", "LABEL_1", "LABEL_2"])
    assert evaluate_classifier(by_number, sets)["n"] == 8
    found = evaluate_classifier(by_number, sets, split="dev")
    assert found["n"] == 24
    assert evaluate_classifier(unnamed, rows) == found
    rows = [{**row, "label": f"LABEL_{row['label']}"} for row in rows]
    assert evaluate_classifier(unnamed, rows)["accuracy"] == found["accuracy"]


def test_several_labels_and_pairs() -> None:
    fake = Fake(LABELS, kind="multi")
    rows = [
        {"text_a": row["text"], "text_b": "And so on.", "labels": LABELS[: day % 4]}
        for day, row in enumerate(ROWS)
    ]
    found = evaluate_classifier(fake, rows)
    said = fake.probabilities([(row["text_a"], row["text_b"]) for row in rows])
    gold = np.array([[int(name in row["labels"]) for name in LABELS] for row in rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = metrics.f1_score(gold, said > 0.5, average="micro")
    assert found["micro_f1"]["value"] == pytest.approx(100 * expected)


def test_labels_that_a_classifier_lacks_are_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [*ROWS[:3], {"text": "Who knows.", "label": "wry"}]
    file.write_text("\n" + "".join(json.dumps(row) + "\n" for row in rows))
    said = refused(InputError, Fake(LABELS), file)
    assert said.startswith(f"{file}:5: label 'wry' is none that 'fake' gives (calm, merry, grim)")
    assert "c0, c1, c2, c3, c4, c5, c6, c7, ...)" in refused(
        InputError, Fake([f"c{n}" for n in range(20)]), file
    )


@pytest.mark.parametrize(
    ("kind", "label", "said"),
    [
        ("class", ["calm"], "row 0 (rows count from 0): the data has a list of labels a row"),
        ("multi", "calm", "the data has one label a row, 'fake' gives any number of labels"),
        ("class", 0.5, "the data has fractions"),
    ],
)
def test_other_kinds_of_labels_are_refused(kind: str, label: Any, said: str) -> None:
    rows = [{"text": "One.", "label": label}, {"text": "Two.", "label": label}]
    assert said in refused(InputError, Fake(LABELS, kind=kind), rows)


def test_taggers_are_refused() -> None:
    assert "tilth evaluate tag" in refused(InputError, Fake(["O", "B-X"], kind="tags"), ROWS)
