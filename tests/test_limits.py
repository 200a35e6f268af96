"""Limits of settings: what is refused, and how the message reads."""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tilth.classifiers.settings import Adaptation, Finetuning
from tilth.encoders.settings import Training, TripletTraining
from tilth.errors import InputError
from tilth.generation.settings import GenerateSettings, Sampling
from tilth.limits import SEED, Choice, Number, check_fields, whole
from tilth.paraphrase.settings import RewriterTraining


@dataclass(frozen=True)
class _Some:
    share: Annotated[float, Number(0, 1, above=True)] = 0.5
    rows: Annotated[int | None, whole(1, 9)] = None
    kind: Annotated[str, Choice(("a", "b"))] = "a"
    free: int = 0

    def __post_init__(self) -> None:
        check_fields(self)


@pytest.mark.parametrize(
    "values",
    [
        {"share": value}
        for value in (0, -1, 1.5, math.nan, math.inf, -math.inf, None, "1", True, 10**400)
    ]
    + [{"rows": value} for value in (0, 10, 2.0, math.nan, True, 10**5000, "3")]
    + [{"kind": value} for value in ("c", None, 1)],
)
def test_what_lies_outside_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=rf"^{next(iter(values))} .*: (give|use) "):
        _Some(**values)


def test_what_lies_inside_is_taken() -> None:
    assert _Some(1, 9, "b", -3).share == 1
    assert _Some(rows=None).rows is None


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (whole(1, 65_536), "from 1 to 65,536"),
        (Number(0, 1, below=True), "from 0 to below 1"),
        (Number(0, 2, above=True), "above 0, at most 2"),
        (Number(0, 2, above=True, below=True), "above 0, below 2"),
        (Choice(("a", "b", "c")), "a, b or c"),
    ],
)
def test_a_limit_says_what_it_is(limit: object, said: str) -> None:
    assert str(limit) == said


def test_a_refusal_names_value_and_limit() -> None:
    with pytest.raises(InputError, match=r"^seed is -1: give a whole number from 0 to 4,294,967,"):
        SEED.check("seed", -1)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Finetuning, {"epochs": 1e308}),
        (Finetuning, {"batch": 2_147_483_648}),
        (Adaptation, {"masked": math.nan}),
        (Training, {"pooling": "sum"}),
        (TripletTraining, {"dimension": 2_147_483_648}),
        (TripletTraining, {"batch": 1}),
        (TripletTraining, {"margin": math.inf}),
        (RewriterTraining, {"batch": 2_147_483_648}),
        (RewriterTraining, {"schedule": "cosine"}),
        (Sampling, {"decay": math.nan}),
        (GenerateSettings, {"seed": 2**80}),
    ],
)
def test_settings_are_checked(kind: Any, values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(values))} "):
        kind(**values)
