"""Limits of settings: what is refused, and how the message reads."""

import importlib
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import pytest

import tilth
from tilth import limits
from tilth.errors import InputError
from tilth.limits import SEED, Choice, Number, check_fields, whole

ROOT = Path(tilth.__file__).parent


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


BESIDE: dict[str, Any] = {"QuerySource": {"task": "x"}, "SearchSettings": {"index": True}}


def settings_with_limits() -> list[Any]:
    """Return every settings class of tilth that checks its fields."""
    found = set()
    for file in ROOT.rglob("*.py"):
        if "check_fields(self)" in file.read_text("utf-8"):
            module = importlib.import_module(
                ".".join(["tilth", *file.relative_to(ROOT).with_suffix("").parts])
            )
            found |= {one for one in vars(module).values() if "check_fields" in post_init(one)}
    return sorted(found, key=lambda one: one.__name__)


def post_init(kind: Any) -> tuple[str, ...]:
    """Return the names that a dataclass uses when it is made."""
    return kind.__post_init__.__code__.co_names if hasattr(kind, "__post_init__") else ()


@pytest.mark.parametrize("kind", settings_with_limits())
def test_every_setting_is_checked(kind: Any) -> None:
    needed = {one.name: "x" for one in fields(kind) if one.default is one.default_factory}
    needed |= BESIDE.get(kind.__name__, {})
    for name, (limit, optional) in limits._limits_of(kind).items():
        wrong: list[Any] = ["no such", True, 2**80, math.nan]
        if isinstance(limit, Number):
            wrong += [limit.low - 1, limit.high + 1 + limit.high * 1e-3]
            wrong += [limit.low] * limit.above + [limit.high] * limit.below + [1.5] * limit.whole
        for value in [*wrong, *([] if optional else [None])]:
            with pytest.raises(InputError, match=f"^{name} .*: (give|use) "):
                kind(**{**needed, name: value})
