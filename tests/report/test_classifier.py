import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.report.page import Page
from tests.system.commands import error_of, tilth
from tests.tiny import read_json
from tilth.errors import InputError
from tilth.report.classifier import MOST_CONFUSED, write_classifier_report
from tilth.report.generation import write_report
from tilth.report.systems import comparison
from tilth.runs import Run


def scores(accuracy: float, names: tuple[str, ...] = ("no", "yes")) -> dict[str, Any]:
    """Return what `classify_scores` gives, made up."""
    figure = {"value": accuracy, "low": accuracy - 5, "high": accuracy + 5}
    one = {"precision": 50.0, "recall": None, "f1": accuracy, "n": 40, "predicted": 41}
    bin_ = {"low": 0.8, "high": 1.0, "n": 80, "probability": 0.93, "right": 0.7}
    counts = [[30 if row == column else 10 for column in range(len(names))]
              for row in range(len(names))]  # fmt: skip
    return {
        "n": 80, "accuracy": figure, "macro_f1": figure, "classes": dict.fromkeys(names, one),
        "confusion": counts, "calibration": {"error": 0.23, "bins": [bin_]},
    }  # fmt: skip


def results(word: str = "", *, names: tuple[str, ...] = ("no", "yes")) -> dict[str, Any]:
    """Return the results of a training on a run, made up."""
    systems = [
        {"name": name, "base": f"tiny{word}", "scores": scores(value, names)}
        for name, value in (("retrieved", 70.0), ("labelled rows alone", 60.0), ("teacher", 80.0))
    ]
    gain = {name: {"value": 10.0, "low": 2.0, "high": 18.0, "p": 0.00002}
            for name in ("accuracy", "macro_f1")}  # fmt: skip
    loss = {name: {"value": -10.0, "low": -18.0, "high": -2.0, "p": 0.00002} for name in gain}
    changed = {"text": f"A dog.{word}", "right": "yes", "before": "no", "now": "yes"}
    wrong = {"text": f"A cat.{word}", "right": "yes", "answered": "no", "probability": 0.99}
    seeds = [{"seed": seed, "step": 20, "score": 60.0 + seed} for seed in range(2)]
    return {
        "measure": "accuracy", "best": seeds[1], "seeds": seeds, "source": f"runs/x{word}",
        "start": "1", "base": f"tiny{word}", "loss": "kl", "with_labelled": False,
        "baseline": {"epochs": 50.0, "evaluate_every": 3},
        "rows": {"retrieved": 300, "left out": 2, "labelled": 18, "validation": 9},
        "tested": {
            "on": "test", "data": f"test.jsonl{word}", "n": 80, "systems": systems,
            "differences": {"labelled rows alone": gain, "teacher": loss},
            "wrong": [wrong], "changed": {"mended": [changed], "spoilt": []},
        },
        "notes": [f"Take care.{word}"],
    }  # fmt: skip


def write_run(
    folder: Path, found: dict[str, Any] | None, *, command: str = "train classifier", word: str = ""
) -> Path:
    """Write a training as its folder holds it."""
    settings = {"base": f"tiny{word}", "labels": ["no", "yes"], "seeds": 2, "loss": "kl"}
    run = Run.open(folder, command=command, settings=settings, fingerprints={}, parts=2)
    with run:
        for seed in range(2):
            curve = {"step": [10, 20], "loss": [0.7, 0.5], "score": [50.0, 60.0 + seed]}
            run.write_part(seed, pa.table(curve))
        if found is not None:
            run.write_file("results.json", json.dumps(found))
    return folder


def page_of(folder: Path) -> Page:
    return Page(write_classifier_report(folder).read_text(encoding="utf-8"))


def test_table_reads_from_what_was_trained_to_gain_and_loss() -> None:
    head, lines, _ = comparison(results())
    assert head == ["x 100", "accuracy", "macro F1"]
    assert [line[0] for line in lines] == [
        "retrieved", "labelled rows alone", "teacher", "gain over labelled rows alone",
        "loss to teacher",
    ]  # fmt: skip
    assert lines[1][1] == ("60.0", "55.0 to 65.0")
    assert lines[-2][1] == ("+10.0", "+2.0 to +18.0")
    assert lines[-1][1] == ("-10.0", "-18.0 to -2.0")


def test_table_without_intervals_or_figures() -> None:
    found = results()
    for system in found["tested"]["systems"]:
        system["scores"]["accuracy"] = {"value": None, "low": None, "high": None}
    assert comparison(found)[1][0][1] == ("\u2013", "")
    assert comparison({**found, "tested": None}) == ([], [], {})
    del found["tested"]["differences"]["labelled rows alone"]
    assert not any("alone" in line[0] for line in comparison(found)[1][3:])


def test_figures_are_those_of_the_kind() -> None:
    found = results()
    for system in found["tested"]["systems"]:
        system["scores"] = {name: {"value": 1.0, "low": 0.0, "high": 2.0}
                            for name in ("f1", "precision", "recall", "accuracy")}  # fmt: skip
    del found["tested"]["differences"]
    assert comparison(found)[0][1:] == ["span F1", "precision", "recall"]


def test_page_shows_what_it_promises(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path, results()))
    for said in (
        "Classifier trained on runs/x", "300 retrieved sentences", "labelled rows alone",
        "2 that stand in the test or validation set were left out", "+10.0",
        "95%: +2.0 to +18.0, p < 0.0001",
        "on test.jsonl, 80 rows; base tiny, teacher tiny", "Take care.", "A dog.", "A cat.",
        "Calibration error 0.230", "93.0%", "step 20 of seed 1", "seed 0", "50 epochs",
        "Rows of each right class by the answer: retrieved",
    ):  # fmt: skip
        assert page.shows(said), said


def test_tagger_has_what_it_missed_and_invented(tmp_path: Path) -> None:
    found = results()
    for system in found["tested"]["systems"]:
        given = system["scores"]
        system["scores"] = {
            **dict.fromkeys(("f1", "precision", "recall", "accuracy"), given["accuracy"]),
            "classes": given["classes"], "calibration": given["calibration"],
        }  # fmt: skip
    found["tested"]["differences"] = {}
    page = page_of(write_run(tmp_path, found, command="train tagger"))
    assert page.shows("Tagger trained on")
    assert page.shows("missed")
    assert page.shows("span F1")


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    found = {name: results()[name] for name in ("measure", "best", "seeds")}
    page = page_of(write_run(tmp_path, {**found, "source": "train.jsonl", "notes": []}))
    assert page.shows("Measured on validation rows alone")
    found["best"] = {**found["best"], "score": None}
    page = page_of(write_run(tmp_path / "none", {**found, "source": "train.jsonl", "notes": []}))
    assert page.shows("Nothing was measured: there are neither test nor validation rows.")
    assert page.shows("Classifier trained on train.jsonl")
    assert not page.shows("Class by class")


def test_many_classes_have_no_confusion(tmp_path: Path) -> None:
    names = tuple(f"class {place}" for place in range(MOST_CONFUSED + 1))
    page = page_of(write_run(tmp_path, results(names=names)))
    assert not page.shows("Rows of each right class")
    assert page.shows(f"The other {MOST_CONFUSED + 1 - 12} classes")


def test_report_command_writes_this_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", results())
    page = write_report(folder).read_bytes()
    with pytest.raises(InputError, match="--encoder counts for generate runs only"):
        write_report(folder, encoder="starter-encoder")
    (folder / "report.html").unlink()
    done = tilth("report", folder)
    assert page == (folder / "report.html").read_bytes()
    assert "+2.0 to +18.0" in done.stdout
    assert "Take care." in done.stderr
    assert "kept: seed 1, step 20, validation accuracy 61.0" in done.stderr
    assert json.loads(tilth("report", folder, "--json").stdout) == results()


def test_an_edited_run_is_refused_in_a_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", results())
    asked = read_json(folder / "run.json")
    edits: list[tuple[str, dict[str, Any]]] = [
        ("run.json", {**asked, "settings": {}}),
        ("results.json", {**results(), "tested": {"systems": None}}),
        ("results.json", {**results(), "seeds": [1]}),
    ]
    for name, edited in edits:
        before = (folder / name).read_text()
        (folder / name).write_text(json.dumps(edited))
        line = error_of("report", folder, code=1)
        assert f"{folder}: run.json, results.json or a part holds" in line
        (folder / name).write_text(before)


def test_what_is_no_finished_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not finished"):
        write_classifier_report(write_run(tmp_path / "begun", None))
    write_run(tmp_path / "broken", None)
    for damaged in ("{", "[]", "[" * 10**5, '{"measure": null}'):
        (tmp_path / "broken" / "results.json").write_text(damaged)
        with pytest.raises(InputError, match="is damaged"):
            write_classifier_report(tmp_path / "broken")
    Run.open(tmp_path / "other", command="train encoder", settings={}, fingerprints={}, parts=1)
    with pytest.raises(InputError, match="holds a run of `tilth train encoder`"):
        write_classifier_report(tmp_path / "other")
