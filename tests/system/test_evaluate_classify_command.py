"""`tilth evaluate classify` and `tilth evaluate tag` on tiny models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.system.commands import error_of, tilth
from tests.tiny import WORDS, read_json, salads, save_encoder, write_rows
from tilth.models.classifier import load_classifier, new_classifier

LABELS = ["calm", "merry", "grim"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CPU = ["--device", "cpu", "--precision", "float32", "--quiet"]


def save_model(folder: Path, kind: Any, labels: list[str], seed: int) -> Path:
    """Save a tiny BERT with a head whose answers differ from text to text."""
    base = save_encoder(folder.with_name(f"{folder.name}-base"), seed=seed)
    made = new_classifier(str(base), kind=kind, labels=labels, seed=seed, device="cpu")
    head: Any = made.model.classifier
    torch.nn.init.normal_(head.weight, std=3.0, generator=torch.Generator().manual_seed(seed))
    made.save(folder)
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("classify")
    random = np.random.default_rng(0)
    texts = salads(60)
    classes = [{"text": text, "label": LABELS[n % 3]} for n, text in enumerate(texts)]
    several = [{"text": text, "labels": LABELS[: n % 3]} for n, text in enumerate(texts)]
    unknown = {"text": "a", "label": "wry"}
    tagged = [
        {"tokens": (words := random.choice(WORDS, 6).tolist()),
         "tags": ["B-PER", "I-PER", "O", "O", "B-LOC", "O"][: len(words)]}
        for _ in range(40)
    ]  # fmt: skip
    return {
        "MODEL": save_model(folder / "model", "class", LABELS, 0),
        "OTHER": save_model(folder / "other", "class", LABELS[::-1], 1),
        "MANY": save_model(folder / "many", "multi", LABELS, 2),
        "TAGGER": save_model(folder / "tagger", "tags", TAGS, 3),
        "OTHER_TAGGER": save_model(folder / "other-tagger", "tags", TAGS, 4),
        "BASE": folder / "model-base",
        "CLASSES": write_rows(folder / "classes.jsonl", classes),
        "SEVERAL": write_rows(folder / "several.jsonl", several),
        "TAGGED": write_rows(folder / "tagged.jsonl", tagged),
        "UNKNOWN": write_rows(folder / "unknown.jsonl", [*classes[:4], unknown]),
    }


def test_a_classifier_is_measured_against_another(places: dict[str, Path], tmp_path: Path) -> None:
    asked = ["evaluate", "classify", places["MODEL"], "-d", places["CLASSES"], *CPU]
    out = tmp_path / "run"
    told = tilth(*asked, "--against", places["OTHER"], "--json", "-o", out)
    scores = json.loads(told.stdout)
    model = load_classifier(str(places["MODEL"]), device="cpu")
    rows = [json.loads(line) for line in places["CLASSES"].read_text().splitlines()]
    answers = model.probabilities([row["text"] for row in rows], precision="float32").argmax(1)
    right = [LABELS[place] == row["label"] for place, row in zip(answers, rows, strict=True)]
    assert scores["accuracy"]["value"] == pytest.approx(100 * np.mean(right))
    assert scores["accuracy"]["low"] < scores["accuracy"]["value"] < scores["accuracy"]["high"]
    assert np.sum(scores["confusion"]) == 60
    against = scores["against"]
    alone = json.loads(
        tilth("evaluate", "classify", places["OTHER"], "-d", places["CLASSES"], *CPU,
              "--json").stdout
    )  # fmt: skip
    assert against["scores"] == alone
    gap = scores["macro_f1"]["value"] - alone["macro_f1"]["value"]
    assert against["difference"]["macro_f1"]["value"] == pytest.approx(gap)
    assert read_json(out / "results.json") == scores

    shown = tilth(*asked, "--against", places["OTHER"], "--wrong", 2, "-o", out)
    assert f"{scores['accuracy']['value']:.1f}" in shown.stdout
    assert "macro F1" in shown.stdout
    (head,) = (line for line in shown.stdout.splitlines() if "less second" in line)
    assert "first less second" in head
    assert len(head) <= 80
    assert "Most confidently wrong" in shown.stdout
    assert "calibration error" in shown.stderr
    assert str(out / "results.json") in shown.stderr
    plain = tilth(*asked, "--bootstrap", 0)
    assert "first less second" not in plain.stdout
    assert " to " not in plain.stdout


def test_several_labels_a_row(places: dict[str, Path]) -> None:
    told = tilth(
        "evaluate", "classify", places["MANY"], "-d", places["SEVERAL"], "--wrong", 1, *CPU
    )
    assert "micro F1" in told.stdout
    assert "Most confidently wrong" in told.stdout


def test_a_tagger_is_measured_against_another(places: dict[str, Path], tmp_path: Path) -> None:
    asked = ["evaluate", "tag", places["TAGGER"], "-d", places["TAGGED"], *CPU]
    asked += ["--against", places["OTHER_TAGGER"], "-o", tmp_path / "run"]
    scores = json.loads(tilth(*asked, "--json").stdout)
    assert set(scores["classes"]) == {"PER", "LOC"}
    assert scores["classes"]["PER"]["n"] == 40
    assert scores["tokens"] == 240
    assert set(scores["against"]["difference"]) == {"f1", "precision", "recall", "accuracy"}
    assert read_json(tmp_path / "run" / "results.json") == scores
    shown = tilth(*asked, "--wrong", 2)
    (head,) = (line for line in shown.stdout.splitlines() if "probability" in line)
    assert [word.strip(" │┃") for word in head.split("┃") if word] == [
        "text", "missed", "invented", "probability"
    ]  # fmt: skip
    for name in ("span F1", "precision", "recall", "accuracy"):
        assert name in shown.stdout
    assert "LOC" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["classify", "BASE", "-d", "CLASSES"], "has no classifying head"),
        (["classify", "MODEL", "-d", "UNKNOWN"], "unknown.jsonl:5: label 'wry' is none"),
        (["classify", "MODEL", "-d", "CLASSES", "--label", "mood"], "no column 'mood'"),
        (["classify", "MODEL", "-d", "CLASSES", "--text", "body"], "no column 'body'"),
        (["tag", "MODEL", "-d", "TAGGED"], "tilth evaluate classify"),
        (["classify", "MODEL", "-d", "CLASSES", "-o", "MODEL", "--overwrite"], "another --out"),
    ],
)
def test_wrong_arguments_are_one_line(
    places: dict[str, Path], arguments: list[str], said: str
) -> None:
    assert said in error_of("evaluate", *(places.get(word, word) for word in arguments), *CPU)
    assert (places["MODEL"] / "model.safetensors").exists()
