from __future__ import annotations

from typing import Any

import pytest
import yaml

from tilth.data import Card
from tilth.generation.task import load_task


def card(**changes: Any) -> Card:
    facts: dict[str, Any] = {
        "title": "Pairs",
        "summary": "A set.",
        "command": "generate",
        "settings": {"task": load_task("sts-x2").to_dict(), "decay": 100.0, "top_k": 5},
        "counts": {"train": {"1": 2, "0": 3}, "validation": {"1": 1}},
        "drops": {"newline": 4, "not-closed": 1},
        "model": "starter",
        "seed": 7,
    }
    return Card(**(facts | changes))


def body(text: str) -> str:
    return text.split("---\n", 2)[2]


def test_a_task_is_shown_as_a_table_of_its_instructions() -> None:
    text = body(card().render())
    task = load_task("sts-x2")
    assert "### Task `sts-x2`" in text
    assert "counter_labels" not in text  # no JSON of it is left
    for label in task.labels:
        counters = ", ".join(f"`{name}`" for name in label.counter_labels)
        against = f", against {counters}" if counters else ""
        assert f"Label `{label.name}`{against}:\n\n```text\n{label.instruction}\n```" in text
    assert "| decay | `100.0` |" in text
    assert "| top_k | `5` |" in text


def test_instructions_and_settings_cannot_break_out_of_their_code() -> None:
    spec = {"task_name": "t", "labels": {"`a`": {"instruction": "one\n```\ntwo"}}}
    text = body(card(settings={"task": spec, "note": "`x` | y"}).render())
    assert "Label `` `a` ``:\n\n````text\none\n```\ntwo\n````\n" in text
    assert r"| note | `` `x` \| y `` |" in text


def test_settings_without_a_task_are_a_table() -> None:
    text = body(card(settings={"labels": ["x"], "near": None, "source": "a b"}).render())
    assert '| labels | `["x"]` |' in text
    assert "| near | `null` |" in text
    assert "| source | `a b` |" in text
    assert "### Task" not in text


def test_counts_are_added_up_per_split_and_drops_in_all() -> None:
    text = body(card().render())
    assert (
        "| train | 1 | 2 |\n| train | 0 | 3 |\n| train | all | 5 |\n| validation | 1 | 1 |" in text
    )
    assert "| newline | 4 |\n| not-closed | 1 |\n| all | 5 |" in text


def test_how_to_load_it_is_said_where_there_are_files() -> None:
    files = {"default": {"train": "data/train.parquet"}, "dropped": {"train": "dropped/x.parquet"}}
    text = body(card(configs=files).render())
    assert "load_dataset(" in text
    assert 'load_dataset("path/of/this/folder", "dropped", split="train")' in text
    assert "load_dataset" not in body(card().render())


def test_the_head_names_language_and_content_and_says_synthetic() -> None:
    files = {"default": {"train": "data/train.parquet"}}
    head = yaml.safe_load(card(configs=files, content="abc").render().split("---\n")[1])
    assert head["language"] == ["en"]
    assert "synthetic" in head["tags"]
    assert head["configs"][0]["description"] == "content abc"
    assert "- Texts: synthetic" in card().render()


@pytest.mark.parametrize("title", ["a: b # c", "- x", "'", "{}", "emoji \U0001f600", "null", "7"])
def test_any_title_makes_a_valid_head(title: str) -> None:
    head = yaml.safe_load(card(title=title).render().split("---\n")[1])
    assert head["pretty_name"] == title
