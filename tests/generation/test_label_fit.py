"""The fit of a text to its label's description."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tilth.errors import InputError
from tilth.generation import label_fit
from tilth.generation.label_fit import (
    UNRELATED,
    choose_encoder,
    describe_labels,
    similarity_to_descriptions,
    with_fit,
)
from tilth.generation.task import Task, load_task

EXAMPLES = Path(__file__).parents[2] / "examples"


def described(**labels: Any) -> dict[str, str]:
    return describe_labels(load_task({"task_name": "t", "labels": labels}))


def test_the_description_of_the_spec_comes_first() -> None:
    given = {"instruction": 'Task: Write a ticket about money.\nTicket: "', "description": "money"}
    other = {"instruction": 'Task: Write a ticket about a crash.\nTicket: "'}
    assert described(pay=given, bug=other) == {"pay": "money\npay", "bug": "a crash.\nbug"}
    more = {**given, "examples": ["Refund me.", "It costs\ttoo much."]}
    assert described(pay=more, bug=other)["pay"] == "money\npay\nRefund me.\nIt costs too much."


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ('Write a good review: "', 'Write a bad review: "', ["good review", "bad review"]),
        ('Task: Write.\nMood: glad\nText: "', 'Task: Write.\nMood: sad\nText: "', ["glad", "sad"]),
        ('Write: "', 'Write: "', ["", ""]),
    ],
)
def test_without_one_it_is_what_the_instructions_do_not_share(
    one: str, two: str, expected: list[str]
) -> None:
    labels = {"label_one": {"instruction": one}, "label_two": {"instruction": two}}
    found = list(described(**labels).values())
    names = ["label one", "label two"]
    assert found == ["\n".join(filter(None, lines)) for lines in zip(expected, names, strict=True)]


class Letters:
    """Encodes a text as the counts of its letters a and b."""

    device = torch.device("cpu")

    def encode(self, texts: list[str], **_: Any) -> Any:
        counts = np.array([[text.count("a"), text.count("b")] for text in texts], float)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True).clip(1e-9)

    def get_embedding_dimension(self) -> int:
        return 2


def test_similarity_is_the_cosine_of_each_text_to_each_description() -> None:
    found = similarity_to_descriptions(Letters(), ["aaa", "ab"], ["a", "bb", "abab"])
    half = 0.5**0.5
    assert np.allclose(found, [[1, 0, half], [half, half, 1]])
    lines = similarity_to_descriptions(Letters(), ["aaa", "ab"], ["b\na", "b"])
    assert np.allclose(lines, [[1, 0], [half, half]])
    assert similarity_to_descriptions(Letters(), [], ["a"]).shape == (0, 1)


def part(rows: list[tuple[str, str, str | None]]) -> pa.Table:
    text, label, reason = zip(*rows, strict=True)
    return pa.table({"text": text, "label": label, "drop_reason": pa.array(reason, pa.string())})


def task_of(**labels: Any) -> Task:
    return load_task({"task_name": "t", "labels": labels})


def test_fit_is_the_margin_over_the_nearest_other_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_fit, "fit_encoder", Letters)
    frame = 'Task: Write\nText: "'
    three = {
        "1": {"instruction": frame, "description": "a", "counter_labels": ["2"]},
        "2": {"instruction": frame, "description": "b"},
        "3x": {"instruction": frame, "description": "ab"},
    }
    task, half = task_of(**three), 0.5**0.5
    rows = part([("a", "1", None), ("aab", "1", None), ("ba", "2", None), ("b", "1", "empty")])
    chosen = {"encoder": "starter-encoder", "unmeasured": {}}
    found = with_fit(rows, task, chosen)["label_fit"].to_pylist()
    expected = [1 - half, 2 / 5**0.5 - 3 / 10**0.5, half - 1]
    assert found[:3] == pytest.approx(expected, abs=6e-4)
    assert found[3] is None
    far = {
        **three,
        "2": {**three["2"], "description": "c"},
        "3x": {**three["3x"], "description": "c"},
    }
    assert with_fit(rows, task_of(**far), chosen)["label_fit"][0].as_py() == pytest.approx(
        1 - UNRELATED
    )
    off = {**chosen, "unmeasured": {"1": "why"}}
    assert [value is None for value in with_fit(rows, task, off)["label_fit"].to_pylist()] == [
        True, True, False, True,
    ]  # fmt: skip
    assert with_fit(rows, task, {**chosen, "encoder": None})["label_fit"].null_count == 4


def test_labels_the_encoder_cannot_tell_apart_are_not_measured() -> None:
    chosen = choose_encoder(load_task("review-sentiment"))
    assert list(chosen["unmeasured"]) == ["positive", "negative"]
    assert "too near to that of negative" in chosen["unmeasured"]["positive"]
    for task in ("intents", str(EXAMPLES / "support-tickets.yaml"), "sts-x2"):
        assert choose_encoder(load_task(task)) == {"encoder": "starter-encoder", "unmeasured": {}}
    assert set(choose_encoder(load_task("nli"))["unmeasured"]) == {
        "entailment", "neutral", "contradiction",
    }  # fmt: skip
    assert choose_encoder(load_task("sts-x1"))["encoder"] is None


def test_without_the_starter_models_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise InputError("the starter models are not installed")

    monkeypatch.setattr(label_fit, "fit_encoder", missing)
    chosen = choose_encoder(load_task("intents"))
    assert chosen["encoder"] is None
    assert "pip install tilth-starter" in chosen["unmeasured"]["weather"]
    assert [record.getMessage() for record in caplog.records] == [
        "label-fit is not measured: the starter models are not installed"
    ]


def test_handwritten_tickets_fit_their_label_and_no_other() -> None:
    task = load_task(EXAMPLES / "support-tickets.yaml")
    lines = (EXAMPLES / "support-tickets.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    names = [label.name for label in task.labels]
    chosen = choose_encoder(task)
    for shift, low, high in ((0, 25, 30), (1, 0, 2), (2, 0, 2)):
        labels = [names[(names.index(row["label"]) + shift) % 3] for row in rows]
        table = part([(row["text"], label, None) for row, label in zip(rows, labels, strict=True)])
        fits = np.array(with_fit(table, task, chosen)["label_fit"].to_pylist())
        assert low <= (fits > 0).sum() <= high
