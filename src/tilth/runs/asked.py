"""What a run was asked: run.json, how it is read, compared and made."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

from tilth.errors import InputError, TilthError
from tilth.files import check_input

Json: TypeAlias = Any
RESULTS = "results.json"
# Runs begun when fingerprints of models were of a sample of their weights lack this in run.json.
WHOLE = "whole_models"
_MODELS = ("model", "base", "encoder", "teacher", "forward", "backward", "scorer")
_SAMPLED = (
    ", or it is: the run was begun by an earlier version, whose fingerprints of models were others"
)
COMPARED = ("command", "settings", "fingerprints", "parts")
_KINDS: dict[str, type] = {
    "command": str, "settings": dict, "fingerprints": dict, "parts": int, "resolved": dict,
    "versions": dict, "outputs": list,
}  # fmt: skip
_DEPTH = 32  # what is nested deeper was not asked by tilth, and cannot be compared or written
# Runs of earlier versions do not list what they have made.
_OPTIONAL: dict[str, Json] = {"outputs": [], "versions": {}}
_PACKAGES = ("tilth", "torch", "transformers", "datasets", "pyarrow", "numpy")


def read_run_json(path: Path) -> dict[str, Json]:
    """Return what a run folder's run.json holds.

    Raises:
        InputError: there is none, or it is a pipe.
        TilthError: it is damaged.
    """
    file = path / "run.json"
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no run.json: name a run folder") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise TilthError(f"{file}: cannot be read ({reason}): --overwrite starts anew") from error
    if _is_deep(found):
        raise TilthError(f"{file}: cannot be read (nested too deep): --overwrite starts anew")
    wrong = "no object" if not isinstance(found, dict) else _wrong(found)
    if wrong:
        raise TilthError(f"{file}: is not what tilth wrote ({wrong}): --overwrite starts anew")
    checked: dict[str, Json] = found
    return checked


def read_results(folder: Path, kinds: Mapping[str, type] = {}) -> dict[str, Json] | None:
    """Return what a folder's results.json holds; None: it is missing or damaged.

    Args:
        folder: of a run.
        kinds: name -> type of what it must hold.
    """
    file = folder / RESULTS
    if not file.is_file():  # a pipe would be waited for
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in kinds.items()
    )
    return found if right else None


def _is_deep(value: Json) -> bool:
    level = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return bool(level)


def _wrong(found: Mapping[str, Json]) -> str | None:
    """Return what is wrong with the fields of a run.json."""
    for name, kind in _KINDS.items():
        value = found.get(name, _OPTIONAL.get(name))
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} is {_short(value)}"
    if found["parts"] < 0:
        return f"parts is {found['parts']}"
    for name in found.get("outputs", ()):
        # A run removes what it lists: its own files, by name, and nothing outside its folder.
        if not isinstance(name, str) or name[:1] in ("", ".") or Path(name).name != name:
            return f"outputs holds {_short(name)}"
    return None


def outputs_of(found: Mapping[str, Json], default: Sequence[str]) -> list[str]:
    """Return what a run has made: what run.json lists, or `default` of an earlier version's."""
    return list(found.get("outputs", default))


def differences(found: Mapping[str, Json], asked: Mapping[str, Json]) -> list[str]:
    """Return a line for each thing that was asked for otherwise."""
    if found["command"] != asked["command"]:
        return [f"command is {found['command']} in the folder, {asked['command']} asked"]
    old, new = found["settings"], asked["settings"]
    lines = [
        f"{name} is {_short(old.get(name))} in the folder, {_short(new.get(name))} asked"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    old, new = found["fingerprints"], asked["fingerprints"]
    sampled = "" if found.get(WHOLE) else _SAMPLED
    lines += [
        f"the {name} {'are' if name.endswith('s') else 'is'} not the same"
        + (sampled if name in _MODELS else "")
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    if not lines and found["parts"] != asked["parts"]:
        lines.append(f"it has {found['parts']} parts, {asked['parts']} asked")
    return lines


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def plain(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return settings as JSON gives them back, so that they compare equal later."""
    plain: dict[str, Json] = json.loads(json.dumps(settings))
    return plain


def versions() -> dict[str, str]:
    """Return the versions of Python and of what rows depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203 - a handful
            continue
    return found
