"""Exported models answer as those they were made of, and what is refused."""

from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

import tilth
from tests.tiny import read_json, salads, save_model, word_tokenizer, write_lines
from tests.tiny.models import BERT_SHAPE
from tilth.errors import InputError, TilthError
from tilth.models import onnx
from tilth.models.classifier import Kind, load_classifier, new_classifier
from tilth.workflows import export as exporting
from tilth.workflows.export import export
from tilth.workflows.predict import predict

LABELS = {"class": ["dry", "wet", "cold"], "multi": ["dry", "wet"], "tags": ["O", "B-PER", "I-PER"]}
TEXTS = salads(40, seed=3)
ROWS = [{"text": text} for text in TEXTS]


def trained(folder: Path, kind: Kind, base: str | Path) -> str:
    """Save a model whose answers differ from text to text."""
    made = new_classifier(str(base), kind=kind, labels=LABELS[kind], device="cpu")
    with torch.no_grad():
        for name, weight in made.model.named_parameters():
            if name in made.fresh:
                weight.mul_(200)
    made.save(folder)
    return str(folder)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {**BERT_SHAPE, "num_hidden_layers": 1}  # an export takes seconds a layer
    config = BertConfig(vocab_size=len(word_tokenizer()), **shape)
    torch.manual_seed(0)  # other weights may give all texts one label
    return save_model(tmp_path_factory.mktemp("encoder"), BertModel(config))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> str:
    return trained(tmp_path_factory.mktemp("model"), "class", encoder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, model: str) -> Path:
    """Export the model in float32; tests that change the run copy it."""
    folder = tmp_path_factory.mktemp("exported") / "run"
    found = export(model, folder, texts=ROWS, precision="float32")
    assert (found["rows"], found["same"]) == (len(TEXTS), 1.0)
    assert found["difference"] < 1e-5
    assert read_json(folder / "results.json") == found
    return folder


@pytest.mark.parametrize("kind", ["multi", "tags"])
def test_other_kinds_give_the_answers_of_the_model(
    kind: Kind, encoder: Path, tmp_path: Path
) -> None:
    name = trained(tmp_path / "model", kind, encoder)
    found = export(name, tmp_path / "run", texts=ROWS, precision="float32")
    assert found["same"] == 1.0
    assert found["difference"] < 1e-5


def test_pairs_and_any_number_of_texts_are_read(model: str, exported: Path) -> None:
    whole, loaded = load_classifier(model, device="cpu"), load_classifier(str(exported))
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    for some in (pairs[:1], TEXTS[:1], [*pairs, *TEXTS]):
        expected = whole.probabilities(some, precision="float32")
        np.testing.assert_allclose(loaded.probabilities(some), expected, atol=1e-5)
    assert len(np.unique(expected.argmax(1))) > 1
    assert loaded.labels == LABELS["class"]
    assert repr(loaded).partition(", ")[2] == repr(whole).partition(", ")[2]


def test_an_architecture_without_token_types_is_exported(tmp_path: Path) -> None:
    config = DistilBertConfig(
        vocab_size=len(word_tokenizer()), dim=32, n_layers=1, n_heads=4, hidden_dim=64
    )
    base = save_model(tmp_path / "base", DistilBertModel(config))
    name = trained(tmp_path / "model", "class", base)
    assert export(name, tmp_path / "run", precision="float32")["same"] == 1.0


def test_an_exported_file_says_nothing_of_the_machine(exported: Path) -> None:
    package = str(Path(tilth.__file__).parent)
    assert package.encode() not in (exported / "model" / onnx.ONNX).read_bytes()


def test_int8_is_smaller_and_nearly_the_same(model: str, exported: Path, tmp_path: Path) -> None:
    texts = write_lines(tmp_path / "texts.txt", TEXTS)
    found = export(model, tmp_path / "int8", texts=texts, tolerance=1)
    assert found["bytes"] < read_json(exported / "results.json")["bytes"]
    assert 0 < found["difference"] < 0.5
    by_both = [predict(name, texts, quiet=True) for name in (model, str(tmp_path / "int8"))]
    labels = np.array([made["label"][:] for made in by_both])  # (2, texts)
    assert found["same"] == pytest.approx(np.mean(labels[0] == labels[1]))


def test_other_answers_differ_by_a_probability_of_one_label(
    model: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned(name: str, *given: Any, **options: Any) -> Dataset:
        made = predict(name, *given, **options)
        best = "dry" if name == model else "wet"  # both are as sure, of other labels
        rows = [
            {**row, "label": best, "probabilities": {
                label: 0.9 if label == best else 0.05 for label in row["probabilities"]}}
            for row in made.to_list()
        ]  # fmt: skip
        return Dataset.from_list(rows, features=made.features)

    def copied(_: Any, folder: Path, **__: Any) -> None:
        copytree(exported / "model", folder, ignore=ignore_patterns("README.md"))

    monkeypatch.setattr(exporting, "predict", turned)
    monkeypatch.setattr(exporting, "save_onnx", copied)
    found = export(model, tmp_path / "run", texts=ROWS, precision="float32", tolerance=1)
    assert (found["same"], round(found["difference"], 5)) == (0.0, 0.85)


def test_more_other_answers_than_the_tolerance_end_it_and_keep_the_model(
    model: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turned(name: str, *given: Any, **options: Any) -> Dataset:
        made = predict(name, *given, **options)
        if name == model:
            return made
        labels = ["other", "other", *made["label"][2:]]
        return made.remove_columns("label").add_column("label", labels)

    def copied(_: Any, folder: Path, **__: Any) -> None:
        copytree(exported / "model", folder, ignore=ignore_patterns("README.md"))

    monkeypatch.setattr(exporting, "predict", turned)
    monkeypatch.setattr(exporting, "save_onnx", copied)
    asked: dict[str, Any] = {"texts": ROWS, "precision": "float32"}
    with pytest.raises(TilthError, match=r"5\.0% of 40 answers are not those of"):
        export(model, tmp_path / "run", **asked, tolerance=0.04)
    monkeypatch.setattr(exporting, "save_onnx", None)  # it is not exported again
    assert export(model, tmp_path / "run", **asked, tolerance=0.05)["same"] == 0.95
    with pytest.raises(TilthError, match="holds another run: precision is"):
        export(model, tmp_path / "run", texts=ROWS)


def test_an_interrupted_export_goes_on(
    model: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Path] = []

    def interrupted(_: Any, folder: Path, **__: Any) -> None:
        saved.append(folder)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        if len(saved) == 1:
            raise KeyboardInterrupt
        copytree(exported / "model", folder, dirs_exist_ok=True)

    monkeypatch.setattr(exporting, "save_onnx", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(model, tmp_path / "run", texts=ROWS, precision="float32")
    assert export(model, tmp_path / "run", texts=ROWS, precision="float32")["same"] == 1.0
    assert len(saved) == 2


def test_the_card_s_code_runs(model: str, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exported / "model")
    code = Path("README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {}
    exec(code.replace("A text.", "a long text " * 400), scope)  # cut as the model reads it
    exec(code, scope)
    whole = load_classifier(model, device="cpu")
    (expected,) = whole.probabilities(["A text."], precision="float32")
    logits = torch.from_numpy(scope["logits"])
    np.testing.assert_allclose(logits.softmax(1)[0], expected, atol=1e-5)


def test_a_model_of_pairs_is_compared_on_pairs(tmp_path: Path, encoder: Path) -> None:
    pairs = new_classifier(str(encoder), kind="class", labels=LABELS["class"], device="cpu")
    pairs.note_texts(2)
    pairs.save(tmp_path / "pairs")
    found = export(str(tmp_path / "pairs"), tmp_path / "run", precision="float32")
    assert found["rows"] > 10
    model = tmp_path / "run" / "model"
    assert 'tokenizer.encode("A text.", "Another.")' in (model / "README.md").read_text()
    assert load_classifier(str(model)).texts_per_input == 2


def test_what_cannot_be_exported_or_trained_is_refused(
    model: str, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="is a sentence encoder"):
        export("starter-encoder", tmp_path / "encoder")
    with pytest.raises(InputError, match="exported already"):
        export(str(exported), tmp_path / "again")
    with pytest.raises(InputError, match="exported, for predictions alone"):
        new_classifier(str(exported), kind="class", labels=["a", "b"])
    with pytest.raises(InputError, match="no row holds text"):
        export(model, tmp_path / "blank", texts=[{"text": " "}])
    with pytest.raises(InputError, match="which column holds the texts"):
        export(model, tmp_path / "columns", texts=[{"title": "A", "body": "It rains."}])
    assert not (tmp_path / "columns").exists()
    broken = copytree(exported, tmp_path / "broken")
    (broken / "model" / "model.onnx").write_bytes(b"no model")
    with pytest.raises(InputError, match="does not load as ONNX"):
        tilth.load_classifier(str(broken))
    lacking = {"onnxruntime": None}
    monkeypatch.setattr(onnx, "find_spec", lambda name: lacking.get(name, name))
    with pytest.raises(InputError, match=r"onnxruntime, not installed: pip install .tilth\[export"):
        export(model, tmp_path / "lacking")
