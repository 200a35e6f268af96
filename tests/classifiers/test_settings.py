from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilth.classifiers.settings import Adaptation, Finetuning
from tilth.errors import InputError, TilthError


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"epochs": 0}, "epochs is 0: give a number above 0"),
        ({"batch": 0}, "batch is 0: give a whole number from 1"),
        ({"batch": 1.5}, "batch is 1.5: give a whole number"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0: give a number above 0"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"warmup": 1.0}, "warmup is 1.0: give a number from 0 to below 1"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"dropout": 1.0}, "dropout is 1.0: give a number from 0 to below 1"),
        ({"dropout": "much"}, "dropout is 'much'"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"max_length": 3}, "max_length is 3: give a whole number from 4"),
        ({"precision": "float16"}, "precision 'float16' is unknown: use auto, float32 or bfloat16"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**32}, "seed is 4294967296: give a whole number from 0"),
        ({"epochs": float("nan")}, "epochs is nan"),
    ],
)
def test_wrong_settings(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Finetuning(**setting)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"masked": 0.0}, "masked is 0.0: give a number above 0, below 1"),
        ({"masked": 1.0}, "masked is 1.0"),
        ({"save_every": 0}, "save_every is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"max_length": 2}, "max_length is 2"),
        ({"precision": "x"}, "precision 'x' is unknown"),
    ],
)
def test_wrong_settings_of_an_adaptation(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Adaptation(**setting)


def test_the_starters_have_learning_rates_of_their_own() -> None:
    rates = {
        base: Finetuning().for_base(base).learning_rate
        for base in ("roberta-large", "starter-mlm", "starter-encoder", "starter-small")
    }
    assert rates == {
        "roberta-large": 1e-5, "starter-mlm": 3e-4, "starter-encoder": 1e-4, "starter-small": 5e-4,
    }  # fmt: skip
    assert Finetuning(learning_rate=2e-5).for_base("starter-mlm").learning_rate == 2e-5
    assert Adaptation().for_base("starter-mlm").learning_rate == 5e-4
    assert Adaptation().for_base("x").learning_rate == 1e-4
    assert Adaptation(learning_rate=2e-5).for_base("x").learning_rate == 2e-5


@pytest.mark.parametrize(
    ("settings", "rows", "steps", "every"),
    [
        (Finetuning(), 1600, 300, 30),  # ten times
        (Finetuning(), 300, 200, 19),  # of few rows more passes
        (Finetuning(), 40, 60, 3),  # but 20 at most
        (Finetuning(epochs=50), 160, 500, 10),  # each epoch
        (Finetuning(epochs=0.5), 17, 1, 1),
        (Finetuning(batch=4, evaluate_every=7, epochs=3), 17, 15, 7),
        (Finetuning(batch=1000, epochs=1), 10, 1, 1),
    ],
)
def test_steps_and_measurements(settings: Finetuning, rows: int, steps: int, every: int) -> None:
    assert settings.steps(rows) == (steps, every)


def test_steps_of_an_adaptation() -> None:
    assert Adaptation(epochs=2).steps(33) == 4


def test_a_run_that_began_as_a_starter_has_its_rate(tmp_path: Path) -> None:
    def begun(name: str, base: str) -> None:
        held: dict[str, object] = {"command": "train classifier", "settings": {"base": base},
                                   "fingerprints": {}, "parts": 1, "resolved": {}}  # fmt: skip
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "run.json").write_text(json.dumps(held))

    begun("one", "starter-small")
    begun("two", str(tmp_path / "one"))
    assert Finetuning().for_base(str(tmp_path / "two")).learning_rate == 5e-4
    assert Adaptation().for_base(str(tmp_path / "two")).learning_rate == 5e-4
    begun("one", str(tmp_path / "two"))
    assert Finetuning().for_base(str(tmp_path / "two")).learning_rate == 1e-5
    (tmp_path / "one" / "run.json").write_text("[")
    with pytest.raises(TilthError, match=r"run.json: cannot be read"):
        Finetuning().for_base(str(tmp_path / "two"))
