from pathlib import Path

import pytest
import torch

from tests.tiny import save_model, tiny_lm
from tilth.errors import InputError
from tilth.models import load_lm
from tilth.models.pretrained import fingerprint_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", tiny_lm("gpt2"))


def test_a_folder_loads_with_the_precision_asked_for(folder: Path) -> None:
    lm = load_lm(str(folder), device="cpu", precision="bfloat16")
    assert lm.precision == "bfloat16"
    assert lm.device == torch.device("cpu")
    assert not lm.model.training
    assert load_lm(str(folder), precision="float32").precision == "float32"


def test_the_fingerprint_changes_with_a_weight_and_with_the_vocabulary(folder: Path) -> None:
    one, two = (load_lm(str(folder), precision="float32") for _ in range(2))
    assert one.fingerprint == two.fingerprint
    with torch.no_grad():
        two.model.transformer.wte.weight[101, 17] += 1e-3
    assert fingerprint_model(two.model, two.tokenizer) != one.fingerprint
    two.tokenizer.add_tokens(["another"])
    assert fingerprint_model(one.model, two.tokenizer) != one.fingerprint


@pytest.mark.parametrize("name", ["./none", "/no/where", "a/b/c", "~/none-at-all"])
def test_a_path_that_is_not_there_is_not_looked_up_on_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilth.files.hub_answers", lambda: pytest.fail("asked the hub"))
    with pytest.raises(InputError, match="no model folder"):
        load_lm(name)


def test_an_encoder_is_no_language_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "t5", "vocab_size": 10}')
    with pytest.raises(InputError, match="does not load as a causal language model"):
        load_lm(str(folder))
