"""The check of polarity, as it is shipped: the same for a pair in any batch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from tilth.errors import InputError
from tilth.models.polarity import Polarity, has_polarity, load_polarity, whole_weights


@pytest.fixture(scope="module")
def polarity() -> Polarity:
    return load_polarity(device="cpu", precision="float32")


def test_a_pair_says_the_same_alone_and_among_others(polarity: Polarity) -> None:
    first = ["The dog sleeps.", "A long walk by the sea, and back again before the rain.", "Yes."]
    second = ["The dog does not sleep.", "A walk by the sea.", "No."]
    together = polarity.probabilities(first, second)
    alone = [polarity.probabilities([a], [b])[0] for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert polarity.probabilities([], []).shape == (0,)


def test_the_update_is_added_to_the_matrices() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    down, up = torch.ones(1, 3), torch.tensor([[1.0], [2.0]])
    bias = torch.tensor([5.0, 6.0])
    found = whole_weights(
        model, {"0.update_down": down.half(), "0.update_up": up.half(), "0.bias": bias.half()}
    )
    torch.testing.assert_close(
        found["0.weight"] - model[0].weight, torch.tensor([[1.0] * 3, [2.0] * 3])
    )
    assert found["0.bias"].tolist() == [5.0, 6.0]


def test_without_the_starter_models_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tilth_starter", None)
    assert not has_polarity()
    with pytest.raises(InputError, match="pip install tilth-starter"):
        load_polarity()
