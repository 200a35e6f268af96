from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from tests.selftrain.labelled import classed
from tests.tiny import salads, save_encoder, tiny_lm, word_tokenizer, write_lines
from tilth.classifiers.mlm import IGNORED, adapt, losses_of, mask_tokens
from tilth.errors import InputError, TilthError
from tilth.models.classifier import new_classifier
from tilth.models.lm import load_masked_lm
from tilth.runs import RunMismatch
from tilth.workflows.train_classifier import train_classifier

QUICK: dict[str, Any] = {
    "learning_rate": 3e-3, "batch": 16, "save_every": 5, "precision": "float32", "device": "cpu",
    "quiet": True,
}  # fmt: skip
TEXTS = salads(200)


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def base(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    folder = tmp_path_factory.mktemp("base") / request.param
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 32,
        "pad_token_id": 0,
    }  # fmt: skip
    ends = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    model: Any = (
        BertForMaskedLM(BertConfig(**shape))
        if request.param == "bert"
        else ModernBertForMaskedLM(ModernBertConfig(**shape, **ends))
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = AutoModelForMaskedLM.from_pretrained(
        run / "model"
    ).state_dict()
    return found


def are_same(one: Path, two: Path) -> bool:
    other = weights(two)
    return all(torch.equal(value, other[name]) for name, value in weights(one).items())


def test_texts_without_a_known_token_cost_nothing(base: str, tmp_path: Path) -> None:
    unknown = ["\U0001f600"] * 32 + ["\u200b \U0001f600 \U0001f600"] * 8
    run = adapt(iter([*TEXTS[:64], *unknown]), base, tmp_path, **QUICK)
    assert all(np.isfinite(value) for value in losses_of(run).values())
    assert all(bool(value.isfinite().all()) for value in weights(run).values())


def test_the_base_learns_and_is_a_base_then(base: str, tmp_path: Path) -> None:
    run = adapt(["the old man reads near the sea"] * 100, base, tmp_path, **{**QUICK, "epochs": 6})
    found = losses_of(run)
    assert found["last"] < 0.7 * found["first"]
    assert not (run / "checkpoints").exists()
    assert json.loads((run / "run.json").read_text())["command"] == "train adapt"
    trained = new_classifier(str(run), kind="class", labels=["a", "b"], device="cpu")
    kept, body = weights(run), trained.model.base_model.state_dict()
    name = next(name for name in body if name.endswith("embeddings.weight"))
    prefix = trained.model.base_model_prefix
    torch.testing.assert_close(body[name], kept[f"{prefix}.{name}"])
    train_classifier(classed(30), str(run), epochs=1, device="cpu", quiet=True)


def test_another_training_is_refused(base: str, tmp_path: Path) -> None:
    adapt(TEXTS, base, tmp_path, **QUICK)
    with pytest.raises(RunMismatch, match="texts are not the same"):
        adapt(TEXTS[1:], base, tmp_path, **QUICK)
    with pytest.raises(RunMismatch, match="masked"):
        adapt(TEXTS, base, tmp_path, **QUICK, masked=0.2)


@pytest.fixture(scope="module")
def plain(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of the usual settings."""
    out = tmp_path_factory.mktemp("adapted") / "plain"
    adapt(TEXTS[:64], base, out, **QUICK)
    return out


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": 0.5}, {"batch": 8}, {"learning_rate": 1e-3}, {"warmup": 0.5}, {"seed": 1},
        {"weight_decay": 0.5}, {"masked": 0.4}, {"max_length": 6}, {"precision": "bfloat16"},
    ],
)  # fmt: skip
def test_every_setting_counts(
    base: str, plain: Path, tmp_path: Path, changed: dict[str, Any]
) -> None:
    adapt(TEXTS[:64], base, tmp_path / "other", **{**QUICK, **changed})
    assert not are_same(plain, tmp_path / "other")


def test_texts_come_from_anywhere(base: str, tmp_path: Path) -> None:
    few = TEXTS[:20]
    write_lines(tmp_path / "t.txt", few)
    adapt(few, base, tmp_path / "list", **QUICK)
    adapt(str(tmp_path / "t.txt"), base, tmp_path / "file", **QUICK)
    adapt(Dataset.from_dict({"said": few}), base, tmp_path / "set", column="said", **QUICK)
    assert are_same(tmp_path / "list", tmp_path / "file")
    assert are_same(tmp_path / "list", tmp_path / "set")
    for number, same in enumerate((pd.DataFrame({"text": few}), pd.Series(few), np.array(few))):
        adapt(same, base, tmp_path / f"{number}", **QUICK)
        assert are_same(tmp_path / "list", tmp_path / f"{number}")


def test_a_base_without_its_head_gets_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = str(save_encoder(tmp_path / "bert"))
    with caplog.at_level(logging.WARNING):
        one, two = load_masked_lm(base, device="cpu"), load_masked_lm(base, device="cpu")
    assert "has no head that predicts masked tokens" in caplog.text
    assert one.fingerprint == two.fingerprint
    assert load_masked_lm(base, seed=1, device="cpu").fingerprint != one.fingerprint
    embeddings: Any = one.model.get_input_embeddings()
    output: Any = one.model.get_output_embeddings()
    assert output.weight is embeddings.weight


def test_what_cannot_be_adapted(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny_lm("gpt2")
    lm.model.save_pretrained(tmp_path / "gpt2")
    lm.tokenizer.save_pretrained(tmp_path / "gpt2")
    with pytest.raises(InputError, match="does not load as a masked language model"):
        adapt(TEXTS, str(tmp_path / "gpt2"), tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="no run folder is given"):
        adapt(TEXTS, base)
    with pytest.raises(InputError, match="there are no texts"):
        adapt([], base, tmp_path / "run", **QUICK)
    both = Dataset.from_dict({"said": ["a"], "heard": ["b"]})
    with pytest.raises(InputError, match=r"holds the texts: .*there are said, heard"):
        adapt(both, base, tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="no column 'text': there are said, heard"):
        adapt(both, base, tmp_path / "run", column="text", **QUICK)
    with pytest.raises(InputError, match="row 0 holds no text"):  # of the only column of texts
        adapt(Dataset.from_dict({"said": [" "], "n": [1]}), base, tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="row 1 holds no text"):
        adapt(Dataset.from_dict({"text": ["a", None]}), base, tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match="row 2 holds no text"):
        adapt(["a", "b", " \n"], base, tmp_path / "run", **QUICK)
    with pytest.raises(InputError, match=r"row 2 .*: 5 is no row"):
        adapt(["a", "b", 5], base, tmp_path / "run", **QUICK)  # type: ignore[list-item]
    with pytest.raises(InputError, match="no setting 'mask'"):
        adapt(TEXTS, base, tmp_path / "run", mask=1)
    monkeypatch.setattr("tilth.classifiers.trainer.all_finite", lambda _: False)
    with pytest.raises(TilthError, match="lower --learning-rate"):
        adapt(TEXTS, base, tmp_path / "run", **QUICK)


def test_masks_have_their_shares() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(10, 1000, (400, 64))
    special = np.zeros(ids.shape, bool)
    special[:, 0] = special[:, 50:] = True
    vocabulary = np.arange(10, 1000)
    given, wanted = mask_tokens(ids, special, 0.15, 4, vocabulary, rng)
    asked = wanted != IGNORED
    assert not asked[special].any()
    assert asked[~special].mean() == pytest.approx(0.15, abs=0.01)
    np.testing.assert_array_equal(wanted[asked], ids[asked])
    np.testing.assert_array_equal(given[~asked], ids[~asked])
    assert (given[asked] == 4).mean() == pytest.approx(0.8, abs=0.02)
    assert (given[asked] == ids[asked]).mean() == pytest.approx(0.1, abs=0.02)
    assert given.max() < 1000


def test_every_row_has_something_to_guess() -> None:
    ids = np.full((50, 4), 7)
    special = np.array([True, False, False, True])[None].repeat(50, 0)
    _, wanted = mask_tokens(ids, special, 1e-6, 4, np.arange(10), np.random.default_rng(0))
    assert ((wanted != IGNORED).sum(axis=1) == 1).all()
    everything = np.ones((2, 4), bool)
    _, wanted = mask_tokens(ids[:2], everything, 0.5, 4, np.arange(10), np.random.default_rng(0))
    assert (wanted == IGNORED).all()
