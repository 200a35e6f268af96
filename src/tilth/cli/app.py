"""Build Typer commands with options from settings dataclasses, checked before they run.

A parameter annotated with a settings dataclass becomes one option per field, with the field's
type, default, help and allowed values. Other parameters are annotated alike, also with what they
read (`tilth.cli.options`); those without a default are arguments:

    batch: Annotated[int, BATCH, "Batch size."] = 16                --batch
    base: Annotated[str, "--base -b", "Model to train."] = "..."    two spellings
    near: Annotated[bool, "--no-near", "Drop near ones too."] = True    the spelling turns it off
    texts: Annotated[tuple[str, ...], "TEXT", "Queries."] = ()    arguments

Wrong values and unreadable inputs end a command before torch is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
import typer.core
from typer.models import CommandFunctionType

from tilth.cli.options import Reads, check_arguments
from tilth.errors import InputError
from tilth.limits import Choice, Limit, Number, unannotated
from tilth.storage import as_path

_BY_NAME = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class Fields:
    """Which fields of a settings dataclass a command shows, and how.

    Attributes:
        panel: heading of the options in the help; that of nested settings is their own text.
        only: shown fields; empty: all that have a help text.
        reads: field -> check of its value, where it names a model or a file.
        defaults: settings that hold the defaults; None: those of the class.
    """

    panel: str | None = None
    only: tuple[str, ...] = ()
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
        command = ctx.command_path.partition(" ")[2]
        check_arguments(command, ctx.params, names, self.limits, self._notes(Reads))
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
            for extra in unannotated(hint)[1:]
            if isinstance(extra, kinds)
        }


class App(typer.Typer):
    """A group of checked commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(add_completion=False, **options)

    def command(  # type: ignore[override]
        self, name: str | None = None
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Add a function as a command."""

        def add(function: CommandFunctionType) -> CommandFunctionType:
            super(App, self).command(name, cls=Command)(_expanded(function))
            return function

        return add


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with an option for each field of its settings."""
    hints = get_type_hints(function, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, dict[str, str]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        kind, *extras = unannotated(hint)
        if isinstance(kind, type) and is_dataclass(kind):
            shown = next((one for one in extras if isinstance(one, Fields)), Fields())
            defaults = shown.defaults or kind()
            own = dict(_options(defaults, shown))
            groups[parameter.name] = defaults, {key: one.name for key, one in own.items()}
            parameters += own.values()
        elif any(isinstance(one, str) for one in extras):
            made = _parameter(parameter.name, kind, extras, parameter.default, Fields())
            parameters.append(made.replace(name=parameter.name))
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
        value = getattr(settings, name)
        kind, *extras = unannotated(hints[name])
        described = next((one for one in extras if isinstance(one, str)), None)
        if is_dataclass(value):
            inner = replace(shown, panel=described or shown.panel)
            yield from (one for one in _options(value, inner) if one[0] not in hints)
            continue
        if described is None or (shown.only and name not in shown.only):
            continue
        yield name, _parameter(name, kind, extras, value, shown)


def _parameter(
    name: str, kind: Any, extras: Sequence[Any], default: Any, shown: Fields
) -> inspect.Parameter:
    """Return a typer parameter for a field, or for a parameter of a command."""
    notes = [one for one in extras if isinstance(one, Number | Choice | Reads)]
    notes += [shown.reads[name]] if name in shown.reads else []
    *spelled, described = (one for one in extras if isinstance(one, str))
    if default and type(None) in get_args(kind):  # the text says what None stands for
        described, _, _ = described.partition("; default: ")
    plain = f"--{name.replace('_', '-')}"
    is_argument = default is inspect.Parameter.empty and not spelled
    flags = spelled[0].split() if spelled else [plain]
    if kind is bool and default is True and spelled:
        flags = [f"{plain}/{flags[0]}"]
    if _holds(kind, tuple):
        kind, default = list[str] | None, list(default or ()) or None
    elif _holds(kind, Sequence):
        kind, default = str | None, ",".join(default or ()) or None
    about: dict[str, Any] = {"help": described, "rich_help_panel": shown.panel}
    if Path in (kind, *get_args(kind)):
        about |= {"parser": as_path, "metavar": "PATH"}
    info: Any
    if is_argument:
        info = typer.Argument(**about)
    elif not flags[0].startswith("-"):
        info = typer.Argument(**{**about, "metavar": flags[0]})
    else:
        info = typer.Option(*flags, show_default=default is not None, **about)
        longest = max(flags, key=len).partition("/")[0]
        name = longest.removeprefix("--").replace("-", "_")
    hint = (kind, *notes, info)
    annotation = Annotated[hint]  # type: ignore[valid-type]
    return inspect.Parameter(name, _BY_NAME, default=default, annotation=annotation)


def _holds(kind: Any, container: Any) -> bool:
    """Return whether a type is a container of texts, or one of the types that it may be."""
    return any(get_origin(one) is container for one in (kind, *get_args(kind)))


def _made(defaults: Any, given: Mapping[str, Any]) -> Any:
    """Return settings with the given values, nested settings included; None: not given."""
    changed = {}
    hints = get_type_hints(type(defaults))
    for name in (one.name for one in fields(defaults)):
        value, new = getattr(defaults, name), given.get(name)
        if is_dataclass(value):
            changed[name] = _made(value, {key: given[key] for key in given if key not in hints})
        elif new is not None:
            if isinstance(new, str) and _holds(hints[name], Sequence):
                new = [one.strip() for one in new.split(",")]
                if "" in new:
                    raise InputError(
                        f"--{name.replace('_', '-')} holds an empty name: leave it out"
                    )
            changed[name] = tuple(new) if _holds(hints[name], tuple) else new
    return replace(defaults, **changed)


def changed(settings: Any) -> dict[str, Any]:
    """Return the fields of settings that differ from the class's defaults."""
    usual = type(settings)()
    names = (one.name for one in fields(settings))
    return {name: getattr(settings, name) for name in names
            if getattr(settings, name) != getattr(usual, name)}  # fmt: skip
