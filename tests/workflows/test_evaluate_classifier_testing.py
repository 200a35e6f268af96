"""Measuring classifiers and taggers by name, on models that answer without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.tiny.classifiers import Fake
from tilth.errors import InputError
from tilth.evaluate.classify import classify_scores, compare_classify_scores
from tilth.evaluate.tag import best_tags, compare_tag_scores, tag_scores
from tilth.runs import RunMismatch
from tilth.workflows import evaluate_classifier as testing
from tilth.workflows.evaluate_classifier import Evaluated, EvaluateSettings, evaluate_to_run

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
TEXTS = [f"The {word} is {n} winters old." for n in range(10) for word in ("barn", "well", "yew")]
MODELS = {
    "one": Fake(["dry", "wet", "cold"], name="one"),
    "two": Fake(["cold", "warm", "wet", "dry"], name="two", seed=1),
    "unnamed": Fake(["LABEL_0", "LABEL_1"], name="unnamed"),
    "many": Fake(["dry", "wet"], kind="multi", name="many"),
    "others": Fake(["wet", "dry", "warm"], kind="multi", name="others", seed=1),
    "tags": Fake(TAGS, kind="tags", name="tags"),
    "again": Fake(TAGS[::-1], kind="tags", name="again", seed=1),
}


def run_test(measured: Any, name: str, data: str, **given: Any) -> Evaluated:
    folder = {key: given.pop(key) for key in ("out", "overwrite", "quiet") if key in given}
    return evaluate_to_run(measured, name, data, EvaluateSettings(**given), **folder)


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """Let models be found by name; return them."""
    for fake in MODELS.values():
        fake.asked.clear()
    monkeypatch.setattr(testing, "load_classifier", lambda name, device: MODELS[name])
    monkeypatch.setattr(testing, "fingerprint_classifier", lambda model: f"{model.seed}")
    return MODELS


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def classes(tmp_path: Path) -> str:
    rows = [{"text": t, "label": ["dry", "wet", "cold"][n % 3]} for n, t in enumerate(TEXTS)]
    return write(tmp_path / "classes.jsonl", rows)


@pytest.fixture
def several(tmp_path: Path) -> str:
    rows = [{"text": t, "labels": ["dry", "wet"][: n % 3]} for n, t in enumerate(TEXTS)]
    return write(tmp_path / "several.jsonl", rows)


@pytest.fixture
def tagged(tmp_path: Path) -> str:
    rows = [
        {"tokens": t.split(), "tags": ["O", "B-PER", "I-PER", "O", "B-LOC", "O"]} for t in TEXTS
    ]
    return write(tmp_path / "tags.jsonl", rows)


def test_classifiers_with_other_labels_are_compared(classes: str) -> None:
    tested = run_test("classify", "one", classes, against="two", bootstrap=100, seed=2, wrong=3)
    labels = ["dry", "wet", "cold", "warm"]
    gold = np.arange(30) % 3
    first, second = (MODELS[name].probabilities([(t,) for t in TEXTS]) for name in ("one", "two"))
    own = classify_scores(gold, first, labels[:3], bootstrap=100, seed=2)
    against = tested.scores.pop("against")
    assert tested.scores == own
    assert tested.figures == ["accuracy", "macro_f1"]
    assert against["name"] == "two"
    assert list(against["scores"]["classes"]) == MODELS["two"].labels
    padded = np.hstack([first, np.zeros((30, 1), np.float32)])
    turned = second[:, [3, 2, 0, 1]]
    assert against["difference"] == compare_classify_scores(
        gold, padded, turned, labels, bootstrap=100, seed=2
    )
    assert len(tested.wrong) == 3
    assert tested.wrong[0]["probability"] >= tested.wrong[1]["probability"]


def test_several_labels_are_compared(several: str) -> None:
    tested = run_test("classify", "many", several, against="others", bootstrap=50)
    gold = np.array([[n % 3 > 0, n % 3 > 1, False] for n in range(30)]).astype(int)
    first, second = (
        MODELS[name].probabilities([(t,) for t in TEXTS]) for name in ("many", "others")
    )
    expected = compare_classify_scores(
        gold, np.hstack([first, np.zeros((30, 1), np.float32)]), second[:, [1, 0, 2]],
        ["dry", "wet", "warm"], kind="multi", bootstrap=50,
    )  # fmt: skip
    assert tested.scores["against"]["difference"] == expected
    assert tested.figures == ["accuracy", "macro_f1", "micro_f1"]


def test_taggers_are_compared(tagged: str) -> None:
    tested = run_test("tag", "tags", tagged, against="again", bootstrap=50, seed=3, wrong=2)
    gold = [["O", "B-PER", "I-PER", "O", "B-LOC", "O"]] * 30
    tokens = [text.split() for text in TEXTS]
    one, two = (
        best_tags(MODELS[name].tag_probabilities(tokens), MODELS[name].labels)
        for name in ("tags", "again")
    )
    against = tested.scores.pop("against")
    assert tested.scores == tag_scores(gold, one[0], sure=one[1], bootstrap=50, seed=3)
    assert against["scores"] == tag_scores(gold, two[0], sure=two[1], bootstrap=50, seed=3)
    assert against["difference"] == compare_tag_scores(gold, one[0], two[0], bootstrap=50, seed=3)
    assert len(tested.wrong) == 2


def test_labels_without_names_meet_named_ones(tmp_path: Path) -> None:
    data = write(tmp_path / "n.jsonl", [{"text": t, "label": n % 2} for n, t in enumerate(TEXTS)])
    MODELS["numbers"] = Fake(["1", "0"], name="numbers", seed=4)
    tested = run_test("classify", "unnamed", data, against="numbers", bootstrap=0)
    against = tested.scores["against"]
    gap = tested.scores["accuracy"]["value"] - against["scores"]["accuracy"]["value"]
    assert against["difference"]["accuracy"]["value"] == pytest.approx(gap)


@pytest.mark.parametrize(
    ("measured", "name", "against", "fixture"),
    [("classify", "one", "two", "classes"), ("classify", "many", None, "several"),
     ("tag", "tags", "again", "tagged")],
)  # fmt: skip
def test_a_run_keeps_answers_and_reads_them_again(
    measured: Any, name: str, against: str | None, fixture: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    data, out = request.getfixturevalue(fixture), tmp_path / "run"
    asked: dict[str, Any] = {"against": against, "bootstrap": 20, "quiet": True}
    plain = run_test(measured, name, data, **asked)
    kept = run_test(measured, name, data, out=out, **asked)
    assert kept == plain
    assert json.loads((out / "results.json").read_text()) == kept.scores
    rows = pq.read_table(out / "parts" / "part-00000.parquet").to_pylist()
    assert len(rows) == 30
    assert {"gold", "predicted", "probabilities"} < set(rows[0])
    before = len(MODELS[name].asked)
    assert run_test(measured, name, data, out=out, **asked) == kept
    assert len(MODELS[name].asked) == before
    (out / "parts" / "part-00000.parquet").unlink()
    assert run_test(measured, name, data, out=out, **asked) == kept
    assert len(MODELS[name].asked) == before + 1
    with pytest.raises(RunMismatch, match="seed is 0 in the folder, 1 asked"):
        run_test(measured, name, data, out=out, seed=1, **asked)
    run_test(measured, name, data, out=out, seed=1, overwrite=True, **asked)


def test_columns_split_and_precision_are_handed_on(tmp_path: Path) -> None:
    rows = [{"a": t, "b": "So.", "mood": "wet", "text": "x", "label": "dry"} for t in TEXTS]
    data = write(tmp_path / "rows.jsonl", rows)
    tested = run_test(
        "classify", "one", data, text=["a", "b"], label="mood", bootstrap=0, precision="float32"
    )
    assert MODELS["one"].asked[0]["precision"] == "float32"
    assert tested.scores["classes"]["wet"]["n"] == 30
    expected = MODELS["one"].probabilities([(t, "So.") for t in TEXTS]).argmax(1) == 1
    assert tested.scores["accuracy"]["value"] == pytest.approx(100 * expected.mean())
    from datasets import Dataset, DatasetDict

    DatasetDict({"dev": Dataset.from_list(rows)}).save_to_disk(str(tmp_path / "set"))
    with pytest.raises(InputError, match="no split 'test': there are dev"):
        run_test("classify", "one", str(tmp_path / "set"))
    found = run_test("classify", "one", str(tmp_path / "set"), split="dev", bootstrap=0)
    assert found.scores["classes"]["dry"]["n"] == 30


@pytest.mark.parametrize(
    ("measured", "name", "options", "said"),
    [
        ("classify", "tags", {}, "measure it with tilth evaluate tag"),
        ("tag", "one", {}, "measure it with tilth evaluate classify"),
        ("classify", "one", {"against": "tags"}, "measure it with tilth evaluate tag"),
        ("classify", "one", {"against": "many"}, "'many' gives any number of labels"),
        ("classify", "one", {"bootstrap": -1}, "bootstrap is -1"),
    ],
)
def test_what_does_not_go_together(
    measured: Any, name: str, options: dict[str, Any], said: str, classes: str
) -> None:
    with pytest.raises(InputError) as caught:
        run_test(measured, name, classes, **options)
    assert said in str(caught.value)
