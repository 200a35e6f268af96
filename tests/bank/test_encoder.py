import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.tiny import salads, save_encoder, tiny_static
from tilth.bank.encoder import TextEncoder
from tilth.errors import InputError, TilthError
from tilth.models.encoder import load_encoder


def test_static_encoders_have_rows_that_give_what_the_model_gives() -> None:
    model = tiny_static(dimension=12)
    encoder = TextEncoder.load(model)
    assert encoder.dimension == 12
    texts = [*salads(20), "zzz"]
    found = encoder.encode(pa.array(texts))
    np.testing.assert_allclose(found, model.encode(texts, normalize_embeddings=True), atol=1e-6)
    assert not found[20].any()
    np.testing.assert_array_equal(encoder.encode(pa.chunked_array([texts[:3], texts[3:]])), found)


def test_other_encoders_by_their_own_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = TextEncoder.load(str(save_encoder(tmp_path / "bert")))
    assert encoder.static is None
    assert encoder.dimension == 32
    texts = salads(50)
    monkeypatch.setattr("tilth.models.embed.choose_precision", lambda *_: torch.float32)
    expected = load_encoder(str(tmp_path / "bert")).encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(pa.array(texts)), expected, atol=1e-5)
    monkeypatch.setattr("tilth.models.embed._AT_ONCE", 7)
    np.testing.assert_allclose(encoder.encode(pa.array(texts)), expected, atol=1e-5)
    assert encoder.encode(pa.array([], pa.string())).shape == (0, 32)


def test_names_and_loaded_ones(tmp_path: Path) -> None:
    model = tiny_static()
    model.save(str(tmp_path / "static"))
    named = TextEncoder.load(str(tmp_path / "static"))
    loaded = TextEncoder.load(model)
    assert named.name == str(tmp_path / "static")
    assert named.fingerprint == loaded.fingerprint
    assert named.fingerprint != TextEncoder.load(tiny_static(seed=1)).fingerprint
    assert TextEncoder.load(named) is named


def test_broken_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_static()
    model[0].embedding.weight.data[9] = float("nan")
    with pytest.raises(TilthError, match="weights that are not finite"):
        TextEncoder.load(model)
    encoder = TextEncoder.load(str(save_encoder(tmp_path / "bert")))
    monkeypatch.setattr(
        encoder.model, "encode", lambda texts, **_: np.full((len(texts), 32), np.inf)
    )
    with pytest.raises(TilthError, match="gives no finite vector for 'a man'"):
        encoder.encode(pa.array(["a man"]))


def test_an_encoder_that_does_not_say_how_long_its_vectors_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_static()
    monkeypatch.setattr(model, "get_embedding_dimension", lambda: None)
    with pytest.raises(InputError, match="does not say how long"):
        TextEncoder.load(model)


def test_a_pickled_encoder_loads_the_model_of_its_name(tmp_path: Path) -> None:
    encoder = TextEncoder.load(str(save_encoder(tmp_path / "bert")))
    data = pickle.dumps(encoder)
    found = pickle.loads(data)
    assert (found.name, found.fingerprint) == (encoder.name, encoder.fingerprint)
    save_encoder(tmp_path / "bert", seed=1)
    with pytest.raises(InputError, match=r"^encoder \S+bert: the weights on host .* are not those"):
        pickle.loads(data)
