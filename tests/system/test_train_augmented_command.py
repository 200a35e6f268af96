"""`tilth train classifier RUN` and `tagger RUN` on augmented sets of tiny models."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.report.augmented_run import ROWS, write_run
from tests.system.commands import tilth
from tests.tiny import write_rows
from tilth.runs import Run
from tilth.workflows.train_classifier import train_classifier, train_tagger

SETTINGS = [
    "--epochs", "2", "--batch", "32", "--learning-rate", "3e-3", "--precision", "float32",
    "--device", "cpu", "--bootstrap", "50",
]  # fmt: skip


def augmented(folder: Path, base: str, kind: str = "class") -> Path:
    """Write a run and train its teacher, as if from a larger base."""
    test = folder / "test.jsonl"
    test.parent.mkdir(parents=True, exist_ok=True)
    write_rows(test, ROWS[kind](45, seed=9))
    run = write_run(folder / "run", kind, rows=60, test=str(test), teacher="larger")
    train = train_tagger if kind == "tags" else train_classifier
    train(ROWS[kind](30, seed=5), str(base), run / "teacher", epochs=1, batch=32, quiet=True)
    return run


@pytest.mark.usefixtures("quick_baselines")
@pytest.mark.parametrize(("kind", "what"), [("class", "classifier"), ("tags", "tagger")])
def test_one_table_says_what_was_gained(base: str, tmp_path: Path, kind: str, what: str) -> None:
    run = augmented(tmp_path, base, kind)
    said = tilth("train", what, run, "-b", base, *SETTINGS)
    for name in ("labelled rows alone", "retrieved", "teacher", "95% interval", "base"):
        assert name in said.stdout
    assert f"{what}: {run}/classifier/model" in "".join(said.stderr.split("\n"))
    assert (run / "classifier" / "report.html").is_file()
    again = tilth("train", what, run, "-b", base, *SETTINGS, "--json")
    found = json.loads(again.stdout)
    assert found["model"] == str(run / "classifier" / "model")
    assert found["tested"]["n"] == 45
    other = {"classifier": "tagger", "tagger": "classifier"}[what]
    refused = tilth("train", other, run, "-b", base, code=2).stderr
    assert f"use tilth train {what}" in " ".join(refused.split())
    (run / "report.html").unlink()
    assert "labelled rows alone" in tilth("report", run).stdout
    assert "labelled rows alone" in tilth("report", run / "classifier").stdout
    assert (run / "report.html").is_file()


def test_options_reach_the_training(base: str, tmp_path: Path) -> None:
    run = augmented(tmp_path, base)
    asked = ["train", "classifier", run, "-b", base, *SETTINGS, "--json", "--no-baseline"]
    found = json.loads(tilth(*asked, "--retrieved-only", "-o", tmp_path / "only").stdout)
    assert not found["with_labelled"]
    assert found["baseline"] is None
    test = tmp_path / "other.jsonl"
    write_rows(test, ROWS["class"](12, seed=8))
    found = json.loads(tilth(*asked, "--loss", "hard", "--test", test, "-o", run / "hard").stdout)
    assert (found["loss"], found["tested"]["n"]) == ("hard", 12)
    assert "labelled rows alone" not in (run / "hard" / "report.html").read_text()
    assert "hard: on" in (run / "report.html").read_text()


@pytest.mark.usefixtures("quick_baselines")
def test_a_stopped_baseline_goes_on_with_the_same_command(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = augmented(tmp_path, base)
    asked = ["train", "classifier", run, "-b", base, *SETTINGS, "--evaluate-every", "4", "--json"]
    whole = json.loads(tilth(*asked, "-o", tmp_path / "whole").stdout)
    out = tmp_path / "cut"
    write = Run.write_part

    def stop(run: Run, index: int, table: pa.Table) -> None:
        if run.path == out / "baseline":
            raise KeyboardInterrupt
        write(run, index, table)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_part", stop)
        tilth(*asked, "-o", out, code=130)
    assert (out / "model").exists()
    assert not (out / "baseline" / "model").exists()
    again = json.loads(tilth(*asked, "-o", out).stdout)
    assert {**again, "model": whole["model"]} == whole
