"""`tilth grow` as a user meets it: the plan, what is printed, and that the result labels texts."""

import json
import shutil
from pathlib import Path

import pytest

from tests.selftrain.labelled import classed
from tests.system.commands import error_of, tilth
from tests.tiny import graded_pairs, salads, write_lines, write_rows
from tilth.runs import Run


@pytest.fixture
def asked(
    tmp_path: Path, base: str, quick_baselines: None, monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """Return the words of a small run."""
    monkeypatch.setattr("tilth.workflows.grow.sources._FEWEST", 20)
    monkeypatch.setattr("tilth.classifiers.settings._STEPS", 4)
    monkeypatch.setattr("tilth.encoders.label_contrast._STEPS", 2)
    train = write_rows(tmp_path / "train.jsonl", classed(12))
    test = write_rows(tmp_path / "test.jsonl", classed(9, seed=5))
    raw = write_lines(tmp_path / "raw.txt", salads(80))
    return [
        "grow", "--train", train, "--raw", raw, "--test", test, "--base", base, "--folds", 2,
        "--repeats", 1, "--no-paraphrase", "--bootstrap", 20, "--device", "cpu", "--quiet",
        "--out", tmp_path / "out",
    ]  # fmt: skip


def test_a_plan_tries_nothing(asked: list[object], tmp_path: Path) -> None:
    done = tilth(*asked, "--plan")
    for words in ("retrieved", "SetFit", "search round 1", "one training"):
        assert words in done.stdout
    assert "shortest search" in done.stderr
    assert "beyond the budget: about" in done.stderr
    assert not (tmp_path / "out").exists()
    plan = json.loads(tilth(*asked, "--plan", "--json").stdout)
    assert plan["seconds"] > plan["least"] > 0
    assert plan["testing"] > 0
    assert plan["too_short"] is None
    assert "give --budget" in tilth(*asked, "--plan", "--budget", "1s").stderr
    assert "too short" in error_of(*asked, "--budget", "1s")


@pytest.mark.parametrize("task", ["classification", "similarity"])
def test_a_base_in_the_run_folder_is_not_overwritten(
    asked: list[object], tmp_path: Path, base: str, task: str
) -> None:
    model = tmp_path / "out" / "model"
    shutil.copytree(base, model)
    (tmp_path / "out" / "run.json").write_text(json.dumps({"command": "grow"}))
    words = [*asked, "--task", task, "--base", model, "--overwrite"]
    assert "itself: choose another --out" in error_of(*words)
    assert model.is_dir()


def test_a_report_of_a_run_that_has_kept_nothing_says_so(tmp_path: Path) -> None:
    Run.open(tmp_path / "out", command="grow", settings={}, fingerprints={}, parts=1)
    said = error_of("report", tmp_path / "out")
    assert "the run is not finished" in said
    assert "the same command goes on where it stopped" in said


def test_the_result_labels_texts(asked: list[object], tmp_path: Path) -> None:
    done = tilth(*asked)
    for words in ("fine-tuned on the labelled rows", "Test, 9 rows, measured once"):
        assert words in done.stdout
    assert "kept: " in done.stderr
    again = tilth(*asked)
    assert again.stdout == done.stdout
    found = json.loads(tilth(*asked, "--json").stdout)
    assert found["ended"]
    labelled = tilth(
        "predict", tmp_path / "out", tmp_path / "raw.txt", "--device", "cpu", "--json", "--out",
        tmp_path / "labels",
    )  # fmt: skip
    assert set(json.loads(labelled.stdout)["labels"]) <= {"animal", "water", "none"}
    assert "report:" in tilth("report", tmp_path / "out").stderr


def test_an_encoder_is_grown_on_graded_pairs(tmp_path: Path, base: str) -> None:
    train = write_rows(tmp_path / "train.jsonl", graded_pairs(36))
    test = write_rows(tmp_path / "test.jsonl", graded_pairs(21, seed=5))
    words = [
        "grow", "--task", "similarity", "--train", train, "--test", test, "--base", base, "--folds",
        2, "--repeats", 1, "--bootstrap", 20, "--device", "cpu", "--quiet", "--out",
        tmp_path / "out",
    ]  # fmt: skip
    assert "labelled pairs" in tilth(*words, "--plan").stdout
    done = tilth(*words)
    for said in ("Spearman x 100 on held-out rows", "Test, 21 rows, measured once"):
        assert said in done.stdout
    assert "kept: " in done.stderr
    assert tilth(*words).stdout == done.stdout
    tilth(
        "predict", tmp_path / "out", write_lines(tmp_path / "texts.txt", salads(5)), "--device",
        "cpu", "--out", tmp_path / "vectors",
    )  # fmt: skip
    assert (tmp_path / "vectors").is_dir()
    assert "report:" in tilth("report", tmp_path / "out").stderr
    assert "unknown: use classification or similarity" in error_of(
        "grow", "--task", "ranking", "--out", tmp_path / "x"
    )
