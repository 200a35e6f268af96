"""`tilth predict` on tiny models: classifiers, taggers and encoders, by their runs and folders."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import load_dataset

from tests.selftrain.labelled import classed, tagged
from tests.system.commands import error_of, tilth
from tests.system.test_evaluate_classify_command import CPU, LABELS, TAGS, save_model
from tests.tiny import graded_pairs, read_json, salads, save_encoder, write_lines, write_rows
from tilth.data.examples import read_examples
from tilth.models.classifier import load_classifier

TEXTS = salads(20)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("predict")
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    graded = graded_pairs(30)
    pairs = [dict(zip(graded, row, strict=True)) for row in zip(*graded.values(), strict=True)]
    return {
        "MODEL": save_model(folder / "model", "class", LABELS, 0),
        "MANY": save_model(folder / "many", "multi", LABELS, 2),
        "TAGGER": save_model(folder / "tagger", "tags", TAGS, 3),
        "ENCODER": save_encoder(folder / "encoder"),
        "TEXTS": folder / "texts.txt",
        "LABELLED": write_rows(folder / "labelled.jsonl", classed(40)),
        "TAGGED": write_rows(folder / "tagged.jsonl", tagged(40)),
        "PAIRS": write_rows(folder / "pairs.jsonl", pairs),
    }


def test_labels_are_written_counted_and_read_again(places: dict[str, Path], tmp_path: Path) -> None:
    words = ["predict", places["MODEL"], places["TEXTS"], *CPU, "-o", tmp_path / "run"]
    told = json.loads(tilth(*words, "--json").stdout)
    model = load_classifier(str(places["MODEL"]), device="cpu")
    given = model.probabilities(TEXTS, precision="float32")
    made = load_dataset(str(tmp_path / "run" / "dataset"), split="train")
    assert made["text"][:] == TEXTS
    assert made["label"][:] == [LABELS[place] for place in given.argmax(1)]
    np.testing.assert_allclose(made["confidence"][:], given.max(1), atol=1e-6)
    assert told["rows"] == 20
    assert sum(one["rows"] for one in told["labels"].values()) == 20
    shown = tilth(*words)
    assert "mean confidence" in shown.stdout
    few = save_model(tmp_path / "few", "multi", LABELS, 4)  # no label is likely to it
    said = tilth("predict", few, places["TEXTS"], *CPU, "-o", tmp_path / "many").stderr
    assert "20 of them have no label: none is likelier than not" in said
    assert f"data set: {tmp_path / 'run' / 'dataset'}" in shown.stderr
    assert "the inputs are not the same" in error_of(
        "predict", places["MODEL"], places["LABELLED"], *CPU, "-o", tmp_path / "run"
    )


@pytest.mark.usefixtures("quick_baselines")
def test_runs_of_trainings_predict(places: dict[str, Path], tmp_path: Path) -> None:
    how = ["--base", places["ENCODER"], "--device", "cpu", "--quiet", "--epochs", 1, "-o"]
    jobs = {"classifier": "LABELLED", "tagger": "TAGGED", "encoder": "PAIRS"}
    adds = {"classifier": "label", "tagger": "spans", "encoder": "embedding"}
    for job, data in jobs.items():
        tilth("train", job, places[data], *how, tmp_path / job)
        out = tmp_path / f"{job}-out"
        told = tilth("predict", tmp_path / job, places["TEXTS"], *CPU, "--json", "-o", out)
        assert json.loads(told.stdout)["rows"] == 20
        made = load_dataset(str(out / "dataset"), split="train")
        assert adds[job] in made.column_names
        assert len(made) == 20


def test_the_columns_of_the_training_are_read(places: dict[str, Path], tmp_path: Path) -> None:
    rows = [
        {"title": f"no {n}", "body": f"the {word} {n}", "kind": word}
        for n in range(10)
        for word in ("sea", "dog")
    ]
    data, model = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "model"
    how = ["--base", places["ENCODER"], "--device", "cpu", "--quiet", "--epochs", 1, "-o", model]
    tilth("train", "classifier", data, "--text", "body", "--label", "kind", *how)
    small = tmp_path / "small"
    tilth("export", model, "--texts", data, "--precision", "float32", "-o", small)
    for number, one in enumerate((model, small, model / "model")):
        tilth("predict", one, data, *CPU, "-o", tmp_path / str(number))
        told = tilth("evaluate", "classify", one, "--data", data, *CPU, "--json")
        assert json.loads(told.stdout)["n"] == 20
    plain = write_lines(tmp_path / "plain.txt", ["the sea"])
    tilth("predict", model, plain, *CPU, "-o", tmp_path / "plain")
    tilth("predict", model, data, *CPU, "--text", "title", "-o", tmp_path / "title")
    gaps = write_rows(tmp_path / "gaps.jsonl", [{"body": text} for text in (*TEXTS, "")])
    tilth("predict", places["MODEL"], gaps, *CPU, "--text", "body", "-o", tmp_path / "gaps")
    assert len(read_examples(tmp_path / "gaps", text="body")) == len(TEXTS)
    late = write_rows(tmp_path / "late.jsonl", [{"text": "x"}] * 200 + [{"body": "the sea"}])
    tilth("predict", model, late, *CPU, "--text", "body", "-o", tmp_path / "late")
    found = [read_json(tmp_path / name / "run.json")["settings"]["text"] for name in ("0", "title")]
    assert found == [["body"], ["title"]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["MODEL", "TEXTS", "--column", "body"], "no column 'body': there are text"),
        (["LABELLED", "TEXTS"], "is a file, where a model is asked for"),
        (["ENCODER", "TEXTS", "--probabilities"], "gives vectors"),
        (["MODEL", "TEXTS", "--encoder", "ENCODER"], "encoder is for a task file"),
        (["MODEL", "TEXTS", "-o", "MODEL"], "holds"),
        (["TAGGER", "PAIRS"], "hold pairs"),
    ],
)
def test_wrong_arguments_are_one_line(
    places: dict[str, Path], tmp_path: Path, words: list[str], said: str
) -> None:
    out = [] if "-o" in words else ["-o", tmp_path / "run"]
    assert said in error_of("predict", *(places.get(word, word) for word in words), *CPU, *out)
