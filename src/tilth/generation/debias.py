"""Self-debiased sampling as pure functions of tensors (DINO, section 3; Schick et al. 2021).

Per token: softmax over the whole vocabulary for the label's and each counter label's prompt;
penalty on tokens that a counter label makes likelier; temperature, top-k, top-p; one draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from tilth.generation.settings import Sampling
from tilth.models.best_tokens import largest_logits, log_totals

# torch.topk says nothing about the order of equal values, and bf16 logits are often equal: this
# many entries beyond k are fetched so that ties at the k-th place are all seen.
_TIES = 8
_FIRST_WIDTH = 512
_SHORTLIST = 64


def debiased_distribution(
    logits: Tensor, members: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens each group may draw, their probabilities and factors, (groups, width).

    With top-k, a shortlist usually suffices: factors are at most 1, so a token whose own
    probability is below the k-th weight of the shortlist cannot enter the first k. Groups for
    which that proves nothing use the whole vocabulary.

    Args:
        logits: (rows, vocab), of any floating type.
        members: (groups, members): a group's rows in `logits`, its own label's first; a row that
            is listed as its own counter changes nothing.
    """
    top_k = sampling.top_k
    if not 0 < top_k <= _SHORTLIST // 2 or logits.shape[-1] <= _SHORTLIST:
        return _weigh_vocabulary(logits, members, sampling)
    totals = log_totals(logits)
    tops, shortlist = largest_logits(logits, members[:, 0], _SHORTLIST)  # (groups, shortlist)
    outside = (tops[:, -1] - totals[members[:, 0]]).exp()  # no token left out is likelier
    shortlist, _ = shortlist.sort(dim=-1)  # (groups, shortlist)
    probabilities = [
        (logits[rows[:, None], shortlist].float() - totals[rows, None]).exp() for rows in members.T
    ]
    ids, kept, factors = _weigh(probabilities, sampling)
    last = probabilities[0].gather(-1, ids[:, top_k - 1 : top_k])[:, 0] * factors[:, top_k - 1]
    ids = shortlist.gather(-1, ids)
    unproven = (last <= outside).nonzero()[:, 0]
    if len(unproven):
        full = _weigh_vocabulary(logits, members[unproven], sampling)
        for part, whole in zip((ids, kept, factors), full, strict=True):
            part[unproven] = whole
    return ids, kept, factors


def _weigh_vocabulary(
    logits: Tensor, members: Tensor, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor]:
    return _weigh([logits[rows].float().softmax(-1) for rows in members.T], sampling)


def _weigh(probabilities: Sequence[Tensor], sampling: Sampling) -> tuple[Tensor, Tensor, Tensor]:
    """Weight tokens by their own and counter labels' probabilities, each (groups, tokens)."""
    own, *counters = probabilities
    factors = torch.ones_like(own)
    if counters:
        counter = reduce(torch.maximum, counters)
        factors = penalty(own, counter, decay=sampling.decay, floor=sampling.floor)
    ids, kept = truncated_distribution(
        own * factors, sampling.temperature, sampling.top_k, sampling.top_p
    )
    return ids, kept, factors.gather(-1, ids)


def penalty(own: Tensor, counter: Tensor, *, decay: float, floor: float) -> Tensor:
    """Return the factor alpha for each token, in [floor, 1], (rows, vocab).

    alpha = max(exp(decay * min(0, p_own - p_counter)), floor): 1 where the label's own prompt
    makes the token at least as likely as every counter label's prompt does.

    Args:
        own: probabilities given the label's prompt, (rows, vocab).
        counter: elementwise maximum of the probabilities given the counter prompts, same shape.
        decay: lambda, at least 0.
        floor: epsilon, 0 to 1.

    Reference:
        Schick and Schütze 2021 (arXiv 2104.07540), section 3; the floor is the original code's.
    """
    return (own - counter).clamp_(max=0).mul_(decay).exp_().clamp_(min=floor)


def truncated_distribution(
    weights: Tensor, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Apply temperature, top-k and top-p; return token ids and probabilities, (rows, width).

    The likeliest come first, equal ones by id; tokens not kept have probability 0.

    Args:
        weights: probabilities up to a factor per row, (rows, vocab), float32.
        temperature: above 0; 1 leaves the probabilities as they are.
        top_k: keep the k likeliest (of ties at the k-th place up to eight more); 0 keeps all.
        top_p: of these keep the smallest set of the likeliest with at least this probability;
            1 keeps all.
    """
    if temperature != 1.0:
        weights = weights.log().div_(temperature).softmax(-1)  # (rows, vocab)
    vocab = weights.shape[-1]
    if top_k > 0:
        ids, kept = _largest(weights, min(top_k + _TIES, vocab))  # (rows, width)
        if top_k < vocab:
            kept = kept.masked_fill(kept < kept[:, top_k - 1 : top_k], 0)
        total = kept.sum(-1, keepdim=True)  # (rows, 1)
    else:
        total = weights.sum(-1, keepdim=True)  # (rows, 1)
        width = vocab if top_p >= 1.0 else min(_FIRST_WIDTH, vocab)
        ids, kept = _largest(weights, width)
        while width < vocab and bool((kept.sum(-1, keepdim=True) < top_p * total).any()):
            width = min(4 * width, vocab)
            ids, kept = _largest(weights, width)
    shares = kept / total  # (rows, width)
    if top_p < 1.0:
        before = shares.cumsum(-1) - shares  # probability of all likelier tokens
        shares = shares.masked_fill(before >= top_p, 0)
    return ids, shares / shares.sum(-1, keepdim=True)


def _largest(weights: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return ids and values of the largest entries of each row: by value, then by id."""
    values, ids = weights.topk(width, dim=-1)
    ids, by_id = ids.sort(dim=-1)
    values, by_value = values.gather(-1, by_id).sort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, by_value), values


def sample_indices(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Draw one index per row, (rows, 1), by inverting the cumulative distribution.

    Args:
        probabilities: (rows, width), each row sums to 1, zeros last.
        uniform: (rows,), in [0, 1).
    """
    cumulative = probabilities.cumsum(-1)  # (rows, width)
    last = (probabilities > 0).sum(-1, keepdim=True).clamp(min=1) - 1
    index = (cumulative <= uniform[:, None]).sum(-1, keepdim=True)  # (rows, 1)
    return torch.minimum(index, last)
