from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.tiny import save_model
from tests.tiny.writers import POSITIONS, save_fsmt, writer
from tilth.errors import InputError
from tilth.models import load_seq2seq
from tilth.paraphrase.round_trip import round_trip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "run" / "model", writer())


def test_a_folder_and_the_run_that_holds_it_load(folder: Path) -> None:
    loaded = load_seq2seq(str(folder), device="cpu", precision="bfloat16", prefix=">>de<< ")
    assert (loaded.precision, loaded.prefix, loaded.positions) == ("bfloat16", ">>de<< ", POSITIONS)
    assert not loaded.model.training
    (folder.parent / "run.json").write_text("{}")
    assert load_seq2seq(str(folder.parent), precision="float32").precision == "float32"


def test_the_fingerprint_changes_with_a_weight_and_with_the_prefix() -> None:
    one, two = writer(), writer()
    assert one.fingerprint == two.fingerprint
    assert replace(one, prefix=">>de<< ").fingerprint != one.fingerprint
    with torch.no_grad():
        two.model.model.decoder.layers[0].fc1.bias[0] += 1
    assert two.fingerprint != one.fingerprint


def test_a_tokenizer_without_padding_is_refused(folder: Path) -> None:
    tokenizer = writer().tokenizer
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(InputError, match="no padding token"):
        load_seq2seq(str(folder))


def test_translators_of_wmt19s_kind_make_round_trips(tmp_path: Path) -> None:
    there, back = (
        load_seq2seq(str(save_fsmt(tmp_path / str(seed), seed=seed)), device="cpu")
        for seed in (0, 1)
    )
    texts = ["The dog ran.", "It's a cat."]
    found = round_trip(texts, there, back)
    assert all(found)
    assert all(one.text and one.pivot for candidates in found for one in candidates)
    assert found == round_trip(texts, there, back)
    assert found != round_trip(texts, there, back, seed=1)


def test_a_missing_package_of_a_tokenizer_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_fsmt(tmp_path, seed=0)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'tilth.fsmt.'"):
        load_seq2seq(str(tmp_path))
