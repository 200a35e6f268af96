from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from tilth.classifiers.trainer import binary_divergence, divergence, smoothed, weighted_mean

LOGITS = torch.tensor([[1.0, 0.0, -1.0], [0.2, 0.1, 3.0]])


def test_the_divergence_is_kl_and_for_one_label_cross_entropy() -> None:
    classes = torch.tensor([0, 1])
    hard = torch.eye(3)[classes]
    torch.testing.assert_close(
        divergence(LOGITS, hard), cross_entropy(LOGITS, classes, reduction="none")
    )
    soft = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]])
    model = softmax(LOGITS, -1)
    expected = torch.where(soft > 0, soft * (soft / model).log(), 0.0).sum(-1)
    torch.testing.assert_close(divergence(LOGITS, soft), expected)


def test_the_divergence_is_least_where_the_model_agrees() -> None:
    soft = torch.tensor([[0.5, 0.3, 0.2]])
    assert float(divergence(soft.log(), soft)) == pytest.approx(0, abs=1e-6)
    losses = [float(divergence((soft + shift).log(), soft)) for shift in (
        torch.tensor([[0.02, -0.01, -0.01]]), torch.tensor([[0.2, -0.1, -0.1]]))]  # fmt: skip
    assert 0 < losses[0] < losses[1]


@pytest.mark.parametrize("loss", [divergence, binary_divergence])
def test_a_step_against_the_gradient_raises_the_wanted_label(loss: object) -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    loss(logits, torch.tensor([[0.0, 1.0, 0.0]])).sum().backward()  # type: ignore[operator]
    assert logits.grad is not None
    assert logits.grad[0, 1] < 0
    assert (logits.grad[0, [0, 2]] > 0).all()


def test_the_binary_divergence_asks_each_label_by_itself() -> None:
    target = torch.tensor([[0.9, 0.8]])
    best = binary_divergence(torch.logit(target), target)
    for shift in (-0.5, 0.5):
        assert binary_divergence(torch.logit(target) + shift, target) > best


def test_smoothing_spreads_a_share() -> None:
    target = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(smoothed(target, 0.2, "class"), torch.tensor([[0.9, 0.1]]))
    wide = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    torch.testing.assert_close(smoothed(wide, 0.2, "multi"), torch.tensor([[0.9, 0.1, 0.9, 0.1]]))
    torch.testing.assert_close(
        smoothed(torch.eye(4)[:1], 0.2, "tags"), torch.tensor([[0.85, 0.05, 0.05, 0.05]])
    )
    assert smoothed(target, 0.0, "class") is target


def test_weights_count() -> None:
    losses = torch.tensor([1.0, 3.0])
    assert float(weighted_mean(losses, None)) == 2
    assert float(weighted_mean(losses, torch.tensor([1.5, 0.5]))) == 1.5
