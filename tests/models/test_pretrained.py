"""What a model's folder can do to its reader: nothing but load, or be refused in one line."""

import ast
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Router
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import tilth
from tests.tiny import (
    BERT_SHAPE,
    read_json,
    save_encoder,
    save_model,
    tiny_lm,
    tiny_static,
    word_tokenizer,
)
from tests.tiny.writers import writer
from tilth.encoders.usif import usif
from tilth.errors import InputError
from tilth.models import load_encoder, load_lm, load_scorer, load_seq2seq
from tilth.models.classifier import load_classifier, new_classifier
from tilth.models.lm import load_masked_lm


def save(kind: str, folder: Path) -> Path:
    """Save the tiny model that a loader reads."""
    if kind in ("encoder", "base"):
        return save_encoder(folder)
    if kind in ("seq2seq", "lm", "decoder"):
        made = {"seq2seq": writer, "lm": tiny_lm, "decoder": lambda: tiny_lm("bert")}[kind]()
        return save_model(folder, made)
    config = BertConfig(vocab_size=len(word_tokenizer()), **BERT_SHAPE)
    config.num_labels = 1 if kind == "scorer" else 3
    made = BertForMaskedLM if kind == "masked" else BertForSequenceClassification
    return save_model(folder, made(config))


LOADERS: dict[str, Callable[[str], Any]] = {
    "lm": load_lm,
    "seq2seq": load_seq2seq,
    "encoder": load_encoder,
    "masked": load_masked_lm,
    "scorer": load_scorer,
    "classifier": load_classifier,
    "base": lambda name: new_classifier(name, kind="class", labels=["a", "b"]),
}
every_loader = pytest.mark.parametrize("kind", list(LOADERS))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("models")
    return {kind: save(kind, parent / kind) for kind in LOADERS}


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: Path(shutil.copytree(folders[kind], tmp_path / kind))


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that code of a folder makes when it runs; whoever asks is told yes."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/evil.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
        "from transformers import BertConfig, BertModel\n"
        "class EvilConfig(BertConfig):\n    model_type = 'evil'\n"
        "class EvilModel(BertModel):\n    config_class = EvilConfig\n"
    )
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "ran"


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**read_json(path), **values}))


def answer(kind: str, folder: Path) -> str:
    """Load a model; return the error, if there is one."""
    try:
        LOADERS[kind](str(folder))
    except InputError as error:
        return str(error)
    return ""


def refused(kind: str, folder: Path, said: str) -> None:
    error = answer(kind, folder)
    assert re.search(said, error), error
    assert "\n" not in error
    assert "trust_remote_code" not in error


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
@every_loader
def test_code_that_a_folder_names_never_runs(
    copy: Callable[[str], Path], marker: Path, kind: str, file: str, where: str
) -> None:
    folder = copy(kind)
    evil = "evil"
    shutil.copy(marker.parent / "other/evil.py", folder)
    if where == "elsewhere":
        (folder / "evil.py").unlink()
        evil = f"{marker.parent / 'other'}--evil"
    autos = (
        "AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM",
        "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification",
    )  # fmt: skip
    names: dict[str, Any] = dict.fromkeys(autos, f"{evil}.EvilModel")
    names |= {"AutoConfig": f"{evil}.EvilConfig", "AutoTokenizer": [f"{evil}.EvilConfig", None]}
    if file == "config.json":
        change(folder / file, auto_map=names, model_type="evil")
    else:
        change(folder / file, auto_map=names, tokenizer_class="EvilTokenizer")
    (folder / file).write_text((folder / file).read_text().replace("auto_map", "auto\\u005fmap"))
    error = answer(kind, folder)
    assert "\n" not in error
    assert "trust_remote_code" not in error
    assert not marker.exists()


def saved_usif(folder: Path) -> Path:
    vectors = folder / "vectors.txt"
    folder.mkdir()
    vectors.write_text("a 1 0\nman 0 4\n")
    usif(vectors, sentences=["a a a man"], components=1, walk=1).save(str(folder / "saved"))
    return folder / "saved"


def test_modules_of_tilth_load_without_trust_in_anything_else(tmp_path: Path) -> None:
    folder = saved_usif(tmp_path / "usif")
    loaded = load_encoder(str(folder))
    assert loaded.encode(["man"]).shape == (1, 2)
    assert not loaded.trust_remote_code
    with pytest.raises(InputError, match="no token vectors to pool"):
        load_encoder(str(folder), pooling="mean")


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("name", ["os.abort", "evil.run", "torch.nn.modules.module.Module"])
def test_an_activation_is_one_of_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ours: bool
) -> None:
    monkeypatch.setattr("os.abort", lambda: pytest.fail("called"))
    if ours:
        folder = saved_usif(tmp_path / "usif")
    else:
        folder = tmp_path / "dense"
        modules = [*load_encoder(str(save_encoder(tmp_path / "bert"))), Dense(32, 8)]
        SentenceTransformer(modules=modules).save(str(folder))
    assert load_encoder(str(folder))
    (config,) = folder.glob("*_Dense/config.json")
    change(config, activation_function=name)
    refused("encoder", folder, f"activation function '{name}': tilth loads no such")


@pytest.mark.parametrize(
    "kind",
    ["evil.EvilModel", "sentence_transformers.util.misc.import_from_string",
     "sentence_transformers.models.os.system", "tilth.encoders.word_vectors.json", "os.system",
     f"{Router.__module__}.Router"],
)  # fmt: skip
def test_a_module_is_one_of_a_list(tmp_path: Path, marker: Path, kind: str) -> None:
    tiny_static().save(str(tmp_path / "static"))
    shutil.copy(marker.parent / "other/evil.py", tmp_path / "static")
    modules = read_json(tmp_path / "static/modules.json")
    modules[0]["type"] = kind
    (tmp_path / "static/modules.json").write_text(json.dumps(modules))
    refused("encoder", tmp_path / "static", f"names the class '{kind}'")
    assert not marker.exists()


def test_no_module_is_loaded_from_pickled_weights(tmp_path: Path) -> None:
    tiny_static().save(str(tmp_path))
    weights = load_file(tmp_path / "model.safetensors")
    torch.save(weights, tmp_path / "pytorch_model.bin")
    assert load_encoder(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    refused("encoder", tmp_path, "no model.safetensors .pickled weights are not read")


def test_one_file_reads_models() -> None:
    """Whatever reads a model passes `ModelFiles.options`, so that nothing asks to run code."""
    found = set()
    for file in Path(tilth.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("from_pretrained"):
                assert "options" in ast.unparse(node), f"{file}:{node.lineno}"
                found.add(file.name)
    assert found == {"pretrained.py", "encoder.py"}


@pytest.mark.parametrize("size", [0, 7, 200, 0.5])
@every_loader
def test_truncated_weights_are_one_line(
    copy: Callable[[str], Path], kind: str, size: float
) -> None:
    path = copy(kind) / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * size) if 0 < size < 1 else int(size)])
    refused(kind, path.parent, "does not load as an? ")


@every_loader
def test_weights_that_are_missing_or_of_another_shape_are_not_drawn(
    copy: Callable[[str], Path], kind: str
) -> None:
    path = copy(kind) / "model.safetensors"
    whole = load_file(path)
    inner = next(name for name in sorted(whole) if whole[name].ndim == 2 and ".0." in name)
    for weights, said in (
        ({}, "its weights hold no "),
        ({name: whole[name] for name in whole if name != inner}, "its weights hold no "),
        ({**whole, inner: torch.zeros(3, 5)}, r"has the shape \(3, 5\), its config.json says \("),
    ):
        save_file(weights, path, metadata={"format": "pt"})
        refused(kind, path.parent, said)


@every_loader
def test_a_head_of_another_shape_is_drawn_only_for_a_training(
    copy: Callable[[str], Path], kind: str
) -> None:
    if kind not in ("classifier", "scorer"):
        pytest.skip("it has no head that a training replaces")
    path = copy(kind) / "model.safetensors"
    weights = load_file(path)
    save_file(
        {**weights, "classifier.weight": torch.zeros(7, 32), "classifier.bias": torch.zeros(7)},
        path, metadata={"format": "pt"},
    )  # fmt: skip
    refused(kind, path.parent, "has no trained head")
    assert LOADERS["base"](str(path.parent)).labels == ["a", "b"]


@every_loader
def test_a_tokenizer_of_a_larger_model_is_refused(copy: Callable[[str], Path], kind: str) -> None:
    folder = copy(kind)
    tokenizer = (
        tiny_lm().tokenizer if kind == "lm" else writer().tokenizer if kind == "seq2seq"
        else word_tokenizer()
    )  # fmt: skip
    tokenizer.add_tokens(["another", "word"])
    tokenizer.save_pretrained(folder)
    refused(kind, folder, r"its tokenizer has token ids up to \d+, the model embeddings for \d+")


@every_loader
def test_a_model_without_its_tokenizer_is_refused(copy: Callable[[str], Path], kind: str) -> None:
    folder = copy(kind)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    refused(kind, folder, "has no tokenizer|does not load")


@every_loader
def test_pickled_weights_are_not_read(copy: Callable[[str], Path], kind: str) -> None:
    folder = copy(kind)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(kind, folder, r"no \*\.safetensors.*pickled weights are not read")
    (folder / "config.json").unlink()
    refused(kind, folder, "has no config.json: name a saved model folder")


@every_loader
def test_a_hub_name_without_a_network_is_one_line(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.files.hub_answers", lambda: False)
    refused(kind, Path("owner/name"), "'owner/name': no such folder here, not in the hub's cache")


@pytest.mark.parametrize("kind", ["seq2seq", "encoder", "masked", "classifier", "base"])
def test_the_run_of_a_training_is_its_model(copy: Callable[[str], Path], kind: str) -> None:
    run = copy(kind).parent
    about = {"settings": {}, "fingerprints": {}, "parts": 0, "resolved": {}, "versions": {},
             "outputs": []}  # fmt: skip
    (run / "run.json").write_text(json.dumps({"command": "curate", **about}))
    refused(kind, run, "run of `tilth curate` holds no trained model: name the run of a finished")
    for command in ("grow", "paraphrase train" if kind == "seq2seq" else "train classifier"):
        (run / "run.json").write_text(json.dumps({"command": command, **about}))
        refused(kind, run, f"this `tilth {command}` is not finished: run the same command again")
    (run / kind).rename(run / "model")
    assert not answer(kind, run)


@every_loader
def test_a_pipe_is_not_waited_for(copy: Callable[[str], Path], kind: str) -> None:
    weights = copy(kind) / "model.safetensors"
    weights.unlink()
    os.mkfifo(weights)
    refused(kind, weights.parent, "model.safetensors is no file")


def test_a_static_encoder_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny_static().save(str(tmp_path))
    tokenizer = word_tokenizer()._tokenizer
    tokenizer.add_tokens(["another"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    refused("encoder", tmp_path, "its tokenizer has token ids up to")


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["{", "null", "[]", "[" * 100_000, '{"model_type": 3}', "\x00"])
@every_loader
def test_damaged_json_is_one_line(
    copy: Callable[[str], Path], kind: str, file: str, text: str
) -> None:
    folder = copy(kind)
    (folder / file).write_text(text)
    assert "\n" not in answer(kind, folder)


def test_word_vectors_with_other_words_are_refused(tmp_path: Path) -> None:
    folder = saved_usif(tmp_path / "usif")
    (words,) = folder.rglob("words.json")
    words.write_text('["a", "man", "dog"]')
    refused("encoder", folder, "it names 3 words, the encoder has vectors of 2: save the encoder")


@pytest.mark.parametrize(
    ("kind", "other", "said"),
    [
        ("encoder", "lm", "is a generative language model"),
        ("encoder", "decoder", "is a generative language model"),
        ("base", "lm", "is a generative language model .*give an encoder"),
        ("base", "decoder", "is a generative language model .*give an encoder"),
        ("seq2seq", "lm", r"is no encoder-decoder \(gpt2\)"),
        ("seq2seq", "encoder", "no encoder-decoder"),
        ("scorer", "encoder", r"has no trained head \(\S+ is not in its weights"),
        ("classifier", "lm", "no classifying head"),
        ("classifier", "decoder", "no classifying head"),
        (
            "classifier",
            "encoder",
            r"no classifying head \(BertModel\): train one, tilth train class",
        ),
    ],
)
def test_models_of_another_kind_are_refused(
    tmp_path: Path, kind: str, other: str, said: str
) -> None:
    refused(kind, save(other, tmp_path / "model"), said)
