"""What training on processors computes in its own ways is what torch computes."""

import pytest
import torch
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from tilth.models.processor_training import ProcessorLayers, _kept


@pytest.mark.parametrize(("tokens", "is_fused"), [(128, False), (129, True)])
@pytest.mark.parametrize("kind", ["bool", "added", "none", "causal"])
def test_attention_of_short_texts_is_not_fused_and_gives_the_same(
    tokens: int, kind: str, *, is_fused: bool
) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, tokens, 8) for _ in range(3)]
    mask = torch.rand(2, 1, tokens, tokens) < 0.9
    masks = {"bool": mask, "added": torch.where(mask, 0.0, -torch.inf)}
    options = {"attn_mask": masks.get(kind), "is_causal": kind == "causal"}
    expected = scaled_dot_product_attention(*inputs, **options)
    with profile(activities=[ProfilerActivity.CPU]) as calls, ProcessorLayers():
        found = scaled_dot_product_attention(*inputs, **options)
    assert torch.allclose(found, expected, atol=1e-6)
    assert any("flash" in call.key for call in calls.key_averages()) == is_fused


@pytest.mark.parametrize("kind", ["bool", "added", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_gradients_of_attention_are_torchs(p: float, dtype: torch.dtype, kind: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(4, 2, 3, 20, 8)
    masks = {"bool": torch.rand(2, 1, 1, 20) < 0.7, "added": torch.randn(1, 3, 20, 20)}
    found = []
    for is_ours in (True, False):
        torch.manual_seed(1)
        query, key, value, weights = (one.to(dtype).requires_grad_() for one in inputs.clone())
        mask = masks.get(kind)
        if kind == "added":
            mask = masks[kind].to(dtype).requires_grad_()
        if is_ours:
            with ProcessorLayers():
                out = scaled_dot_product_attention(query, key, value, mask, p)
        else:
            kept = _kept((2, 3, 20, 20), dtype, p) if p else 1
            scores = query @ key.mT / 8**0.5
            if kind == "bool":
                scores = scores.masked_fill(~masks[kind], -torch.inf)
            elif mask is not None:
                scores = scores + mask
            out = (scores.softmax(-1) * kept) @ value
        (out * weights).sum().backward()
        of_mask = [mask.grad] if kind == "added" and mask is not None else []
        found.append([out.detach(), query.grad, key.grad, value.grad, *of_mask])
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (0.05, 0.05)
    torch.testing.assert_close(found[0], found[1], rtol=rtol, atol=atol)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_keeps_its_share_and_the_mean(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(0)
    values = torch.ones(1001, 333, dtype=dtype, requires_grad=True)
    with ProcessorLayers():
        found = dropout(values, p)
        other = dropout(values, p)
    kept = found != 0
    assert torch.equal(found.unique(), torch.tensor([0, 1 / (1 - p)], dtype=dtype))
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=0.003)  # 3 standard errors
    both = (kept & (other != 0)).double().mean().item()
    independent = kept.double().mean().item() ** 2
    assert both == pytest.approx(independent, abs=0.003)
    found.float().sum().backward()
    assert found.double().mean().item() == pytest.approx(1, abs=0.004)
    assert torch.equal(values.grad, found.detach())  # type: ignore[arg-type]


def test_dropout_is_of_torchs_seed() -> None:
    values, found = torch.ones(100), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        with ProcessorLayers():
            found.append(dropout(values, 0.5))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_dropout_of_evaluation_is_none() -> None:
    values = torch.randn(10)
    with ProcessorLayers():
        assert torch.equal(dropout(values, 0.5, training=False), values)
        assert torch.equal(dropout(values, 0.0), values)
        assert not dropout(values, 1.0).any()
