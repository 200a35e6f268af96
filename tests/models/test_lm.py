from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_lm
from tilth.errors import InputError
from tilth.models import device, load_lm, source
from tilth.models.device import choose_device, choose_precision
from tilth.models.lm import fingerprint_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lm = tiny_lm("gpt2")
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


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
    monkeypatch.setattr(source, "hub_answers", lambda: pytest.fail("asked the hub"))
    with pytest.raises(InputError, match="no model folder"):
        load_lm(name)


def test_an_encoder_is_no_language_model(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "t5", "vocab_size": 10}')
    with pytest.raises(InputError, match="does not load as a causal language model"):
        load_lm(str(folder))


def test_devices_and_precisions_that_are_not_there() -> None:
    with pytest.raises(InputError, match="device 'gpu' is unknown"):
        choose_device("gpu")
    with pytest.raises(InputError, match="device 'meta' is not supported"):
        choose_device("meta")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="'cuda' is not there: use --device cpu"):
            choose_device("cuda")
    with pytest.raises(InputError, match="precision 'half' is unknown: use auto, float32"):
        choose_precision("half", torch.device("cpu"))
    with pytest.raises(InputError, match="too slow on a CPU"):
        choose_precision("float16", torch.device("cpu"))


def test_automatic_precision_follows_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    for amx, avx512, maker, expected in (
        (True, True, "GenuineIntel", torch.bfloat16),
        (False, True, "GenuineIntel", torch.float32),  # has the instructions, but slow ones
        (False, True, "AuthenticAMD", torch.bfloat16),
        (False, False, "AuthenticAMD", torch.float32),
    ):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda amx=amx: amx)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda avx512=avx512: avx512)
        monkeypatch.setattr(device, "_processor", lambda maker=maker: f"vendor_id: {maker}")
        assert choose_precision("auto", cpu) == expected
