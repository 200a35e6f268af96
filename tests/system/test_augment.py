"""`tilth augment`: what it refuses, and that its options and defaults are those of Python."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.selftrain.labelled import classed
from tests.system.commands import tilth
from tests.tiny import salads, tiny_bank, tiny_static, write_lines
from tilth.classifiers.load import TaskSources
from tilth.selftrain.settings import Augmentation, TeacherSettings
from tilth.workflows import augment as augmenting
from tilth.workflows import open_bank


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    tiny_static().save(str(folder / "static"))
    tiny_bank(folder, salads(100), encoder=str(folder / "static"))
    write_lines(folder / "train.jsonl", list(map(json.dumps, classed(60))))
    write_lines(folder / "pairs.jsonl", ['{"text_a": "a", "text_b": "b", "label": "x"}'])
    return folder


def failure(*arguments: object) -> str:
    """Return the one line that a command ends with."""
    (line,) = tilth("augment", *arguments, code=2).stderr.splitlines()
    return line


def test_wrong_inputs_are_said_in_a_line(folder: Path, tmp_path: Path) -> None:
    train, bank, out = folder / "train.jsonl", folder / "bank", tmp_path / "run"
    strange = write_lines(tmp_path / "test.jsonl", ['{"text": "a dog", "label": "planet"}'])
    for arguments, said in (
        ([train, "--bank", tmp_path / "none"], "none"),
        ([train, "--bank", bank, "--test", train], "every text of the test set is in the training"),
        ([train, "--bank", bank, "--test", strange], "test.jsonl:1: label 'planet' is none"),
        ([folder / "pairs.jsonl", "--bank", bank], "pairs.jsonl: rows are pairs"),
        ([train, "--bank", bank, "--query", "best"], "query 'best' is unknown"),
        ([train, "--bank", bank, "--count", 3, "--per-class", 3], "say both how many rows"),
        ([tmp_path / "none.jsonl", "--bank", bank], "none.jsonl"),
        ([train, "--bank", bank, "--teacher", tmp_path / "nothing"], "nothing"),
        ([train, "--bank", bank, "--epochs", 0], "epochs is 0"),
        ([train, "--bank", bank, "--seeds", 0, "--count", 3], "seeds is 0"),
        ([train, "--bank", bank, "--bootstrap", -1], "bootstrap"),
    ):
        line = failure(*arguments, "--out", out, "-q")
        assert line.startswith("error: ")
        assert said in line
        assert not (out / "results.json").exists()
    assert "holds" in failure(train, "--bank", bank, "--out", folder, "-q")


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
        "--teacher x --seeds 2 --multiple 4 --select margin --floor 0.5 --candidates 9 "
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
            query="clusters", clusters=3, multiple=4, select="margin", floor=0.5, candidates=9,
            min_similarity=0.1, sources=("s", "r"), near=False, index=True, precision="float32",
            seed=8,
        ),
    }  # fmt: skip
