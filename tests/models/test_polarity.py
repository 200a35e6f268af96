"""The check of polarity, as it is shipped: what it finds of pairs written for this project."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tilth.errors import InputError
from tilth.models.polarity import (
    Polarity,
    add_low_rank_update,
    has_polarity,
    has_prefixed,
    load_polarity,
)

PAIRS = Path(__file__).parents[1] / "paraphrase"


@pytest.fixture(scope="module")
def polarity() -> Polarity:
    return load_polarity(device="cpu", precision="float32")


@pytest.mark.parametrize(
    ("name", "found", "false_alarms"),
    [
        ("polarity_pairs.tsv", 0.85, 0.06),
        ("polarity_fresh.tsv", 0.7, 0.1),
        ("meaning_pairs.tsv", 0.45, 0.03),  # a quarter of the flips exchange roles: none is found
    ],
)
def test_flips_are_found_and_harmless_rewrites_are_not(
    polarity: Polarity, name: str, found: float, false_alarms: float
) -> None:
    with (PAIRS / name).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    flips = np.array([row.get("label", row["kind"]) not in ("same",) for row in rows])
    assert flips.mean() == 0.5
    said = polarity.flips([row["first"] for row in rows], [row["second"] for row in rows])
    assert said[flips].mean() >= found
    assert said[~flips].mean() <= false_alarms


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
    found = add_low_rank_update(
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


@pytest.mark.parametrize(
    ("first", "second", "differs"),
    [
        ("The answer is correct.", "The answer was incorrect.", True),
        ("He isn't kind.", "He isn\u2019t unkind.", True),
        ("He is not kind.", "He is unkind.", False),
        ("We were informed of the form.", "We were told of the inform.", False),
        ("It is kind.", "It is a kind one.", False),
    ],
)
def test_prefixes_are_compared_by_rule(first: str, second: str, differs: bool) -> None:
    assert has_prefixed(first, second) == has_prefixed(second, first) == differs
