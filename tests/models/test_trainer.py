"""Which checkpoint a training goes on from, and which folders count as whole."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tilth.models.trainer import (
    SUMS,
    checkpoint,
    is_whole,
    keep_only,
    last_checkpoint,
    save_whole,
)


def write(folder: Path, best: int | None = None) -> None:
    (folder / "head").mkdir(parents=True)
    save_file({"weight": torch.ones(2)}, folder / "head" / "model.safetensors")
    (folder / "trainer_state.json").write_text(json.dumps({"best_global_step": best}))


def made(folder: Path, step: int, *, best: int | None = None) -> Path:
    place = checkpoint(folder, step)
    save_whole(folder / "unfinished", place, lambda path: write(path, best))
    return place


def spoil(folder: Path, how: str) -> None:
    weights = folder / "head" / "model.safetensors"
    if how == "gone":
        weights.unlink()
    elif how == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif how == "changed":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    else:
        (folder / SUMS).write_text(how)


SPOILT = ["gone", "cut", "changed", "{", "[]", "null"]


def test_the_last_in_steps_is_taken_not_the_last_in_names(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    made(tmp_path, 5)
    last = made(tmp_path, 10, best=5)
    assert last_checkpoint(tmp_path) == last


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_checkpoint_is_moved_aside_and_the_one_before_taken(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole, last = made(tmp_path, 5), made(tmp_path, 10)
    spoil(last, how)
    assert last_checkpoint(tmp_path) == whole
    assert f"{last}: files are missing or damaged: moved to checkpoint-10.damaged" in caplog.text
    assert (tmp_path / "checkpoint-10.damaged").is_dir()
    spoil(whole, how)
    assert last_checkpoint(tmp_path) is None


def test_a_checkpoint_whose_best_is_damaged_is_none(tmp_path: Path) -> None:
    first = made(tmp_path, 1)
    best = made(tmp_path, 5)
    made(tmp_path, 10, best=5)
    spoil(best, "cut")
    assert last_checkpoint(tmp_path) == first


def test_a_checkpoint_without_checksums_was_not_finished(tmp_path: Path) -> None:
    write(checkpoint(tmp_path, 5))
    assert last_checkpoint(tmp_path) is None


def test_only_those_asked_for_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        made(tmp_path, step)
    keep_only(tmp_path, {5, 15, None})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-15", "checkpoint-5"]


@pytest.mark.parametrize("how", SPOILT)
def test_a_model_is_whole_while_its_files_are_unchanged(tmp_path: Path, how: str) -> None:
    model = made(tmp_path, 1)
    (model / "notes.txt").write_text("mine")
    assert is_whole(model)
    spoil(model, how)
    assert not is_whole(model)


def test_a_model_saved_without_checksums_is_not_whole(tmp_path: Path) -> None:
    assert not is_whole(tmp_path / "model")
    write(tmp_path / "model")
    assert not is_whole(tmp_path / "model")
    (tmp_path / "file").touch()
    assert not is_whole(tmp_path / "file")
