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


def head(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return found


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


def test_facts_stand_in_head_and_body_and_counts_are_added_up() -> None:
    facts = {
        "title": "pairs: a | b",
        "counts": {"train": {"1": 700, "0|5": 400}, "validation": {"1": 1}},
        "language": ["en", "no"], "tags": ["dino"],
        "task_categories": ["text-classification"], "extra": [("Limits", "Nobody checked.")],
        "drops": {"newline": 4, "not-closed": 1234},
    }  # fmt: skip
    text = card(**facts).render()
    assert head(text) == {
        "pretty_name": "pairs: a | b", "language": ["en", "no"],
        "task_categories": ["text-classification"], "size_categories": ["1K<n<10K"],
        "tags": ["synthetic", "tilth", "dino"],
    }  # fmt: skip
    for lines in (
        "- Texts: synthetic\n- Command: `tilth generate`\n- Model: `starter`\n- Seed: 7\n",
        "- Licence: not stated",
        "| train | 1 | 700 |\n| train | 0\\|5 | 400 |\n| train | all | 1,100 |\n",
        "| validation | 1 | 1 |\n\n",
        "| newline | 4 |\n| not-closed | 1,234 |\n| all | 1,238 |",
        "## Limits\n\nNobody checked.",
    ):
        assert lines in body(text)


def test_what_is_not_known_is_left_out() -> None:
    text = card(model=None, seed=None, drops={}).render()
    assert set(head(text)) == {"pretty_name", "size_categories", "tags"}
    for word in ("Seed", "Model", "Left out"):
        assert word not in body(text)


@pytest.mark.parametrize(
    ("rows", "size"), [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (2 * 10**6, "1M<n<10M")]
)
def test_size_categories(rows: int, size: str) -> None:
    assert head(card(counts={"train": {"1": rows}}).render())["size_categories"] == [size]


def test_how_to_load_it_is_said_where_there_are_files() -> None:
    files = {"default": {"train": "data/train.parquet"}, "dropped": {"train": "dropped/x.parquet"}}
    text = body(card(configs=files).render())
    assert "load_dataset(" in text
    assert 'load_dataset("path/of/this/folder", "dropped", split="train")' in text
    assert head(card(configs=files, content="abc").render())["configs"][0]["description"] == (
        "content abc"
    )
    assert "load_dataset" not in body(card().render())


@pytest.mark.parametrize("title", ["a: b # c", "- x", "'", "{}", "emoji \U0001f600", "null", "7"])
def test_any_title_makes_a_valid_head(title: str) -> None:
    assert head(card(title=title).render())["pretty_name"] == title
