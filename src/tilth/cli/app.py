"""Build Typer commands with options from settings dataclasses, checked before they run.

A parameter annotated with a settings dataclass becomes one option per field, with the field's
type, default, help and allowed values (`Annotated[int, BATCH, "Batch size."]`). Other parameters
may name allowed values (`tilth.limits`) and what they read (`tilth.cli.checks`) in the annotation.
Wrong values and unreadable inputs end a command before torch is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
import typer.core
from typer.models import CommandFunctionType

from tilth.cli.checks import Reads, check_arguments
from tilth.limits import Choice, Limit, Number

_BY_NAME = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class Fields:
    """Which fields of a settings dataclass a command shows, and how.

    Attributes:
        panel: heading of the options in the help.
        only: shown fields; empty: all that have a help text.
        flags: field -> option names in place of the field's; those of a boolean with default true
            turn it off.
        reads: field -> check of its value, where it names a model or a file.
        defaults: settings that hold the defaults; None: those of the class.
    """

    panel: str | None = None
    only: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[str, Reads] = field(default_factory=dict)
    defaults: Any = None


class Command(typer.core.TyperCommand):
    """Check the arguments of a command before it runs, and show their ranges in its help."""

    @property
    def limits(self) -> Mapping[str, Limit]:
        """Return parameter -> allowed values."""
        return self._notes(Number, Choice)

    def invoke(self, ctx: Any) -> Any:
        """Check the arguments, then run."""
        names = {str(one.name): max(one.opts, key=len) for one in self.params}
        check_arguments(ctx.params, names, self.limits, self._notes(Reads))
        return super().invoke(ctx)

    def get_help(self, ctx: Any) -> Any:
        """Return the help with the allowed ranges of numbers."""
        for parameter in self.params:
            limit = self.limits.get(str(parameter.name))
            written = getattr(parameter, "help", None) or ""
            if isinstance(limit, Number) and f"({limit})" not in written:
                parameter.help = f"{written.rstrip('.')} ({limit}).".strip()  # type: ignore[attr-defined]
        return super().get_help(ctx)

    def _notes(self, *kinds: type) -> dict[str, Any]:
        """Return parameter -> annotation metadata of the given types."""
        return {
            name: extra
            for name, hint in getattr(self.callback, "__annotations__", {}).items()
            for extra in _unannotated(hint)[1:]
            if isinstance(extra, kinds)
        }


class App(typer.Typer):
    """A group of checked commands."""

    def command(  # type: ignore[override]
        self, name: str | None = None
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a function as a command."""

        def add(function: CommandFunctionType) -> CommandFunctionType:
            super(App, self).command(name, cls=Command)(_expanded(function))
            return function

        return add


def _unannotated(hint: Any) -> tuple[Any, ...]:
    """Return the type of a hint, then its annotation metadata."""
    return get_args(hint) if get_origin(hint) is Annotated else (hint,)


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with an option for each field of its settings."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, dict[str, str]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        kind, *extras = _unannotated(hint)
        if isinstance(kind, type) and is_dataclass(kind):
            shown = next((one for one in extras if isinstance(one, Fields)), Fields())
            defaults = shown.defaults or kind()
            own = dict(_options(defaults, shown))
            groups[parameter.name] = defaults, {key: one.name for key, one in own.items()}
            parameters += own.values()
        else:
            parameters.append(parameter.replace(annotation=hint, kind=_BY_NAME))

    def command(**given: Any) -> Any:
        for name, (defaults, own) in groups.items():
            given[name] = _made(defaults, {key: given.pop(one) for key, one in own.items()})
        return function(**given)

    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _options(settings: Any, shown: Fields) -> Iterator[tuple[str, inspect.Parameter]]:
    """Yield each field of a settings object and its option; the object holds the defaults."""
    hints = get_type_hints(type(settings), include_extras=True)
    for name in (one.name for one in fields(settings)):
        value, hint = getattr(settings, name), hints[name]
        if is_dataclass(value):
            yield from (one for one in _options(value, shown) if one[0] not in hints)
            continue
        kind, *extras = _unannotated(hint)
        described = next((one for one in extras if isinstance(one, str)), None)
        if described is None or (shown.only and name not in shown.only):
            continue
        flags = shown.flags.get(name, f"--{name.replace('_', '-')}").split()
        called = max(flags, key=len).removeprefix("--").replace("-", "_")
        if kind is bool and value and name in shown.flags:
            flags, called = [f"--{name.replace('_', '-')}/{flags[0]}"], name
        option = typer.Option(
            *flags, help=described, rich_help_panel=shown.panel, show_default=value is not None
        )
        if any(get_origin(one) is tuple for one in get_args(kind)):
            kind, value = list[str] | None, list(value or ()) or None
        notes = [one for one in extras if isinstance(one, Number | Choice)]
        hint = (kind, *notes, *([shown.reads[name]] if name in shown.reads else []), option)
        annotation = Annotated[hint]  # type: ignore[valid-type]
        yield name, inspect.Parameter(called, _BY_NAME, default=value, annotation=annotation)


def _made(defaults: Any, given: Mapping[str, Any]) -> Any:
    """Return settings with the given values, nested settings included."""
    changed = {}
    names = [one.name for one in fields(defaults)]
    for name in names:
        value = getattr(defaults, name)
        if is_dataclass(value):
            changed[name] = _made(value, {key: given[key] for key in given if key not in names})
        elif name in given:
            new = given[name]
            changed[name] = tuple(new) if isinstance(new, list) else new
    return replace(defaults, **changed)


def changed(settings: Any) -> dict[str, Any]:
    """Return the fields of settings that differ from the class's defaults."""
    usual = type(settings)()
    names = (one.name for one in fields(settings))
    return {name: getattr(settings, name) for name in names
            if getattr(settings, name) != getattr(usual, name)}  # fmt: skip
