"""Which checkpoint a training goes on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.models.training import last_checkpoint

STATE = '{"global_step": 1, "log_history": [{"loss": 0.5}]}\n'


def checkpoint(folder: Path, step: int, state: str | None) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir()
    if state is not None:
        (made / "trainer_state.json").write_text(state)
    return made


def test_the_last_in_steps_is_taken_not_the_last_in_names(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, STATE)
    last = checkpoint(tmp_path, 10, STATE)
    assert last_checkpoint(tmp_path) == last


@pytest.mark.parametrize("state", [None, "", STATE[:20], STATE[:-2]])
def test_a_checkpoint_whose_writing_was_stopped_is_none(tmp_path: Path, state: str | None) -> None:
    whole = checkpoint(tmp_path, 5, STATE)
    checkpoint(tmp_path, 10, state)
    assert last_checkpoint(tmp_path) == whole


def test_where_no_checkpoint_is_whole_there_is_none(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 5, "")
    assert last_checkpoint(tmp_path) is None
