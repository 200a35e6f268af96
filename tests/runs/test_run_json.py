"""What run.json holds, and how it is compared and refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.runs.runs import content, open_run, table
from tests.tiny import read_json
from tilth.errors import InputError, TilthError
from tilth.runs import RunMismatch, read_results, read_run_json


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"settings": {"decay": 50, "seed": 0}}, ["decay is 100 in the folder, 50 asked"]),
        ({"settings": {"decay": 100}}, ["seed is 0 in the folder, null asked"]),
        ({"settings": {"decay": 100, "seed": 0, "top": 1}}, ["top is null in the folder, 1 asked"]),
        ({"command": "curate"}, ["command is generate in the folder, curate asked"]),
        ({"fingerprints": {"inputs": "x", "model": "def"}}, ["the inputs are not the same"]),
        ({"parts": 5}, ["it has 4 parts, 5 asked"]),
        (
            {"settings": {"decay": 1, "seed": 1}, "fingerprints": {"inputs": "abc", "model": "x"}},
            ["decay is 100", "; seed is 0", "; the model is not the same"],
        ),
    ],
)
def test_every_difference_is_named(
    tmp_path: Path, changes: dict[str, Any], messages: list[str]
) -> None:
    open_run(tmp_path)
    with pytest.raises(RunMismatch) as error:
        open_run(tmp_path, **changes)
    for message in (*messages, "--overwrite starts anew"):
        assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_other_versions_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    open_run(tmp_path)
    asked = read_json(tmp_path / "run.json")
    asked["versions"]["torch"] = "0.0.1"
    (tmp_path / "run.json").write_text(json.dumps(asked))
    open_run(tmp_path)
    assert "was begun with torch 0.0.1" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"command": None}, {"command": 3}, {"settings": None}, {"settings": []},
        {"fingerprints": None}, {"parts": None}, {"parts": "4"}, {"parts": True}, {"parts": -1},
        {"parts": 1.5}, {"versions": None}, {"versions": []}, {"resolved": None},
        {"outputs": None}, {"outputs": "parts"}, "{", "[]", '{"command": "generate"}',
        "[" * 900 + "]" * 900, "[" * 100_000 + "]" * 100_000,
    ],
)  # fmt: skip
def test_an_edited_run_json_is_one_line(tmp_path: Path, change: dict[str, Any] | str) -> None:
    open_run(tmp_path)
    file = tmp_path / "run.json"
    text = change if isinstance(change, str) else json.dumps(read_json(file) | change)
    file.write_text(text)
    with pytest.raises(TilthError, match=r"run\.json: .*: --overwrite starts anew") as error:
        open_run(tmp_path)
    assert "\n" not in str(error.value)
    with open_run(tmp_path, overwrite=True) as run:
        run.write_part(0, table(0))


def test_a_run_json_of_another_tool_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"id": 3}')
    (tmp_path / ".tmp-1-x").write_text("mine")
    before = content(tmp_path)
    with pytest.raises(TilthError, match="is not what tilth wrote"):
        open_run(tmp_path)
    assert content(tmp_path) == before


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(InputError, match=r"train\.jsonl: no run\.json: name a run folder"):
        read_run_json(tmp_path / "train.jsonl")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_in_place_of_run_json_is_not_waited_for(tmp_path: Path, overwrite: bool) -> None:
    os.mkfifo(tmp_path / "run.json")
    for read in (lambda: open_run(tmp_path, overwrite=overwrite), lambda: read_run_json(tmp_path)):
        with pytest.raises(InputError, match=r"run\.json: is a pipe"):
            read()
    os.mkfifo(tmp_path / "results.json")
    assert read_results(tmp_path) is None
