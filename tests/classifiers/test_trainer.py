from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, softmax

from tilth.classifiers.settings import Finetuning
from tilth.classifiers.trainer import divergence, smooth_labels, soft_label_loss

LOGITS = torch.tensor([[1.0, 0.0, -1.0], [0.2, 0.1, 3.0]])


def test_the_divergence_is_kl_and_for_one_label_cross_entropy() -> None:
    classes = torch.tensor([0, 1])
    hard = torch.eye(3)[classes]
    torch.testing.assert_close(
        divergence(LOGITS, hard, "class"), cross_entropy(LOGITS, classes, reduction="none")
    )
    soft = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]])
    model = softmax(LOGITS, -1)
    expected = torch.where(soft > 0, soft * (soft / model).log(), 0.0).sum(-1)
    torch.testing.assert_close(divergence(LOGITS, soft, "tags"), expected)


@pytest.mark.parametrize("kind", ["class", "multi", "tags"])
def test_a_step_against_the_gradient_raises_the_wanted_label(kind: Any) -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    divergence(logits, torch.tensor([[0.0, 1.0, 0.0]]), kind).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 1] < 0
    assert (logits.grad[0, [0, 2]] > 0).all()


def test_the_binary_divergence_asks_each_label_by_itself() -> None:
    target = torch.tensor([[0.9, 0.8]])
    best = divergence(torch.logit(target), target, "multi")
    for shift in (-0.5, 0.5):
        assert divergence(torch.logit(target) + shift, target, "multi") > best


def test_smoothing_spreads_a_share() -> None:
    target = torch.tensor([[1.0, 0.0]])
    torch.testing.assert_close(smooth_labels(target, 0.2, "class"), torch.tensor([[0.9, 0.1]]))
    wide = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    torch.testing.assert_close(
        smooth_labels(wide, 0.2, "multi"), torch.tensor([[0.9, 0.1, 0.9, 0.1]])
    )
    torch.testing.assert_close(
        smooth_labels(torch.eye(4)[:1], 0.2, "tags"), torch.tensor([[0.85, 0.05, 0.05, 0.05]])
    )
    assert smooth_labels(target, 0.0, "class") is target


def test_weights_count() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    batch = {"targets": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}
    model: Any = lambda **_: SimpleNamespace(logits=logits)  # noqa: E731
    classifier: Any = SimpleNamespace(kind="class")
    loss = soft_label_loss(classifier, Finetuning(), bfloat16=False)
    each = divergence(logits, batch["targets"], "class")
    assert float(loss(model, batch)) == pytest.approx(float(each.mean()))
    weighted = loss(model, {**batch, "weights": torch.tensor([1.5, 0.5])})
    assert float(weighted) == pytest.approx(float(1.5 * each[0] + 0.5 * each[1]) / 2)
