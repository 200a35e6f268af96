"""Options made from settings classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from tilth.cli.app import App, Fields, changed
from tilth.errors import InputError
from tilth.limits import Choice, check_fields, whole


@dataclass(frozen=True, slots=True)
class Inner:
    """Nested settings."""

    warmth: Annotated[int, whole(0, 9), "Of the inner one."] = 1
    seed: Annotated[int, whole(0, 9), "Another seed."] = 3


@dataclass(frozen=True, slots=True)
class Outer:
    """Settings of a command."""

    batch: Annotated[int, whole(1, 9), "-b --batch-size", "Batch size."] = 4
    kind: Annotated[str | None, Choice(("a", "b")), "A kind."] = None
    names: Annotated[tuple[str, ...] | None, "--name", "Names."] = None
    near: Annotated[bool, "--no-near", "Near ones too."] = True
    texts: Annotated[tuple[str, ...], "[TEXT]...", "Texts."] = ()
    sets: Annotated[Sequence[str], "With commas."] = ()
    silent: int = 7
    inner: Inner = field(default_factory=Inner)
    seed: Annotated[int, whole(0, 9), "A seed."] = 0

    def __post_init__(self) -> None:
        check_fields(self)


def call(shown: Fields, *words: str) -> tuple[Any, str]:
    """Return what a command is given, and what it prints."""
    app, seen = App(), []

    def command(settings: Any, other: int = 5) -> None:
        seen.append((settings, other))

    command.__annotations__["settings"] = Annotated[Outer, shown]
    command.__annotations__["other"] = int
    app.command("it")(command)
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return (seen[0] if seen else None), done.output


def test_every_field_with_a_text_is_an_option_and_nested_ones_are_among_them() -> None:
    words = "t u -b 2 --kind b --name x --name y --no-near --sets a,b --warmth 2 --seed 5 --other 6"
    given, _ = call(Fields(), *words.split())
    assert given == (
        Outer(2, "b", ("x", "y"), False, ("t", "u"), ["a", "b"], inner=Inner(2), seed=5),
        6,  # the outer seed alone
    )


def test_defaults_are_those_of_the_class_or_given_ones() -> None:
    assert call(Fields())[0] == (Outer(), 5)
    assert call(Fields(defaults=Outer(batch=8, silent=1)))[0] == (Outer(batch=8, silent=1), 5)


def test_only_named_fields_are_options() -> None:
    given, _ = call(Fields(only=("kind",)), "--kind", "a")
    assert given == (Outer(kind="a"), 5)
    assert "No such option" in call(Fields(only=("kind",)), "--batch-size", "2")[1]


@pytest.mark.parametrize("words", [["--batch-size", "0"], ["--kind", "c"], ["--warmth", "10"]])
def test_values_are_checked_under_the_options_name(words: list[str]) -> None:
    with pytest.raises(InputError, match=words[0]):
        call(Fields(), *words)


def test_an_empty_name_of_a_list_is_refused() -> None:
    with pytest.raises(InputError, match="--sets holds an empty name"):
        call(Fields(), "--sets", "a,")


def test_help_names_ranges_and_panels() -> None:
    said = call(Fields("Training"), "--help")[1]
    assert "Training" in said
    assert "Batch size (from 1 to 9)" in said
    assert "silent" not in said


def test_limits_are_those_of_the_fields() -> None:
    app = App()

    @app.command("it")
    def command(settings: Outer) -> None:
        """Do nothing."""

    made = typer.main.get_command(app)
    assert str(made.limits["batch_size"]) == "from 1 to 9"


def test_changed_fields() -> None:
    assert changed(Outer()) == {}
    assert changed(Outer(batch=2, near=False)) == {"batch": 2, "near": False}
