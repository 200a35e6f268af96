"""Models whose weights are laid out once, against the models themselves."""

import pytest
import torch

from tests.tiny.models import tiny_lm
from tilth.models import packed_weights
from tilth.models.cores import share_weights
from tilth.models.packed_weights import with_packed_weights

# oneDNN refuses to lay out bfloat16 elsewhere; there `auto` is float32, and no model is laid out.
needs_bfloat16 = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.cpu._is_avx512_supported()),
    reason="oneDNN has no bfloat16 products here",
)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weights, "choose_precision", lambda *_: torch.bfloat16)


@needs_bfloat16
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@torch.inference_mode()
def test_the_logits_are_the_same_and_the_model_stays_as_it_was(kind: str) -> None:
    model = tiny_lm(kind).model.bfloat16().eval()
    ids = torch.arange(2 * 30).reshape(2, 30) % 40 + 5
    expected = model(input_ids=ids).logits
    packed = with_packed_weights(model)
    laid_out = [one for one in packed.modules() if "forward" in vars(one)]
    assert len(laid_out) > 4
    assert not any("forward" in vars(one) for one in model.modules())
    for ours in (packed, share_weights(packed)):
        torch.testing.assert_close(ours(input_ids=ids).logits, expected, rtol=0.02, atol=0.02)
    owned = {one.data_ptr() for one in model.parameters()}
    assert {one.data_ptr() for one in packed.parameters()} == owned


@needs_bfloat16
@torch.inference_mode()
def test_weights_in_float32_are_laid_out_for_autocast_alone() -> None:
    model = tiny_lm("bert").model.eval()
    ids = torch.arange(60)[None] % 40 + 5
    assert with_packed_weights(model) is model
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(input_ids=ids).logits
        found = with_packed_weights(model, is_cast=True)(input_ids=ids).logits
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@needs_bfloat16
def test_nothing_is_laid_out_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm("gpt2").model.bfloat16()
    assert with_packed_weights(model) is not model
    monkeypatch.setattr(packed_weights, "free_memory", lambda _: 100)
    assert with_packed_weights(model) is model


def test_nothing_is_laid_out_where_bfloat16_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm("gpt2").model.bfloat16()
    monkeypatch.setattr(packed_weights, "choose_precision", lambda *_: torch.float32)
    assert with_packed_weights(model) is model
