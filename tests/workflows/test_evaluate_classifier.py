from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilth.errors import InputError
from tilth.evaluate.classify import classify_scores, compare_classify_scores
from tilth.workflows.evaluate_classifier import SHOWN, EvaluateSettings, System
from tilth.workflows.evaluate_classifier import compare_systems as compare_with


@dataclass
class Fixed:
    """A classifier or tagger whose answers are given: of each text a label, or labels, or tags."""

    labels: list[str]
    answers: dict[str, Any]
    kind: str = "class"
    name: str = "fixed"

    def probabilities(self, texts: Sequence[Any], **_: Any) -> Any:
        return np.stack([self._row(self.answers[text]) for (text,) in texts])

    def tag_probabilities(self, tokens: Sequence[Sequence[str]], **_: Any) -> Any:
        return [
            np.stack([self._row(tag) for tag in self.answers[" ".join(words)]]) for words in tokens
        ]

    def _row(self, answer: Any) -> Any:
        if self.kind == "multi":
            return np.array([0.8 if name in answer else 0.1 for name in self.labels], np.float32)
        rest = 0.2 / (len(self.labels) - 1)
        return np.array([0.8 if name == answer else rest for name in self.labels], np.float32)


def systems(*models: Any) -> list[System]:
    return [System(name, model) for name, model in zip("abc", models, strict=False)]


def compare_systems(systems: list[System], rows: Any, **settings: Any) -> dict[str, Any]:
    return compare_with(systems, rows, EvaluateSettings(**settings), quiet=True)


ROWS = [{"text": text, "label": label} for text, label in zip("wxyz", "nnyy", strict=True)]
TEXTS = list("wxyz")


def answering(words: str, labels: Sequence[str] = ("n", "y")) -> Fixed:
    return Fixed(list(labels), dict(zip(TEXTS, words, strict=True)))


def test_scores_and_differences_are_those_of_evaluate() -> None:
    one, two = answering("nnyn"), answering("ynyn")
    found = compare_systems(systems(one, two), ROWS, bootstrap=20, seed=3)
    gold = np.array([0, 0, 1, 1])
    said = [model.probabilities([(text,) for text in TEXTS]) for model in (one, two)]
    how: dict[str, Any] = {"bootstrap": 20, "seed": 3}
    assert found["n"] == 4
    assert [system["scores"] for system in found["systems"]] == [
        classify_scores(gold, one, ["n", "y"], **how) for one in said
    ]
    assert found["differences"] == {"b": compare_classify_scores(gold, *said, ["n", "y"], **how)}
    assert found["differences"]["b"]["accuracy"]["value"] == 25


def test_rows_to_read_are_where_the_first_two_differ() -> None:
    found = compare_systems(
        systems(answering("nyyn"), answering("ynyn"), answering("yyyy")), ROWS,
        bootstrap=0,
    )  # fmt: skip
    assert found["changed"] == {
        "mended": [{"text": "w", "right": "n", "before": "y", "now": "n"}],
        "spoilt": [{"text": "x", "right": "n", "before": "n", "now": "y"}],
    }
    assert {row["text"] for row in found["wrong"]} == {"x", "z"}
    assert [row["answered"] for row in found["wrong"]] == ["y", "n"]
    assert list(found["differences"]) == ["b", "c"]


def test_one_system_has_nothing_to_differ_from() -> None:
    found = compare_systems(systems(answering("nnyy")), ROWS, bootstrap=0)
    assert (found["differences"], found["wrong"]) == ({}, [])
    assert found["changed"] == {"mended": [], "spoilt": []}


def test_lists_are_bounded() -> None:
    rows = [{"text": f"t{place}", "label": "ny"[place % 2]} for place in range(100)]
    right = Fixed(["n", "y"], {row["text"]: row["label"] for row in rows})
    wrong = Fixed(["n", "y"], {row["text"]: "yn"["ny".index(row["label"])] for row in rows})
    found = compare_systems(systems(right, wrong), rows, bootstrap=0)
    assert len(found["changed"]["mended"]) == SHOWN
    found = compare_systems(systems(wrong, right), rows, bootstrap=0)
    assert (len(found["changed"]["spoilt"]), len(found["wrong"])) == (SHOWN, SHOWN)


def test_a_teacher_may_have_its_labels_in_another_order_and_more_of_them() -> None:
    teacher = answering("nnyy", labels=("m", "y", "n"))
    found = compare_systems(systems(answering("nnyy"), teacher), ROWS, bootstrap=0)
    assert [one["scores"]["accuracy"]["value"] for one in found["systems"]] == [100, 100]
    with pytest.raises(InputError, match="'y'"):
        compare_systems(systems(answering("nnnn", "nm")), ROWS, bootstrap=0)


def test_any_number_of_labels() -> None:
    rows = [
        {"text": text, "labels": list(label)}
        for text, label in zip("wxyz", ("n", "", "ny", "y"), strict=True)
    ]
    one, two = (
        Fixed(["n", "y"], dict(zip(TEXTS, said, strict=True)), "multi")
        for said in (("n", "", "y", "y"), ("n", "n", "ny", ""))
    )
    found = compare_systems(systems(one, two), rows, bootstrap=0)
    assert found["differences"]["b"]["accuracy"]["value"] == 25
    assert [row["before"] for row in found["changed"]["mended"]] == ["n", "none"]
    (spoilt,) = found["changed"]["spoilt"]
    assert (spoilt["right"], spoilt["now"]) == ("n, y", "y")
    assert found["wrong"][0]["right"] == "n, y"


def test_tags() -> None:
    rows = [
        {"tokens": ["a", "b"], "tags": ["B-X", "I-X"]},
        {"tokens": ["c", "d"], "tags": ["O", "B-X"]},
    ]
    labels = ["O", "B-X", "I-X"]
    one = Fixed(labels, {"a b": ["B-X", "I-X"], "c d": ["O", "O"]}, "tags")
    two = Fixed(labels, {"a b": ["B-X", "O"], "c d": ["O", "B-X"]}, "tags")
    found = compare_systems(systems(one, two), rows, bootstrap=0)
    assert found["systems"][0]["scores"]["precision"]["value"] == 100
    assert found["changed"]["mended"] == [
        {"text": "a b", "right": "X: a b", "before": "X: a", "now": "X: a b"}
    ]
    assert [row["now"] for row in found["changed"]["spoilt"]] == ["none"]
    assert [(row["right"], row["answered"]) for row in found["wrong"]] == [("X: d", "none")]
