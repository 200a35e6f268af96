"""`tilth augment` as a user meets it: killed at each step, and what is printed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import classed
from tests.system.commands import error_of, stopped, tilth
from tests.tiny import salads, save_encoder, tiny_bank, tiny_static, write_lines
from tilth.data.stored import load_folder

HOW: list[object] = ["--count", 6_000, "--epochs", 2, "--learning-rate", 2e-3, "--bootstrap", 50]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bank, a base and a task."""
    folder = tmp_path_factory.mktemp("task")
    tiny_static().save(str(folder / "static"))
    tiny_bank(folder, salads(20_000), encoder=str(folder / "static"), near=False)
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


@pytest.mark.parametrize(
    ("step", "stop", "code"),
    [
        ("teacher/checkpoints/*", signal.SIGKILL, -signal.SIGKILL),
        ("hits/parts/part-00001.parquet", signal.SIGKILL, -signal.SIGKILL),
        ("labels/parts/part-00001.parquet", signal.SIGINT, 130),
    ],
)
def test_a_stopped_command_goes_on(
    folder: Path, whole: dict[str, Any], tmp_path: Path, step: str, stop: signal.Signals, code: int
) -> None:
    out = tmp_path / "cut"
    said = stopped(
        *asked(folder, out), "-q", stop=stop, code=code, when=lambda: bool(list(out.glob(step)))
    )
    if code == 130:
        assert "the same command goes on" in said
    assert not (out / "results.json").exists()
    found = json.loads(tilth(*asked(folder, out), "-q", "--json").stdout)
    assert found == whole
    for config in ("default", "dropped", "labelled", "validation"):
        one, two = (load_folder(run, config=config) for run in (folder / "whole", out))
        assert one[:] == two[:]


def test_what_is_printed(folder: Path, whole: dict[str, Any]) -> None:
    done = tilth(*asked(folder, folder / "whole"))
    assert f"{whole['kept']:,} of 12,000 retrieved sentences kept" in done.stdout
    for name in ("animal", "none", "water", "in training", "labelled as", "Teacher", "accuracy"):
        assert name in done.stdout
    assert f"dropped, not drawn: {12_000 - whole['kept']:,}" in done.stderr
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
