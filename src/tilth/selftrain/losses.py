"""How far a model's outputs are from the probabilities it should give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, log_softmax

if TYPE_CHECKING:
    from torch import Tensor

    from tilth.models.classifier import Kind


def divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the model from the targets, in nats.

    For targets of one label it is the cross entropy.

    Args:
        logits: outputs. # (..., labels)
        targets: probabilities that add up to 1. # (..., labels)

    Reference:
        Du et al. 2021, section 2.2.
    """
    each = kl_div(log_softmax(logits.float(), dim=-1), targets, reduction="none")
    return each.sum(dim=-1)  # (...)


def binary_divergence(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of labels that are drawn each by itself, in nats.

    Args:
        logits: outputs. # (..., labels)
        targets: the probability of each label. # (..., labels)
    """
    each = binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
    return each.mean(dim=-1)  # (...)


def smoothed(targets: Tensor, share: float, kind: Kind) -> Tensor:
    """Return targets of which a share is spread evenly: over the labels, or over yes and no."""
    if not share:
        return targets
    even = 0.5 if kind == "multi" else 1 / targets.shape[-1]
    return (1 - share) * targets + share * even


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean of some losses times their weights, which are 1 on average in the set."""
    if weights is None:
        return losses.mean()
    return (losses * weights).mean()
