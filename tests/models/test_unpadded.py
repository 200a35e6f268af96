"""Encoders without padding give what they give with it."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from tests.tiny.models import salads, save_model, word_tokenizer
from tilth.models import load_encoder
from tilth.models.cores import share_weights
from tilth.models.embed import embed, unit
from tilth.models.kernel_arrays import attend_texts, gelu_gate, gelu_gate_gradient
from tilth.models.unpadded import first_tokens, is_unpadded, unpadded

KINDS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "modernbert")
LENGTHS = (1, 9, 16, 0, 4, 37)


@pytest.mark.parametrize("size", [16, 32, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_kernel_equals_torch(dtype: torch.dtype, size: int) -> None:
    torch.manual_seed(0)
    starts = np.append(0, np.cumsum(LENGTHS))
    query, key, value = 3 * torch.randn(3, starts[-1] + 2, 2, size).to(dtype)
    keys, values = key.transpose(0, 1), value.transpose(0, 1)
    out = attend_texts(
        query, keys, values, starts, starts[:-1] * 2 * size, np.array(LENGTHS), scale=0.2,
        is_causal=False,
    )  # fmt: skip
    for start, end in pairwise(starts):
        one, two, three = (side[start:end].double().transpose(0, 1) for side in (query, key, value))
        expected = (one @ two.mT / 5).softmax(-1) @ three
        assert_equal(out[start:end].transpose(0, 1), expected)
    assert not out[starts[-1] :].any()


@pytest.mark.parametrize(("before", "new"), [(0, 1), (0, 7), (5, 4), (30, 21)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_kernel_equals_torch_where_tokens_read_what_came_before(
    dtype: torch.dtype, before: int, new: int
) -> None:
    torch.manual_seed(0)
    rows, end = 3, before + new
    query = 3 * torch.randn(rows, new, 6, 16).to(dtype)
    keys, values = 3 * torch.randn(2, rows, 2, end + 9, 16).to(dtype)[..., :end, :]
    out = attend_texts(
        query.flatten(0, 1), keys[0], values[0], np.arange(rows + 1) * new,
        np.arange(rows) * keys.stride(0), np.full(rows, end), scale=0.2, is_causal=True,
    )  # fmt: skip
    keys, values = (side.double().repeat_interleave(3, 1) for side in (keys, values))
    scores = query.double().transpose(1, 2) @ keys.mT / 5
    hidden = torch.ones(new, end, dtype=torch.bool).triu(before + 1)
    expected = scores.masked_fill(hidden, -math.inf).softmax(-1) @ values
    assert_equal(out.view(query.shape).transpose(1, 2), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gelu_times_a_gate_and_its_gradient_equal_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    wide, above = (3 * torch.randn(1, 21, width).to(dtype) for width in (96, 48))
    wide[0, :4, :48] = torch.tensor([0.0, 30.0, -30.0, -6.0]).to(dtype)[:, None]
    exact = wide.double().requires_grad_()
    values, gates = exact.chunk(2, dim=-1)
    expected = gelu(values) * gates
    expected.backward(above.double())
    assert_equal(gelu_gate(wide), expected.detach())
    assert exact.grad is not None
    assert_equal(gelu_gate_gradient(wide, above), exact.grad)
    wide[0, 5, 7] = math.nan
    assert gelu_gate(wide).isnan().nonzero().tolist() == [[0, 5, 7]]


def assert_equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    # bfloat16 is rounded to one part in 256; products of 50 are exact to 1e-5 of their weight.
    rtol = 4.1e-3 if found.dtype == torch.bfloat16 else 2e-5
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=2e-5)


def made(kind: str, auto_class: Any = AutoModelForSequenceClassification, **changed: Any) -> Any:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 64, "max_position_embeddings": 40, "num_labels": 3,
        "vocab_size": len(word_tokenizer()), "pad_token_id": 0,
    }  # fmt: skip
    if kind == "modernbert":  # two layers attend to 4 tokens on each side, one to all
        shape |= {"num_hidden_layers": 3, "local_attention": 8}
        shape |= dict.fromkeys(("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id"), 1)
    config = AutoConfig.for_model(kind, **(shape | changed))
    model = auto_class.from_config(config).eval()
    with torch.no_grad():  # else attention is nearly uniform
        for name, weight in model.named_parameters():
            weight.mul_(1 if "norm" in name.lower() else 8)
    return model


def padded_batch(side: str = "right") -> Any:
    texts = [*salads(5), "a", "man sleeps"]
    return word_tokenizer()(
        texts, padding=True, padding_side=side, return_tensors="pt", return_token_type_ids=False
    )


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_texts_have_the_logits_they_have_with_padding(kind: str) -> None:
    model, inputs = made(kind), padded_batch()
    expected = model(**inputs).logits
    for first_only in (False, True):
        with unpadded(model, first_only=first_only):
            assert is_unpadded(model)
            torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
            copied = share_weights(model)
        torch.testing.assert_close(copied(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
    assert not is_unpadded(model)
    assert torch.equal(model(**inputs).logits, expected)
    with first_tokens(model):
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_tokens_have_the_logits_they_have_with_padding(kind: str) -> None:
    model, inputs = made(kind, AutoModelForTokenClassification), padded_batch()
    expected = model(**inputs).logits
    with unpadded(model):
        found = model(**inputs).logits
    there = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[there], expected[there], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
@pytest.mark.parametrize("learns", [False, True])
def test_a_batch_may_be_padded_before_its_texts(kind: str, *, learns: bool) -> None:
    model = made(kind, AutoModelForTokenClassification)
    inputs = padded_batch("left")
    there = inputs["attention_mask"].bool()
    assert not there[:, 0].all()
    with torch.set_grad_enabled(learns):
        expected = model(**inputs).logits
        with unpadded(model):
            found = model(**inputs).logits
    torch.testing.assert_close(found[there], expected[there], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_full", [False, True])
def test_weights_have_the_gradients_they_have_with_padding(kind: str, *, is_full: bool) -> None:
    inputs = padded_batch()
    if is_full:  # a batch that stays as it is
        inputs = {name: value[:5, :10] for name, value in inputs.items()}
        inputs["attention_mask"][0, -2:] = 0
        assert inputs["attention_mask"].sum() == 48
    labels = torch.arange(len(inputs["input_ids"])) % 3
    gradients, losses = [], []
    for kept in (False, True):
        model = made(kind, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        with unpadded(model) if kept else nullcontext():
            assert is_unpadded(model) == kept
            losses.append(model(**inputs, labels=labels).loss)
        losses[-1].backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters()})
    torch.testing.assert_close(*losses)
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, rtol=1e-3, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize(
    "changed", [{"hidden_activation": "relu"}, {"intermediate_size": 40}, {"mlp_dropout": 0.5}]
)
def test_other_feed_forward_layers_compute_what_they_do(changed: dict[str, Any]) -> None:
    model, inputs = made("modernbert", **changed), padded_batch()
    expected = model(**inputs).logits
    with unpadded(model):
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=1e-4, atol=1e-4)
        model.train()
        outputs = [model(**inputs).logits for _ in range(2)]
    assert torch.equal(*outputs) == ("mlp_dropout" not in changed)


@torch.inference_mode()
def test_gelu_and_gate_are_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Any] = []
    monkeypatch.setattr("tilth.models.unpadded.gelu_gate", lambda wide: passes.append(wide.shape)
                        or gelu_gate(wide))  # fmt: skip
    model, inputs = made("modernbert"), padded_batch()
    model(**inputs)
    assert not passes
    with unpadded(model):
        model(**inputs)
    assert [shape[-1] for shape in passes] == [128] * 3


@torch.inference_mode()
def test_texts_do_not_depend_on_others() -> None:
    model, inputs = made("bert"), padded_batch()
    with unpadded(model, first_only=True):
        together = model(**inputs).logits
        for row, mask in enumerate(inputs["attention_mask"]):
            alone = inputs["input_ids"][row : row + 1, : int(mask.sum())]
            torch.testing.assert_close(model(alone).logits[0], together[row], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("bert", {"num_attention_heads": 4}), ("distilbert", {}), ("bert", {"is_decoder": True}),
        ("bert", {"output_hidden_states": True}),
    ],
)  # fmt: skip
@torch.inference_mode()
def test_other_models_run_as_they_do(kind: str, changed: dict[str, Any]) -> None:
    model, inputs = made(kind), padded_batch()
    for name, value in changed.items():
        setattr(model.config, name, value)
    expected = model(**inputs).logits
    with unpadded(model, first_only=True):
        assert not is_unpadded(model)
        assert torch.equal(model(**inputs).logits, expected)


def test_embeddings_are_sentence_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load_encoder(str(save_model(tmp_path / "bert", made("bert").bert)), device="cpu")
    texts = salads(40)
    expected = encoder.encode(texts)
    monkeypatch.setattr("tilth.models.embed._AT_ONCE", 7)
    threads = torch.get_num_threads()
    for count in (1, 3):
        torch.set_num_threads(count)
        try:
            found = embed(encoder, texts, dtype=torch.float32)
            assert torch.get_num_threads() == count
        finally:
            torch.set_num_threads(threads)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert embed(encoder, []).shape == (0, 32)


def test_texts_whose_scores_are_no_numbers_are_none_and_harm_no_other() -> None:
    query, key, value = torch.randn(3, 20, 1, 16)
    key[3] = math.nan
    out = attend_texts(
        query, key.transpose(0, 1), value.transpose(0, 1), np.array([0, 9, 20]),
        np.array([0, 9 * 16]), np.array([9, 11]), scale=1, is_causal=False,
    )  # fmt: skip
    assert out[:9].isnan().all()
    assert not out[9:].isnan().any()


def test_unit_vectors_keep_zeros_and_what_is_not_finite() -> None:
    found = unit(np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1]], np.float32))
    np.testing.assert_allclose(found[:2], [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert not np.isfinite(found[2:]).all(axis=1).any()
