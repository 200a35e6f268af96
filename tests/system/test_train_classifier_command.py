"""`tilth train classifier`, `tagger` and `adapt` on tiny models and sets."""

import json
from pathlib import Path

from tests.selftrain.labelled import classed, tagged
from tests.system.commands import tilth
from tests.tiny import salads, write_lines, write_rows
from tilth.models.classifier import load_classifier

SETTINGS = [
    "--learning-rate", "3e-3", "--evaluate-every", "5", "--precision", "float32", "--device",
    "cpu",
]  # fmt: skip


def test_a_classifier_and_its_scores(base: str, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", classed(90))
    out = tmp_path / "run"
    asked = ["train", "classifier", rows, "-o", out, "-b", base, "--epochs", 1, *SETTINGS]
    asked.append("--no-baseline")  # training SetFit takes minutes
    said = tilth(*asked)
    assert "validation accuracy" in said.stderr
    assert load_classifier(str(out)).labels == ["animal", "none", "water"]
    found = json.loads(tilth(*asked, "--json").stdout)
    assert found["model"] == str(out / "model")
    assert [one["seed"] for one in found["seeds"]] == [0]
    (out / "results.json").write_text(json.dumps({**found, "best": {}}))
    assert json.loads(tilth(*asked, "--json").stdout) == found
    refused = tilth(*asked, "--loss", "hard", code=2).stderr
    assert "loss is" in refused


def test_an_adapted_base_and_a_tagger(base: str, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "t.txt", salads(40))
    adapted = tmp_path / "adapted"
    said = tilth("train", "adapt", texts, "-o", adapted, "-b", base, "--device", "cpu")
    assert "at last" in said.stderr
    rows = write_rows(tmp_path / "rows.jsonl", tagged(60))
    out = tmp_path / "run"
    asked = ["train", "tagger", rows, "-o", out, "-b", adapted, "--epochs", 1, *SETTINGS]
    assert "validation span F1" in tilth(*asked).stderr
    assert load_classifier(str(out)).kind == "tags"
    assert "use train tagger" in tilth(
        "train", "classifier", rows, "-o", tmp_path / "other", "-b", base, code=2
    ).stderr  # fmt: skip
