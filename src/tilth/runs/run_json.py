"""Read, check and compare `run.json` and `results.json` of a run folder."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

from tilth.errors import InputError, TilthError
from tilth.files import check_input, write_json

Json: TypeAlias = Any
RESULTS = "results.json"
COMPARED = ("command", "settings", "fingerprints", "parts")
_TYPES: dict[str, type] = {
    "command": str, "settings": dict, "fingerprints": dict, "parts": int, "resolved": dict,
    "versions": dict, "outputs": list,
}  # fmt: skip
_DEPTH = 32  # tilth nests nothing deeper, and what is cannot be compared or written
_PACKAGES = ("tilth", "tilth-starter", "torch", "transformers", "datasets", "pyarrow", "numpy")


class RunMismatch(InputError):  # noqa: N818 - named for what it is
    """Raised when the folder holds a run with other settings."""


def read_run_json(folder: Path) -> dict[str, Json]:
    """Return the content of a run folder's run.json."""
    file = folder / "run.json"
    check_input(file)
    try:
        found: Json = json.loads(file.read_text(encoding="utf-8"))
        wrong = _find_error(found)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: no run.json: name a run folder") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise TilthError(f"{file}: cannot be read ({reason}): --overwrite starts anew") from error
    if wrong:
        raise TilthError(f"{file}: is not what tilth wrote ({wrong}): --overwrite starts anew")
    checked: dict[str, Json] = found
    return checked


def _find_error(found: Json) -> str | None:
    """Return the error in the content of a run.json, or None."""
    _check_depth(found)
    if not isinstance(found, dict):
        return "no object"
    for name, kind in _TYPES.items():
        value = found.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"{name} is {_shorten(value)}"
    if found["parts"] < 0:
        return f"parts is {found['parts']}"
    for name in found["outputs"]:
        # Overwriting removes what is listed: a name may not lead out of the folder.
        if not isinstance(name, str) or name[:1] in ("", ".") or Path(name).name != name:
            return f"outputs holds {_shorten(name)}"
    return None


def _check_depth(value: Json, left: int = _DEPTH) -> None:
    if left == 0:
        raise RecursionError
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_depth(inner, left - 1)


def read_results(folder: Path, kinds: Mapping[str, type] = {}) -> dict[str, Json] | None:
    """Return the content of a folder's results.json; None if missing or damaged.

    Args:
        kinds: name -> required type of the entry.
    """
    file = folder / RESULTS
    if not file.is_file():  # reading a pipe would block
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    valid = isinstance(found, dict) and all(
        isinstance(found.get(name), kind) for name, kind in kinds.items()
    )
    return found if valid else None


def finished_results(folder: Path, kinds: Mapping[str, type] = {}) -> dict[str, Json]:
    """Return the content of a finished run's results.json, as `read_results`; else refuse it."""
    found = read_results(folder, kinds)
    if found is None:
        raise InputError(
            f"{folder}: the run is not finished, or its results.json is damaged: the same command "
            "goes on where it stopped"
        )
    return found


def write_results(folder: Path, results: Mapping[str, Json]) -> None:
    """Write a folder's results.json."""
    write_json(folder / RESULTS, results)


def command_of(folder: Path) -> str | None:
    """Return the command of a run; None where no run can be read."""
    with suppress(TilthError):
        return str(read_run_json(folder)["command"])
    return None


_SETS = {"train": "training", **{name: name for name in ("validation", "test", "labelled")}}


def differences(found: Mapping[str, Json], asked: Mapping[str, Json]) -> list[str]:
    """Return a line for each setting and input that differs between two run.json."""
    if found["command"] != asked["command"]:
        return [f"command is {found['command']} in the folder, {asked['command']} asked"]
    old, new = found["settings"], asked["settings"]
    lines = [
        f"{name} is {_shorten(old.get(name))} in the folder, {_shorten(new.get(name))} asked"
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    old, new = found["fingerprints"], asked["fingerprints"]
    changed = [
        f"{_SETS[name]} rows" if name in _SETS else name
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]
    lines += [
        f"the {name} {'are' if name.endswith('s') else 'is'} not the same" for name in changed
    ]
    if not lines and found["parts"] != asked["parts"]:
        lines.append(f"it has {found['parts']} parts, {asked['parts']} asked")
    return lines


def _shorten(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that rows depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # noqa: PERF203 - a handful
            continue
    return found
