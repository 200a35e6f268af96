"""`tilth augment` as a user meets it: what is printed, and damaged results."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import classed
from tests.system.commands import error_of, tilth
from tests.tiny import salads, save_encoder, tiny_bank, tiny_static, write_lines

HOW: list[object] = ["--count", 200, "--epochs", 2, "--learning-rate", 2e-3, "--bootstrap", 50]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bank, a base and a task."""
    folder = tmp_path_factory.mktemp("task")
    tiny_static().save(str(folder / "static"))
    tiny_bank(folder, salads(1_000), encoder=str(folder / "static"), near=False)
    save_encoder(folder / "base")
    for name, rows in (("train", classed(240)), ("test", classed(60, seed=5))):
        write_lines(folder / f"{name}.jsonl", list(map(json.dumps, rows)))
    return folder


def asked(folder: Path, out: Path) -> list[object]:
    return [
        "augment", folder / "train.jsonl", "--bank", folder / "bank", "--teacher", folder / "base",
        "--test", folder / "test.jsonl", "--out", out, *HOW,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """Return what a run says that nobody stops."""
    return dict(json.loads(tilth(*asked(folder, folder / "whole"), "--json").stdout))


def test_what_is_printed(folder: Path, whole: dict[str, Any]) -> None:
    done = tilth(*asked(folder, folder / "whole"))
    assert f"{whole['kept']:,} of 1,000 retrieved sentences kept" in done.stdout
    for name in ("animal", "none", "water", "in training", "labelled as", "Teacher", "accuracy"):
        assert name in done.stdout
    assert f"dropped, not drawn: {1_000 - whole['kept']:,}" in done.stderr
    assert f"next: tilth train classifier {folder / 'whole'}" in done.stderr
    assert (folder / "whole" / "report.html").is_file()
    again = tilth(*asked(folder, folder / "whole"), "--floor", 0.9, code=2)
    assert "floor is 0.0 in the folder, 0.9 asked" in again.stderr


def test_edited_results_are_one_line(folder: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    out = shutil.copytree(folder / "whole", tmp_path / "copy")
    for name in ("classes", "shortfall"):
        (out / "results.json").write_text(json.dumps({**whole, name: None}))
        refused = error_of(*asked(folder, out), code=1)
        assert "results.json or a part holds what tilth did not write" in refused
