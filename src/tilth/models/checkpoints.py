"""Folders of weights that are there whole or not at all: checkpoints and trained models."""

from __future__ import annotations

import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilth.files import sync_folder, write_whole
from tilth.models.source import quietly

log = logging.getLogger(__name__)

MODEL, CHECKPOINTS, SUMS = "model", "checkpoints", "checksums.json"
_PREFIX = "checkpoint-"
_CHUNK = 1 << 22  # bytes


def save_transformer(model: Any, tokenizer: Any, folder: Path) -> None:
    """Save a model and its tokenizer as a transformers folder, weights as safetensors."""
    drop_limits(tokenizer)
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def drop_limits(tokenizer: Any) -> None:
    """Remove what a tokenizer keeps of its last call: padding and truncation.

    Else the saved file would depend on which texts were tokenised last; each call sets them anew.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()


def save_whole(unfinished: Path, folder: Path, save: Callable[[Path], object]) -> None:
    """Save into a new folder, and move it to its place with its files' checksums.

    Args:
        unfinished: where it is written; on the disk of `folder`.
        folder: its place; what lies there is removed.
        save: writes into a folder, which it makes.
    """
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    save(unfinished)
    move_whole(unfinished, folder)


def move_whole(unfinished: Path, folder: Path) -> None:
    """Record the checksums of a written folder's files, and move it to its place."""
    text = json.dumps(_checksums(unfinished, sync=True), indent=2) + "\n"
    write_whole(unfinished / SUMS, lambda file: file.write(text.encode()))
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    sync_folder(folder.parent)


def is_whole(folder: Path) -> bool:
    """Tell whether a folder holds every file it was saved with, unchanged.

    Of a model saved before checksums were recorded, weights are all that is asked for.
    """
    if not (folder / SUMS).is_file():
        return any(folder.rglob("*.safetensors"))
    try:
        recorded = json.loads((folder / SUMS).read_bytes())
        return bool(_checksums(folder).items() >= recorded.items())
    except (ValueError, AttributeError):  # not JSON, or no object
        return False


def move_aside(folder: Path) -> None:
    """Rename a damaged folder with a warning: what it held is made again."""
    place, number = folder.with_name(f"{folder.name}.damaged"), 1
    while place.exists():
        number += 1
        place = folder.with_name(f"{folder.name}.damaged-{number}")
    folder.rename(place)
    log.warning("%s: files are missing or damaged: moved to %s", folder, place.name)


def checkpoint(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies."""
    return folder / f"{_PREFIX}{step}"


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint that is whole, as is the best one that it names.

    Those after it are damaged, and moved aside.
    """
    for step in sorted(_steps(folder), reverse=True):
        last = checkpoint(folder, step)
        if _is_whole_checkpoint(last):
            best = json.loads((last / "trainer_state.json").read_bytes())["best_global_step"]
            if best is None or _is_whole_checkpoint(checkpoint(folder, best)):
                return last
        move_aside(last)
    return None


def keep_only(folder: Path, steps: set[int | None]) -> None:
    """Remove the checkpoints of other steps."""
    for step in _steps(folder) - steps:
        shutil.rmtree(checkpoint(folder, step), ignore_errors=True)


def _steps(folder: Path) -> set[int]:
    names = (path.name.removeprefix(_PREFIX) for path in folder.glob(f"{_PREFIX}*"))
    return {int(name) for name in names if name.isdecimal()}


def _is_whole_checkpoint(path: Path) -> bool:
    return (path / SUMS).is_file() and is_whole(path)


def _checksums(folder: Path, *, sync: bool = False) -> dict[str, int]:
    """Return the checksum of each file; with `sync`, the files are put on the disk first."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != SUMS:
            with open(path, "rb") as file:
                if sync:
                    os.fsync(file.fileno())
                total = 0
                while chunk := file.read(_CHUNK):
                    total = zlib.crc32(chunk, total)
            found[path.relative_to(folder).as_posix()] = total
    return found
