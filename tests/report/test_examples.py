"""The sentences and the task that come with the project."""

from importlib.resources import files
from pathlib import Path

import pytest

from tilth.generation.task import load_task

EXAMPLES = Path(__file__).parents[2] / "examples"
QUICKSTART = files("tilth.workflows").joinpath("quickstart_sentences.txt")


@pytest.mark.parametrize(("text", "least"), [(QUICKSTART, 120), (EXAMPLES / "sentences.txt", 20)])
def test_sentences_are_fit_for_a_prompt(text: Path, least: int) -> None:
    lines = text.read_text(encoding="utf-8").splitlines()
    assert len(lines) >= least
    assert len({line.lower() for line in lines}) == len(lines)
    for line in lines:
        assert 4 <= len(line.split()) <= 25, line
        assert not set(line) & set('"\u201c\u201d<>'), line
        assert line == line.strip()


def test_example_task_loads() -> None:
    task = load_task(EXAMPLES / "task.yaml")
    assert task.name == "help-desk"
    assert not task.is_pair
    assert [label.counter_labels for label in task.labels] == [("complaint",), ("question",)]
