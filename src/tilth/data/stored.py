"""Loads a data set folder's Parquet files as they are now, past the cache of `datasets`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tilth.data.mapped import open_arrow, remove_arrow, temporary_arrow
from tilth.data.parquet import parquet_tables
from tilth.errors import InputError, TilthError
from tilth.files import check_input

if TYPE_CHECKING:
    from datasets import Dataset

_CARD = "README.md"
_BARE_HEAD = ".huggingface.yaml"  # `datasets` takes a head from there, too
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def load_folder(folder: str | Path, split: str = "train", config: str = "default") -> Dataset:
    """Load a split of a data set folder: one that `DatasetWriter` wrote, or like it.

    `datasets.load_dataset` reads such a folder too, but copies it into a cache for good, draws
    progress bars, and refuses a split without rows. Here a temporary copy is mapped into memory;
    it goes when its rows do.

    Args:
        folder: of the data set, or of the run that made it.
        split: such as `train`.
        config: such as `default` or `dropped`.

    Raises:
        InputError: there is no such folder, config or split, or a file is damaged.
        TilthError: there is no room for the copy.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> from tilth.data import DatasetWriter
        >>> folder = tempfile.mkdtemp() + "/set"
        >>> with DatasetWriter(folder) as writer:
        ...     writer.write(pa.table({"text": ["Good."]}))
        >>> load_folder(folder)["text"][:]
        ['Good.']
    """
    path = Path(folder)
    check_input(path)
    if (path / "run.json").is_file():
        path /= "dataset"
    if not path.is_dir():
        raise InputError(f"{path}: no such data set folder: check the path, or finish its run")
    configs = folder_configs(path)
    if config not in configs:
        raise InputError(f"{path}: no config {config!r}: there are {', '.join(configs) or 'none'}")
    splits = configs[config]
    if split not in splits:
        raise InputError(f"{path}: no split {split!r}: there are {', '.join(splits) or 'none'}")
    return _load(splits[split])


def folder_configs(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Return config -> split -> Parquet files of a data set folder; empty when it is none.

    The card's YAML head counts; files in the places where `DatasetWriter` puts them are found
    beside it, since splits without rows do not stand there.
    """
    found: dict[str, dict[str, list[Path]]] = {}
    for name, splits in card_configs(folder).items():
        for split, patterns in splits.items():
            try:
                files = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
            except (ValueError, NotImplementedError) as error:
                raise InputError(f"{folder / _CARD}: {error}: name files of the folder") from error
            if files and all(file.suffix == ".parquet" for file in files):
                found.setdefault(name, {})[split] = files
    listed = {name: set(splits) for name, splits in found.items()}
    for file in sorted(folder.glob("*/*.parquet")):
        name = "default" if file.parent.name == "data" else file.parent.name
        if name not in listed and name != "default":
            continue
        split = _SHARD.sub("", file.stem)
        if split not in listed.get(name, ()):
            found.setdefault(name, {}).setdefault(split, []).append(file)
    return found


def card_configs(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return config -> split -> patterns of files, as the YAML head of a data set's card says.

    Raises:
        InputError: the card names files outside its folder, or on the network.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for file in (folder / _CARD, folder / _BARE_HEAD):
        try:
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if file.name == _CARD:
                text = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
            head = yaml.safe_load(text)
        except (OSError, ValueError, IndexError, RecursionError, yaml.YAMLError):
            continue
        configs = head.get("configs") if isinstance(head, dict) else None
        for entry in configs if isinstance(configs, list) else ():
            if isinstance(entry, dict):
                given = entry.get("config_name", "default")
                name = str(given) if isinstance(given, str | int) else "default"
                splits = {
                    split: _inside(file, paths)
                    for split, paths in _data_files(entry.get("data_files"))
                }
                _inside(file, _listed(entry.get("data_dir")))
                found.setdefault(name, {}).update(splits)
    return found


def _data_files(entry: Any) -> list[tuple[str, list[str]]]:
    """Return (split, patterns) of a config's `data_files` in any of the hub's forms."""
    if isinstance(entry, dict):
        return [(split, _listed(paths)) for split, paths in entry.items() if _text(split)]
    entries = entry if isinstance(entry, list) else [entry]
    plain = [path for path in map(_text, entries) if path]
    return [("train", plain)] * bool(plain) + [
        (item["split"], _listed(item.get("path")))
        for item in entries
        if isinstance(item, dict) and _text(item.get("split"))
    ]


def _listed(paths: Any) -> list[str]:
    return [path for path in map(_text, paths if isinstance(paths, list) else [paths]) if path]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _inside(card: Path, patterns: list[str]) -> list[str]:
    """Return patterns, none of which leaves the folder."""
    for pattern in patterns:
        path = Path(pattern)
        if path.is_absolute() or ".." in path.parts or ":" in pattern:
            raise InputError(
                f"{card}: names {pattern!r:.300}, which is not in its folder: name files of the "
                "folder"
            )
    return patterns


def _load(files: Sequence[Path]) -> Dataset:
    """Copy Parquet files into a temporary Arrow file, some rows at a time, and map it."""
    path, file = temporary_arrow(), files[0]
    try:
        check_input(file)
        schema = pq.read_schema(file)
        with pa.ipc.new_stream(str(path), schema) as writer:
            for file in files:
                for table in parquet_tables(file):
                    writer.write_table(table.cast(schema))
        return open_arrow(path)
    except (pa.ArrowException, ValueError) as error:
        remove_arrow(path)
        reason = str(error).splitlines()[0]
        raise InputError(f"{file}: no readable Parquet ({reason}): make the file again") from error
    except OSError as error:
        remove_arrow(path)
        raise TilthError(
            f"{file}: {error.strerror or error}: free space, or set TMPDIR to a larger disk"
        ) from error
    except BaseException:
        remove_arrow(path)
        raise
