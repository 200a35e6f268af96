"""What a source is: a file, a folder of files, a stored data set or a name on the hub."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.data.columns import PARTS, holds_columns
from tilth.data.formats import ENDINGS, ending_of
from tilth.data.stored import card_configs, folder_configs, load_folder
from tilth.errors import InputError, TilthError
from tilth.files import check_input

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_HUB_NAME = re.compile(r"(?P<name>\w[\w.-]*/[\w.-]+)(:(?P<config>[^/\s]+))?")
_SECONDS_TO_REACH_HUB = 5.0


@dataclass(frozen=True, slots=True)
class Hub:
    """A data set on the hub."""

    name: str
    config: str | None


@dataclass(frozen=True, slots=True)
class Stored:
    """A folder written by `DatasetWriter` or by `datasets`."""

    path: Path


def locate(source: str | Path) -> list[Path] | Stored | Hub:
    """Find out what a source is; a path that exists comes before a hub name.

    Raises:
        InputError: there is no such file, or nothing in it that can be read.
    """
    if not str(source):
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    path = Path(source)
    exists = check_input(path)
    if path.is_dir():
        return _folder(path)
    if exists:
        if ending_of(path) is None:
            raise InputError(f"{path}: the ending is not known: use {', '.join(ENDINGS)}")
        return [path]
    match = _HUB_NAME.fullmatch(str(source))
    if match is None or ending_of(path) is not None or isinstance(source, Path):
        raise InputError(f"{source}: no such file or folder: check the path")
    return Hub(match["name"], match["config"])


def _folder(path: Path) -> list[Path] | Stored:
    if (path / "run.json").is_file():
        if not (path / "dataset").is_dir():
            raise InputError(
                f"{path}: the run holds no data set: run its command again, if it makes one"
            )
        return Stored(path / "dataset")
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return Stored(path)
    if folder_configs(path) or card_configs(path):
        return Stored(path)
    try:
        items = list(_walk(path))
    except PermissionError as error:
        raise InputError(f"{error.filename}: no permission to read: change it") from error
    files = [item for item in items if _is_read(item)]
    skipped = [str(item.relative_to(path)) for item in sorted(set(items) - set(files))]
    if not files:
        raise InputError(f"{path}: no file to read in the folder: use {', '.join(ENDINGS)}")
    if skipped:
        log.warning("%s: not read: %s", path, ", ".join(skipped[:10]))
    return files


def _is_read(file: Path) -> bool:
    ending = ending_of(file)
    return ending is not None and (ending not in PARTS or holds_columns(file))


def _walk(path: Path) -> Iterator[Path]:
    """Yield the files of a folder and its folders, by name, without hidden ones."""
    for item in sorted(path.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            check_input(item)
            yield item
        elif item.is_dir() and not item.is_symlink():  # a link may lead around in a circle
            if (item / "run.json").is_file() or card_configs(item):
                raise InputError(
                    f"{path}: {item.name!r} in it is a data set of its own: name it "
                    "itself, or a folder of plain files"
                )
            yield from _walk(item)


def load_stored(stored: Stored, split: str) -> Dataset:
    """Load a split of a data set folder.

    Raises:
        InputError: there is no such split, or the folder is damaged.
    """
    path = stored.path
    if "default" in folder_configs(path):
        return load_folder(path, split)

    from datasets import Dataset, DatasetDict, load_dataset, load_from_disk

    with _one_line(str(path)):
        if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
            found = load_from_disk(str(path))
        else:
            found = load_dataset(str(path))
    if isinstance(found, Dataset):
        return found
    splits: DatasetDict = found
    if split not in splits:
        raise InputError(f"{path}: no split {split!r}: there are {', '.join(splits)}")
    return splits[split]


def load_hub(hub: Hub, split: str) -> Dataset:
    """Load a split of a hub data set through `datasets`.

    Raises:
        InputError: the hub has no such data set, config or split.
        TilthError: the hub cannot be reached.
    """
    from datasets import load_dataset

    with _one_line(hub.name), _cached_only_without_network():
        dataset: Dataset = load_dataset(hub.name, hub.config, split=split)
        return dataset


@contextmanager
def _cached_only_without_network() -> Iterator[None]:
    """Without a network, look at the hub's cache alone: its client retries for half a minute."""
    from datasets import config
    from huggingface_hub import constants, get_session

    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    if not any(before):
        try:
            get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_REACH_HUB)
        except Exception as error:  # the client's own errors, of whichever http library it uses
            log.info("the hub does not answer (%s): only its cache is looked at", error)
            constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


@contextmanager
def _one_line(source: str) -> Iterator[None]:
    """Turn what `datasets` raises into one line."""
    try:
        yield
    except ConnectionError as error:
        raise TilthError(
            f"{source}: no such file here, and the hub cannot be reached ({_first_line(error)}): "
            "check the path or the network"
        ) from error
    except Exception as error:  # `datasets` raises whatever its readers and builders raise
        raise InputError(
            f"{source}: datasets cannot load it ({type(error).__name__}: {_first_line(error)}): "
            "check name, config and split"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
