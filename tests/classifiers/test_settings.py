from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilth.classifiers.settings import Adaptation, ClassifierTraining, Finetuning
from tilth.errors import InputError, TilthError


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": 0}, {"epochs": float("nan")}, {"batch": 0}, {"batch": 1.5},
        {"learning_rate": -1.0}, {"learning_rate": float("inf")}, {"warmup": 1.0},
        {"weight_decay": -0.1}, {"dropout": 1.0}, {"dropout": "much"}, {"evaluate_every": 0},
        {"label_smoothing": 1.0}, {"max_length": 3}, {"precision": "float16"}, {"seed": -1},
        {"seed": 2**32}, {"masked": 0.0}, {"masked": 1.0}, {"save_every": 0}, {"loss": "mse"},
        {"labelled_share": 1.0}, {"seeds": 0},
    ],
)  # fmt: skip
def test_wrong_settings(setting: dict[str, Any]) -> None:
    (name,) = setting
    kinds: list[Any] = [
        kind for kind in (Finetuning, Adaptation, ClassifierTraining)
        if name in kind.__dataclass_fields__
    ]  # fmt: skip
    assert kinds
    for kind in kinds:
        with pytest.raises(InputError, match=f"^{name} "):
            kind(**setting)


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
        held = {
            "command": "train classifier", "settings": {"base": base}, "fingerprints": {},
            "parts": 1, "resolved": {}, "versions": {}, "outputs": [],
        }  # fmt: skip
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
