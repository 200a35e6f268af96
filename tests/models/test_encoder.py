import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from tests.tiny import save_encoder, save_model, tiny_static
from tilth.errors import InputError
from tilth.models import load_encoder
from tilth.models.encoder import fingerprint_encoder, is_sentence_encoder, saved_pooling

TEXTS = ["a man reads", "the old dog sleeps near the river"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_encoder(tmp_path_factory.mktemp("plain") / "bert")


def by_hand(encoder: SentenceTransformer, text: str, pooling: str) -> np.ndarray:
    transformer = encoder[0]
    tokens = transformer.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        hidden = transformer.auto_model(**tokens).last_hidden_state[0]  # (tokens, width)
    return {"mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0).values}[pooling].numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_pooling_is_what_it_says(plain: Path, pooling: str) -> None:
    encoder = load_encoder(str(plain), pooling=pooling, device="cpu")
    for text, vector in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        np.testing.assert_allclose(vector, by_hand(encoder, text, pooling), atol=1e-5)


def test_a_plain_encoder_is_mean_pooled_and_a_saved_one_keeps_its_pooling(
    plain: Path, tmp_path: Path
) -> None:
    mean = load_encoder(str(plain))
    np.testing.assert_array_equal(
        mean.encode(TEXTS), load_encoder(str(plain), pooling="mean").encode(TEXTS)
    )
    cls = load_encoder(str(plain), pooling="cls")
    cls.save(str(tmp_path / "saved"))
    saved = load_encoder(str(tmp_path / "saved"))
    np.testing.assert_allclose(saved.encode(TEXTS), cls.encode(TEXTS), atol=1e-6)
    again = load_encoder(str(tmp_path / "saved"), pooling="mean")
    np.testing.assert_allclose(again.encode(TEXTS), mean.encode(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
    ],
)
def test_the_saved_pooling_is_read_in_either_format(
    plain: Path, tmp_path: Path, saved: dict[str, Any], expected: str | None
) -> None:
    load_encoder(str(plain)).save(str(tmp_path / "saved"))
    (file,) = (tmp_path / "saved").glob("*_Pooling/config.json")
    file.write_text(json.dumps({"word_embedding_dimension": 32, **saved}))
    assert saved_pooling(str(tmp_path / "saved")) == expected
    assert saved_pooling("starter-small") is None  # a starter that is no sentence encoder
    assert saved_pooling(str(plain)) is None


def test_half_precision_weights_are_loaded_in_float32(plain: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(plain))
    save_model(tmp_path / "half", encoder[0].auto_model.to(torch.float16), encoder.tokenizer)
    assert load_encoder(str(tmp_path / "half"))[0].auto_model.dtype == torch.float32


def test_a_folder_saved_without_pooling_says_what_to_add(plain: Path, tmp_path: Path) -> None:
    encoder = SentenceTransformer(modules=[load_encoder(str(plain))[0]])
    encoder.save(str(tmp_path / "bare"))
    with pytest.raises(InputError, match=r"saved without pooling.*--pooling mean, cls or max"):
        load_encoder(str(tmp_path / "bare"))
    given = load_encoder(str(tmp_path / "bare"), pooling="mean")
    np.testing.assert_allclose(
        given.encode(TEXTS), load_encoder(str(plain)).encode(TEXTS), atol=1e-6
    )


def test_the_starter_encoder_tells_sentences_apart() -> None:
    encoder = load_encoder("starter-mlm")
    one, two, other = encoder.encode(
        ["A boy plays the drums.", "A boy is playing drums.", "Share prices fell on Monday."]
    )
    assert float(one @ two) / np.linalg.norm(two) > float(one @ other) / np.linalg.norm(other)


def test_a_tokenizer_without_padding_is_refused(plain: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(plain, tmp_path / "model"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "NoSuchTokenizer"}')
    with pytest.raises(InputError, match="has no padding token: set pad_token"):
        load_encoder(str(folder), pooling="mean")


def test_max_length_cuts_and_has_limits(plain: Path) -> None:
    short = load_encoder(str(plain), max_length=3)
    one, other = short.encode(["a man reads", "a dog sleeps"])
    # Some processors round the rows of one product differently.
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    for wrong in (2, 33):
        with pytest.raises(InputError, match="reads 3 to 32 tokens"):
            load_encoder(str(plain), max_length=wrong)
    with pytest.raises(InputError, match="pooling 'sum' is unknown: use mean, cls or max"):
        load_encoder("x", pooling="sum")


def test_the_fingerprint_follows_weights_and_pooling(plain: Path, tmp_path: Path) -> None:
    one = load_encoder(str(plain))
    assert fingerprint_encoder(one) == fingerprint_encoder(load_encoder(str(plain)))
    assert fingerprint_encoder(one) != fingerprint_encoder(load_encoder(str(plain), pooling="cls"))
    other = load_encoder(str(save_encoder(tmp_path, seed=1)))
    assert fingerprint_encoder(one) != fingerprint_encoder(other)
    with torch.no_grad():
        one[0].auto_model.encoder.layer[1].intermediate.dense.weight[37, 5] += 1e-3
    assert fingerprint_encoder(one) != fingerprint_encoder(load_encoder(str(plain)))


def test_banks_of_static_models_keep_their_fingerprint() -> None:
    assert fingerprint_encoder(tiny_static()) == "8c7636a90e30acc4"
    assert fingerprint_encoder(load_encoder("starter-static")) == "1bfca124bfc1b684"


def test_a_config_that_is_a_list_is_one_line(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "bert")
    (folder / "config.json").write_text("[[]]")
    with pytest.raises(InputError, match="does not load as a sentence encoder"):
        is_sentence_encoder(str(folder))


def test_a_hub_id_that_cannot_be_read_is_no_encoder() -> None:
    assert not is_sentence_encoder("no/such")
