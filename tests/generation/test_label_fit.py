"""The fit of a text to its label's description."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilth.generation.label_fit import describe_labels, similarity_to_descriptions
from tilth.generation.task import load_task


def described(**labels: Any) -> dict[str, str]:
    return describe_labels(load_task({"task_name": "t", "labels": labels}))


def test_the_description_of_the_spec_comes_first() -> None:
    given = {"instruction": 'Task: Write a ticket about money.\nTicket: "', "description": "money"}
    other = {"instruction": 'Task: Write a ticket about a crash.\nTicket: "'}
    assert described(pay=given, bug=other) == {"pay": "money", "bug": "a crash."}


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ('Write a good review: "', 'Write a bad review: "', ["good review", "bad review"]),
        ('Task: Write.\nMood: glad\nText: "', 'Task: Write.\nMood: sad\nText: "', ["glad", "sad"]),
        ('Write: "', 'Write: "', ["label one", "label two"]),
    ],
)
def test_without_one_it_is_what_the_instructions_do_not_share(
    one: str, two: str, expected: list[str]
) -> None:
    labels = {"label_one": {"instruction": one}, "label_two": {"instruction": two}}
    assert list(described(**labels).values()) == expected


class Letters:
    """Encodes a text as the counts of its letters a and b."""

    def encode(self, texts: list[str], **_: Any) -> Any:
        counts = np.array([[text.count("a"), text.count("b")] for text in texts], float)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_similarity_is_the_cosine_of_each_text_to_each_description() -> None:
    found = similarity_to_descriptions(Letters(), ["aaa", "ab"], ["a", "bb", "abab"])  # type: ignore[arg-type]
    half = 0.5**0.5
    assert np.allclose(found, [[1, 0, half], [half, half, 1]])
    assert similarity_to_descriptions(Letters(), [], ["a"]).shape == (0, 1)  # type: ignore[arg-type]
