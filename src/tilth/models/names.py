"""Define model roles and their shipped names, check names, and find the files of a model.

Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from tilth.errors import InputError
from tilth.files import check_input, in_local_folder, suggestion
from tilth.runs import read_run_json


@dataclass(frozen=True, slots=True)
class Role:
    """The use that a model is loaded for.

    Attributes:
        what: required content of its files, for messages.
        starters: the shipped names, and their folders in tilth-starter. `starter` is the role's
            default; every other name is the same model in every role.
        trained_by: the command whose run folders are accepted too.
    """

    what: str
    starters: dict[str, str]
    trained_by: str | None = None


_ENCODER = {"starter": "encoder", "starter-encoder": "encoder"}
_CLASSIFIER = {**_ENCODER, "starter-mlm": "mlm", "starter-small": "small"}
LM = Role("a causal language model", {"starter": "lm", "starter-lm": "lm"})
SEQ2SEQ = Role(
    "an encoder-decoder",
    {"starter": "seq2seq", "starter-seq2seq": "seq2seq"},
    "tilth paraphrase train",
)
SCORER = Role("a cross-encoder", _ENCODER, "tilth train scorer")
ENCODER = Role(
    "a sentence encoder",
    {**_ENCODER, "starter-static": "static", "starter-mlm": "mlm"},
    "tilth train",
)
CLASSIFIER = Role("a classifier", _CLASSIFIER, "tilth train")
MASKED_LM = Role("a masked language model", _CLASSIFIER, "tilth train")

ENDPOINTS = ("openai:", "openai-chat:")
COSINE = "cosine:"
_INSTRUCTIONS = "instructions.json"
ONNX = "model.onnx"  # a model that `tilth export` wrote
# Prefixes of a file of word vectors; those of FITTED need sentences too.
WORDS = ("words", "words-idf", "words-sif", "usif")
FITTED = ("words-idf", "usif")


def name_of(model: object, what: str = "the model") -> str:
    """Return the name of a model, which may be a path; refuse anything else."""
    if isinstance(model, str | Path):
        return str(model)
    raise InputError(
        f"{what} is of type {type(model).__name__}: give a name: a run, a folder or a hub id"
    )


def loaded(model: Any, what: str, load: str, *has: str) -> Any:
    """Return a model that has one of some attributes.

    One that is given by its name is loaded by a function, `MODULE:NAME`.
    """
    if isinstance(model, str | Path):
        return resolve_name(load)(str(model))
    if not any(hasattr(model, name) for name in has):
        raise InputError(f"{what} is of type {type(model).__name__}: give a model, or its name")
    return model


def check_name(name: str, role: Role) -> None:
    """Check the name of a model, before anything is loaded; raise `InputError`."""
    if role is SCORER and name.startswith(COSINE):
        name, role = name.removeprefix(COSINE), ENCODER
    if role is LM and name.startswith(ENDPOINTS):
        return
    kind, colon, file = name.partition(":")
    if role is ENCODER and colon and kind in WORDS:
        if not Path(file).expanduser().is_file():
            raise InputError(f"{name}: no such file {file!r}: check the path")
        return
    folder, markers = Path(name).expanduser(), ("modules.json", "config.json")
    if role.trained_by is None or not (folder / "run.json").is_file():
        is_saved = role is ENCODER and (folder / markers[0]).is_file()
        find_source(name, starters=role.starters, marker=markers[0 if is_saved else 1])
    elif not any((folder / "model" / marker).is_file() for marker in markers):
        raise _untrained(name, folder, role.trained_by)


def began_as(base: str, by: str | None = None) -> str:
    """Return what a base was made from: of a run of tilth its own base, and so on.

    Args:
        by: only runs of this command count; None: all.
    """
    seen = set()
    while base not in seen and base not in _CLASSIFIER:
        seen.add(base)
        file = Path(base).expanduser() / "run.json"
        if not file.is_file():
            break
        run = read_run_json(file.parent)
        if by not in (None, run["command"]):
            break
        base = str(run["settings"].get("base", base))
    return base


def trained_columns(name: object, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the columns, text and label, that a training was told to read, if a set has them.

    Args:
        name: of a model; nothing is known unless it is the run folder of a training, or `model`
            in it.
        names: the columns of the set; None: any.
    """
    folder = Path(name).expanduser() if isinstance(name, str | Path) else None
    if folder is not None and folder.name == "model" and not (folder / "run.json").is_file():
        folder = folder.parent
    if folder is None or not (folder / "run.json").is_file():
        return {}
    run = read_run_json(folder)
    told = run["resolved"].get("columns", run["settings"])
    found = {key: told.get(key) for key in ("text", "label")}
    listed = {key: [one] if isinstance(one, str) else one for key, one in found.items()}
    return {
        key: found[key]
        for key, some in listed.items()
        if some and (names is None or set(some) <= {*names})
    }


def known_instructions(name: str) -> tuple[str, ...]:
    """Return the only instructions that a language model writes for; empty: it takes any.

    A model trained on a few tasks alone, such as the starter, lists them beside its weights, in
    `instructions.json`: a list of texts in which `*` stands for any words.
    """
    if name.startswith(ENDPOINTS):
        return ()
    source = find_source(name, starters=LM.starters)
    file = Path(source.name) / _INSTRUCTIONS
    if source.on_hub or not file.is_file():
        return ()
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InputError(f"{file}: no JSON list of instructions: get the model again, or remove it")
    return tuple(found)


def is_cosine(scorer: str) -> bool:
    """Return whether a scorer's name stands for the cosine of an encoder's vectors."""
    return scorer in SCORER.starters or scorer.startswith(COSINE)


def describe_scorer(scorer: str) -> str:
    """Return a scorer's name and description, for cards."""
    if is_cosine(scorer):
        return (
            f"`{scorer}`, the cosine of an encoder's vectors, not the paper's cross-encoder: a "
            "negation may leave it above 70"
        )
    return f"`{scorer}`, a cross-encoder"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A folder or hub id, as passed to `from_pretrained`."""

    name: str
    on_hub: bool


def find_source(
    name: str,
    *,
    starters: Mapping[str, str],
    marker: str = "config.json",
    trained_by: str | None = None,
) -> ModelSource:
    """Resolve a name to a starter, a folder or a hub id, without a network where possible.

    Args:
        starters: names of shipped models, and their folders.
        marker: the file that a model folder has.
        trained_by: the command whose run folders are accepted too, such as `tilth train`.
    """
    if name in starters:
        return ModelSource(str(starter_path(starters[name])), on_hub=False)
    folder = Path(name).expanduser()
    check_input(folder)
    if trained_by is not None and (folder / "run.json").is_file():
        folder = folder / "model"
        if not (folder / marker).is_file():
            raise _untrained(name, folder.parent, trained_by)
    if folder.is_dir():
        if not (folder / marker).is_file():
            raise InputError(f"model folder {name!r} has no {marker}: name a saved model folder")
        is_exported = (folder / ONNX).is_file()
        if marker == "config.json" and not (is_exported or any(folder.glob("*.safetensors"))):
            raise InputError(
                f"model folder {name!r} has no *.safetensors: save the model with "
                "save_pretrained (pickled weights are not read)"
            )
        for path in folder.rglob("*"):
            if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
                raise InputError(f"model {name!r}: {path.name} is no file: save the model again")
        return ModelSource(str(folder), on_hub=False)
    known = ", ".join(starters)
    if name.startswith("starter") and "/" not in name:
        raise InputError(f"no model {name!r} is shipped for this: there are {known}")
    if folder.is_file():
        raise InputError(
            f"{name}: is a file, where a model is asked for: give a folder, a hub id or one of "
            f"{known}"
        )
    looks_like_path = name.startswith((".", "/", "~")) or os.sep * 2 in name or "\\" in name
    if looks_like_path or name.count("/") > 1 or folder.exists() or in_local_folder(Path(name)):
        raise InputError(
            f"no model folder {name!r}{suggestion(folder)}: give a folder, a hub id or one of "
            f"{known}"
        )
    return ModelSource(name, on_hub=True)


def _untrained(name: str, run: Path, trained_by: str) -> InputError:
    command = f"tilth {read_run_json(run)['command']}"
    if command.startswith((trained_by, "tilth grow", "tilth augment")):
        return InputError(
            f"{name}: this `{command}` is not finished: run the same command again, it goes on "
            "where it stopped"
        )
    return InputError(
        f"{name}: the run of `{command}` holds no trained model: name the run of a finished "
        f"`{trained_by}`"
    )


def starter_path(kind: str) -> Path:
    """Return the folder of a shipped starter model, such as `lm`."""
    try:
        import tilth_starter
    except ImportError:
        raise InputError(
            "the starter models are not installed: pip install tilth-starter "
            "(in a clone: pip install ./starter)"
        ) from None
    try:
        return Path(tilth_starter.path(kind))
    except ValueError as error:
        raise InputError(f"{error}: install tilth-starter again") from None
