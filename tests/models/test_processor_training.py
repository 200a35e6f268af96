"""What training on processors computes in its own ways is what torch computes."""

import pytest
import torch
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from tilth.models.processor_training import ProcessorLayers


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
    assert both == pytest.approx((1 - p) ** 2, abs=0.003)  # the masks are independent
    found.float().sum().backward()
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
