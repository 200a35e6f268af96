"""Bad model folders: how a good one is changed."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests.campaign.inputs import RunsCode, nested, write
from tests.tiny import read_json


def _config(**changes: Any) -> Callable[[Path, Path], None]:
    """Return a change of a model folder's config.json."""

    def change(folder: Path, mark: Path) -> None:
        for path in folder.rglob("config.json"):
            path.write_text(json.dumps(read_json(path) | changes))
        if "auto_map" in changes:
            (folder / "evil.py").write_text(_EVIL.format(mark=str(mark)))

    return change


_EVIL = """open({mark!r}, "w").close()
from transformers import PretrainedConfig, PreTrainedModel
class EvilConfig(PretrainedConfig):
    model_type = "evil"
class EvilModel(PreTrainedModel):
    config_class = EvilConfig
"""
_AUTO = {
    name: f"evil.Evil{'Config' if name == 'AutoConfig' else 'Model'}"
    for name in ("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoModelForMaskedLM",
                 "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification", "AutoTokenizer")
}  # fmt: skip


def _escaped(folder: Path, mark: Path) -> None:
    _config(auto_map=_AUTO, model_type="evil")(folder, mark)
    for path in folder.rglob("config.json"):
        path.write_text(path.read_text().replace("auto_map", "auto\\u005fmap"))


def _weights(change: Callable[[Path], Any]) -> Callable[[Path, Path], None]:
    def apply(folder: Path, _: Path) -> None:
        for path in folder.rglob("*.safetensors"):
            change(path)

    return apply


def _other_shape(path: Path) -> None:
    save_file(
        {name: value.repeat(2, *[1] * (value.ndim - 1)) if value.ndim else value
         for name, value in load_file(path).items()}, path, {"format": "pt"},
    )  # fmt: skip


def _not_finite(path: Path) -> None:
    save_file({n: v * float("nan") for n, v in load_file(path).items()}, path, {"format": "pt"})


def _no_tensors(path: Path) -> None:
    save_file({}, path, {"format": "pt"})


def _pickled(folder: Path, mark: Path) -> None:
    for path in list(folder.rglob("*.safetensors")):
        data = pickle.dumps(RunsCode(mark))
        (path.parent / "pytorch_model.bin").write_bytes(data)
        path.unlink()


def _each(pattern: str, change: Callable[[Path], Any]) -> Callable[[Path, Path], None]:
    def apply(folder: Path, _: Path) -> None:
        for path in list(folder.rglob(pattern)):
            change(path)

    return apply


def _foreign_tokenizer(path: Path) -> None:
    """Give every word a number that the model does not have."""
    found = read_json(path)
    vocabulary = found["model"].get("vocab")
    if isinstance(vocabulary, dict):
        found["model"]["vocab"] = {
            word: n if n < 5 else n + 50_000 for word, n in vocabulary.items()
        }
    path.write_text(json.dumps(found))


def _modules(kind: str, **config: Any) -> Callable[[Path, Path], None]:
    """Return a change that adds a module of sentence-transformers with such a config."""

    def change(folder: Path, mark: Path) -> None:
        path = folder / "modules.json"
        found = read_json(path) if path.exists() else [
            {"idx": 0, "name": "0", "path": "",
             "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling",
             "type": "sentence_transformers.models.Pooling"},
        ]  # fmt: skip
        write(folder / "1_Pooling" / "config.json", b'{"word_embedding_dimension": 32}')
        where = kind if "." in kind else f"sentence_transformers.models.{kind}"
        found.append({"idx": len(found), "name": "9", "path": "9_Evil", "type": where})
        path.write_text(json.dumps(found))
        (folder / "evil.py").write_text(_EVIL.format(mark=str(mark)))
        for name in ("config.json", "router_config.json"):
            write(folder / "9_Evil" / name, json.dumps(config).encode())

    return change


_DENSE = {"in_features": 32, "out_features": 32, "bias": False}
# What may be read all the same: nothing wrong is used, or nothing shows it. Modules are those of
# sentence-transformers: other models have none.
HARMLESS = {
    "remote code, known type", "tokenizer is remote code", "labels are odd",
    "weights are not finite", "tokenizer is of another model", "run.json is no JSON",
    "module is remote code", "module is any class", "module beside ours", "router", "activation",
    "activation of a file",
}  # fmt: skip
# How a good model folder is made a bad one.
MODELS: dict[str, Callable[[Path, Path], None]] = {
    "emptied": lambda folder, _: (shutil.rmtree(folder), folder.mkdir())[0],
    "no config": _each("config.json", Path.unlink),
    "config is no JSON": _each("config.json", lambda path: path.write_text("{")),
    "config is a list": _each("config.json", lambda path: path.write_text("[]")),
    "config is empty": _each("config.json", lambda path: path.write_text("{}")),
    "config is deep": _each("config.json", lambda path: path.write_text(nested())),
    "config is not UTF-8": _each("config.json", lambda path: path.write_bytes(b"\xff\xfe{")),
    "another architecture": _config(model_type="resnet", architectures=["ResNetModel"]),
    "unknown architecture": _config(model_type="no-such", architectures=["NoSuch"]),
    "architecture is null": _config(model_type=None, architectures=None),
    "odd sizes": _config(hidden_size=-1, d_model=-1, n_embd=-1, vocab_size=None),
    "huge sizes": _config(hidden_size=2**40, d_model=2**40, n_embd=2**40, vocab_size=2**40),
    "labels are odd": _config(id2label={"x": 1}, label2id=3, num_labels=2**40, problem_type="x"),
    "remote code": _config(auto_map=_AUTO, model_type="evil"),
    "remote code, known type": _config(auto_map=_AUTO),
    "remote code, escaped": _escaped,
    "truncated weights": _weights(lambda path: os.truncate(path, path.stat().st_size // 2)),
    "empty weights": _weights(lambda path: os.truncate(path, 0)),
    "no tensors": _weights(_no_tensors),
    "weights of another shape": _weights(_other_shape),
    "weights are not finite": _weights(_not_finite),
    "weights are a pipe": _weights(lambda path: (path.unlink(), os.mkfifo(path))),
    "pickled weights": _pickled,
    "no tokenizer": _each("tokenizer*", Path.unlink),
    "tokenizer is no JSON": _each("tokenizer.json", lambda path: path.write_text("{")),
    "tokenizer is of another model": _each("tokenizer.json", _foreign_tokenizer),
    "tokenizer is remote code": _each("tokenizer_config.json", lambda path: path.write_text(
        '{"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": "evil.EvilConfig"}}')),
    "module is remote code": _modules("evil.EvilModel"),
    "module is any class": _modules("pathlib.Path"),
    "module beside ours": _modules("tilth.encoders.usif.NoSuch"),
    "router": _modules("Router", types={"x": "evil.EvilModel"}, structure={"q": ["x"]}),
    "activation": _modules("Dense", **_DENSE, activation_function="os.abort"),
    "activation of a file": _modules("Dense", **_DENSE, activation_function="evil.EvilModel"),
    "run.json is no JSON": lambda folder, _: write(folder / "run.json", b"{") and None,
}  # fmt: skip
