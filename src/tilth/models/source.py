"""Find a model's files: a starter, a folder, a training run or a hub id."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tilth.errors import InputError
from tilth.files import check_input, in_local_folder, suggestion

log = logging.getLogger(__name__)

_SECONDS_TO_REACH_HUB = 5.0


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
            raise InputError(
                f"{name}: the run holds no trained model: name the run of a finished `{trained_by}`"
            )
    if folder.is_dir():
        if not (folder / marker).is_file():
            raise InputError(f"model folder {name!r} has no {marker}: name a saved model folder")
        if marker == "config.json" and not any(folder.glob("*.safetensors")):
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
    looks_like_path = name.startswith((".", "/", "~")) or os.sep * 2 in name or "\\" in name
    if looks_like_path or name.count("/") > 1 or folder.exists() or in_local_folder(Path(name)):
        raise InputError(
            f"no model folder {name!r}{suggestion(folder)}: give a folder, a hub id or one of "
            f"{known}"
        )
    return ModelSource(name, on_hub=True)


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Silence the progress bars and warnings of transformers."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bar = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def hub_answers() -> bool:
    """Check once whether the hub is reachable: otherwise its client would retry for a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_REACH_HUB)
    except Exception as error:  # the client's own errors, of whichever http library it uses
        log.info("the hub does not answer (%s): only its cache is read", error)
        return False
    return True


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
