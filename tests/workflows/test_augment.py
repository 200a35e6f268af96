from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import classed, several, tagged
from tests.tiny import salads, save_encoder, tiny_bank, tiny_static, write_lines
from tilth.evaluate.classify import evaluate_classifier
from tilth.evaluate.tag import evaluate_tagger
from tilth.models.classifier import load_classifier
from tilth.selftrain.settings import Augmentation
from tilth.workflows.augment import augment_and_measure, teacher_lines, teacher_warning


@pytest.mark.parametrize(
    ("kind", "make"), [("class", classed), ("multi", several), ("tags", tagged)]
)
def test_the_teacher_is_measured_and_a_page_written(tmp_path: Path, kind: str, make: Any) -> None:
    tiny_static().save(str(tmp_path / "static"))
    tiny_bank(tmp_path, salads(120), encoder=str(tmp_path / "static"))
    base = save_encoder(tmp_path / "base")
    train, test = (
        str(write_lines(tmp_path / f"{name}.jsonl", [json.dumps(row) for row in rows]))
        for name, rows in (("train", make(60)), ("test", make(20, seed=5)))
    )
    made = augment_and_measure(
        train, tmp_path / "bank", tmp_path / "run", Augmentation(count=20), teacher=str(base),
        test=test, training={"epochs": 2, "learning_rate": 2e-3}, bootstrap=50, quiet=True,
    )  # fmt: skip
    measure = evaluate_tagger if kind == "tags" else evaluate_classifier
    teacher = load_classifier(str(tmp_path / "run" / "teacher"))
    scores = made.results["teacher"]
    assert scores["test"] == measure(teacher, test, bootstrap=50)
    assert scores["validation"]["n"] == made.results["validation"]
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == made.results
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{made.results['kept']:,} sentences added" in page
    lines = teacher_lines(made.results)
    assert {line[0] for line in lines} == {"test", "validation"}
    assert ("F1" if kind == "tags" else "accuracy") in {line[2] for line in lines}


@pytest.mark.parametrize(
    ("scores", "warned"),
    [
        ({"test": {"n": 500, "accuracy": {"value": 52.4}}}, "accuracy on the test rows is 52"),
        ({"test": {"n": 500, "accuracy": {"value": 73.0}}}, None),
        ({"validation": {"n": 60, "f1": {"value": 40.0}}}, "F1 on the validation rows is 40"),
        ({"validation": {"n": 30, "accuracy": {"value": 40.0}}}, None),  # too few rows to tell
        ({"test": {"n": 500, "accuracy": {"value": None}}}, None),
        ({}, None),
    ],
)
def test_a_poor_teacher_is_warned_of(scores: dict[str, Any], warned: str | None) -> None:
    said = teacher_warning({"teacher": scores})
    assert said is None if warned is None else warned in str(said)
