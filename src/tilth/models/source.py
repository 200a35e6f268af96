"""Where a model's files are: shipped, in a folder, or on the hub."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilth.errors import InputError

log = logging.getLogger(__name__)

_SECONDS_TO_REACH_HUB = 5.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are.

    Attributes:
        name: what `from_pretrained` takes, a folder or a hub id.
        on_hub: whether it is a hub id.
    """

    name: str
    on_hub: bool


def find_source(name: str, *, starters: Mapping[str, str], marker: str = "config.json") -> Source:
    """Find out what a name stands for, as far as that needs no network.

    Args:
        name: one of `starters`, a folder or a hub id.
        starters: the names of shipped models here, and their folders, such as `starter`, `lm`.
        marker: the file that a model folder has.

    Raises:
        InputError: it is a path and there is no such model folder.
    """
    if name in starters:
        return Source(str(starter_path(starters[name])), on_hub=False)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / marker).is_file():
            raise InputError(f"model folder {name!r} has no {marker}: name a saved model folder")
        if marker == "config.json" and not any(folder.glob("*.safetensors")):
            raise InputError(
                f"model folder {name!r} has no *.safetensors: save the model with "
                "save_pretrained (pickled weights are not read)"
            )
        return Source(str(folder), on_hub=False)
    looks_like_path = name.startswith((".", "/", "~")) or os.sep * 2 in name or "\\" in name
    if looks_like_path or name.count("/") > 1 or folder.exists():
        known = " or ".join(f"'{starter}'" for starter in starters)
        raise InputError(f"no model folder {name!r}: give a folder, a hub id or {known}")
    return Source(name, on_hub=True)


def hub_answers() -> bool:
    """Ask the hub once: without a network its client would retry for a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_REACH_HUB)
    except Exception as error:  # the client's own errors, of whichever http library it uses
        log.info("the hub does not answer (%s): only its cache is looked at", error)
        return False
    return True


def not_reached(name: str) -> InputError:
    """Return the error of a name that is neither here nor, without a network, to be had."""
    return InputError(
        f"model {name!r}: no such folder here, not in the hub's cache, and the hub cannot "
        "be reached: check the name or the network"
    )


def starter_path(kind: str) -> Path:
    """Return the folder of a shipped starter model, such as `lm`.

    Raises:
        InputError: the distribution tilth-starter is not installed.
    """
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
