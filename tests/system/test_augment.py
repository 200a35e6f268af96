"""`tilth augment`: what it prints and refuses; its options and defaults are those of Python."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import classed
from tests.system.commands import error_of, tilth
from tests.tiny import salads, tiny_bank, write_rows
from tilth.classifiers.load import TaskSources
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.workflows import augment as augmenting
from tilth.workflows import open_bank

HOW: list[object] = ["--count", 200, "--epochs", 2, "--learning-rate", 2e-3, "--bootstrap", 50]


@pytest.fixture(scope="module")
def folder(static: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bank and a task."""
    folder = tmp_path_factory.mktemp("task")
    tiny_bank(folder, salads(1_000), encoder=static, near=False)
    write_rows(folder / "train.jsonl", classed(240))
    write_rows(folder / "test.jsonl", classed(60, seed=5))
    return folder


@pytest.fixture(scope="module")
def words(folder: Path, base: str) -> list[object]:
    """Return a right command, but for --out."""
    return [
        "augment", folder / "train.jsonl", "--bank", folder / "bank", "--teacher", base,
        "--test", folder / "test.jsonl", *HOW,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(folder: Path, words: list[object]) -> dict[str, Any]:
    """Return what a run says that nobody stops."""
    return dict(json.loads(tilth(*words, "--out", folder / "whole", "--json").stdout))


def test_what_is_printed(folder: Path, words: list[object], whole: dict[str, Any]) -> None:
    done = tilth(*words, "--out", folder / "whole")
    assert f"{whole['kept']:,} of 1,000 retrieved sentences kept" in done.stdout
    for name in ("animal", "none", "water", "in training", "labelled as", "Teacher", "accuracy"):
        assert name in done.stdout
    assert f"dropped, not drawn: {1_000 - whole['kept']:,}" in done.stderr
    assert f"next: tilth train classifier {folder / 'whole'}" in done.stderr
    assert (folder / "whole" / "report.html").is_file()
    again = error_of(*words, "--out", folder / "whole", "--min-confidence", 0.9)
    assert "min_confidence is 0.0 in the folder, 0.9 asked" in again


def test_edited_results_are_one_line(
    folder: Path, words: list[object], whole: dict[str, Any], tmp_path: Path
) -> None:
    out = shutil.copytree(folder / "whole", tmp_path / "copy")
    for name in ("classes", "shortfall"):
        write_rows(out / "results.json", [{**whole, name: None}])
        refused = error_of(*words, "--out", out, code=1)
        assert "results.json or a part holds what tilth did not write" in refused


def test_wrong_inputs_are_said_in_a_line(folder: Path, tmp_path: Path) -> None:
    train, bank, out = folder / "train.jsonl", folder / "bank", tmp_path / "run"
    strange = write_rows(tmp_path / "test.jsonl", [{"text": "a dog", "label": "planet"}])
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"text_a": "a", "text_b": "b", "label": "x"}])
    for arguments, said in (
        ([train, "--bank", bank, "--test", train], "every text of the test set is in the training"),
        ([train, "--bank", bank, "--test", strange], "test.jsonl:1: label 'planet' is none"),
        ([pairs, "--bank", bank], "pairs.jsonl: rows are pairs"),
        ([train, "--bank", bank, "--count", 3, "--per-class", 3], "say both how many rows"),
    ):
        assert said in error_of("augment", *arguments, "--out", out, "-q")
        assert not (out / "results.json").exists()
    assert "holds" in error_of("augment", train, "--bank", bank, "--out", folder, "-q")


def test_every_option_arrives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def record(*given: Any, **named: Any) -> Any:
        names = ("sources", "bank", "out", "asked", "teacher")
        seen.update(named, **dict(zip(names, given, strict=True)))
        raise KeyboardInterrupt

    monkeypatch.setattr(augmenting, "augment_to_run", record)
    monkeypatch.setattr(open_bank, "open_named", lambda path, **how: (path, how))
    # None of the files is there.
    monkeypatch.setattr("tilth.cli.app.check_arguments", lambda *_: None)
    words = (
        "augment t.jsonl --bank b --out o --test e --validation v --query clusters --clusters 3 "
        "--teacher x --seeds 2 --multiple 4 --select margin --min-confidence 0.5 --candidates 9 "
        "--min-similarity 0.1 --source s --source r --no-near --index --encoder n --text c "
        "--label l --epochs 5 --batch 6 --learning-rate 0.1 --bootstrap 7 --seed 8 --device cpu "
        "--precision float32 --overwrite --quiet"
    )
    tilth(*words.split(), code=130)
    assert seen == {
        "sources": TaskSources("t.jsonl", "v", "e", text="c", label="l"), "out": Path("o"),
        "bank": (Path("b"), {"encoder": "n", "device": "cpu"}), "bootstrap": 7,
        "teacher": TeacherSettings(
            "x", 2, {"epochs": 5, "batch": 6, "learning_rate": 0.1}, "cpu"
        ),
        "overwrite": True, "quiet": True,
        "asked": Augmentation(
            query="clusters", clusters=3, multiple=4, select="margin", min_confidence=0.5,
            candidates=9, min_similarity=0.1, sources=("s", "r"), near=False, index=True,
            precision="float32", seed=8,
        ),
    }  # fmt: skip
