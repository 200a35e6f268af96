from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cosine_similarity

from tests.tiny import tiny_static
from tilth.encoders.triplet import (
    TripletLoss,
    same_text_mask,
    same_text_mask_with_negatives,
    triplet_loss,
)

ALONE = torch.eye(3, dtype=torch.bool)


def at(*degrees: float) -> torch.Tensor:
    """Return unit vectors of the plane at some angles."""
    angles = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return torch.stack([angles.cos(), angles.sin()], 1)


def loss(x: torch.Tensor, y: torch.Tensor, margin: float = 0.4) -> float:
    return float(triplet_loss(x, y, ALONE, margin))


def test_a_nearer_partner_lowers_the_loss_and_a_nearer_negative_raises_it() -> None:
    x = at(0, 120, 240)
    plain = loss(x, at(60, 120, 240), 1.5)
    assert loss(x, at(40, 120, 240), 1.5) < plain < loss(x, at(80, 120, 240), 1.5)
    # A stranger to the third pair comes nearer to its x, and nothing else changes for the others.
    others = torch.tensor([[1, 1, 1], [1, 1, 1], [0, 1, 1]], dtype=torch.bool)
    far, near = (float(triplet_loss(x, at(angle, 120, 240), others, 1.5)) for angle in (60, -60))
    assert near > far


def test_the_value_is_the_papers_formula_with_the_hardest() -> None:
    x, y = at(0, 90, 200), at(30, 80, 350)
    cos = np.cos
    rad = np.deg2rad
    hinges = [
        0.4 - cos(rad(30)) + cos(rad(10)),  # 350 is nearer to 0 than 80 is
        0.4 - cos(rad(10)) + cos(rad(60)),  # 30, not 350
        0.4 - cos(rad(150)) + cos(rad(120)),  # 80, not 30
    ]
    expected = np.mean([max(0, hinge) for hinge in hinges])
    assert loss(x, y) == pytest.approx(expected)
    assert loss(3 * x, 0.2 * y) == pytest.approx(expected)  # lengths do not count


@given(st.integers(2, 7), st.integers(0, 999))
def test_it_is_the_loop(pairs: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(pairs, 4, generator=rng, dtype=torch.float64) for _ in range(2))
    names = torch.randint(0, 2 * pairs, (pairs, 2), generator=rng)
    hinges = []
    for i in range(pairs):
        others = [
            float(cosine_similarity(x[i], y[j], dim=0))
            for j in range(pairs)
            if not set(names[i].tolist()) & set(names[j].tolist())
        ]
        own = float(cosine_similarity(x[i], y[i], dim=0))
        hinges.append(max(0.0, 0.3 - own + max(others)) if others else 0.0)
    found = float(triplet_loss(x, y, same_text_mask(names), 0.3))
    assert found == pytest.approx(sum(hinges) / pairs, abs=1e-9)


def test_pairs_that_share_a_text_or_group_are_no_negatives() -> None:
    names = torch.tensor([[1, 2, 100], [3, 2, 101], [4, 1, 102], [5, 6, 103], [7, 8, 103]])
    expected = [
        [1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1],
    ]  # fmt: skip
    assert same_text_mask(names).int().tolist() == expected


def test_the_duplicate_of_a_partner_does_not_count() -> None:
    x, y = at(0, 5, 180), at(20, 20, 200)
    shared = torch.eye(3, dtype=torch.bool)
    with_duplicate = float(triplet_loss(x, y, shared, 0.4))
    shared[0, 1] = shared[1, 0] = True
    assert float(triplet_loss(x, y, shared, 0.4)) < with_duplicate


def test_gradients_pull_the_partner_and_push_the_hardest_alone() -> None:
    x = at(0, 120, 240)
    y = at(50, 20, 300).requires_grad_()
    only_first = torch.tensor([[1, 0, 0], [1, 1, 1], [1, 1, 1]], dtype=torch.bool)
    triplet_loss(x, y, only_first, 0.4).backward()
    with torch.no_grad():
        after = y - 0.01 * y.grad  # type: ignore[operator]
        before, moved = (cosine_similarity(x[:1], vectors) for vectors in (y, after))
    assert moved[0] > before[0]
    assert moved[1] < before[1]
    assert moved[2] == before[2]


def test_pairs_without_a_negative_have_no_loss_and_finite_gradients() -> None:
    x, y = at(0, 90).requires_grad_(), at(40, 50).requires_grad_()
    value = triplet_loss(x, y, torch.ones(2, 2, dtype=torch.bool), 0.4)
    value.backward()
    assert float(value.detach()) == 0
    for vectors in (x, y):
        assert vectors.grad is not None
        assert not vectors.grad.any()


def test_the_module_encodes_both_columns() -> None:
    encoder = tiny_static()
    texts = (["the man", "a red boat", "two birds"], ["a man", "the boat", "three"])
    features = [encoder.preprocess(column) for column in texts]
    names = torch.tensor([[1, 2], [3, 4], [5, 6]])
    found = TripletLoss(encoder, 0.4)(features, names)
    x, y = (torch.from_numpy(encoder.encode(column)) for column in texts)
    assert float(found.detach()) == pytest.approx(loss(x, y), abs=1e-6)
    assert float(TripletLoss(encoder, 0.1)(features, names).detach()) < float(found.detach())


def test_a_hard_negative_is_one_of_every_pair_that_does_not_hold_it() -> None:
    names = torch.tensor([[1, 2, 100, 7], [3, 4, 101, 2], [5, 6, 102, 0], [7, 8, 103, 9]])
    expected = [
        [1, 0, 0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1, 0, 1, 0],
    ]  # fmt: skip
    assert same_text_mask_with_negatives(names).int().tolist() == expected


def test_gradients_push_a_hard_negative_away_where_it_is_the_hardest() -> None:
    x = at(0, 120, 240)
    names = torch.tensor([[1, 2, 1, 10], [3, 4, 3, 11], [5, 6, 5, 0]])
    shared = same_text_mask_with_negatives(names)
    shared[1:] = True  # the first pair alone has negatives
    own = at(40, 130, 250)
    plain = float(triplet_loss(x, own, shared[:, :3], 1.9))
    for angle, is_hard in ((30, True), (60, True), (-170, False)):
        y = torch.cat([own, at(angle, 180, 0)]).requires_grad_()
        value = triplet_loss(x, y, shared, 1.9)
        value.backward()
        assert (float(value.detach()) > plain) == is_hard
        with torch.no_grad():
            moved = cosine_similarity(x[:1], y - 0.01 * y.grad)  # type: ignore[operator]
        before = cosine_similarity(x[:1], y.detach())
        assert (moved[3] < before[3]) == is_hard
        assert moved[5] == before[5]  # at x itself, but it is no pair's negative


def test_the_module_encodes_hard_negatives_too() -> None:
    encoder = tiny_static()
    texts = (["the man", "a red boat"], ["a man", "the boat"], ["the men", "two birds"])
    features = [encoder.preprocess(column) for column in texts]
    names = torch.tensor([[1, 2, 1, 7], [3, 4, 3, 0]])
    found = TripletLoss(encoder, 1.9)(features, names)
    x, y, z = (torch.from_numpy(encoder.encode(column)) for column in texts)
    shared = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 1]], dtype=torch.bool)
    expected = triplet_loss(x, torch.cat([y, z]), shared, 1.9)
    assert float(found.detach()) == pytest.approx(float(expected), abs=1e-6)
    without = TripletLoss(encoder, 1.9)(features[:2], names[:, :3])
    assert float(found.detach()) > float(without.detach())
