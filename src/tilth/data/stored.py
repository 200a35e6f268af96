"""Loads a data set folder's Parquet files as they are now, past the cache of `datasets`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tilth.data.mapped import open_arrow, remove_arrow, temporary_arrow
from tilth.errors import InputError, TilthError

if TYPE_CHECKING:
    from datasets import Dataset

_ROWS_AT_ONCE = 10_000
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
    for entry in card_configs(folder):
        name = str(entry.get("config_name", "default"))
        for split, patterns in _data_files(entry.get("data_files")):
            files = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
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


def card_configs(folder: Path) -> list[Mapping[str, Any]]:
    """Return the configs in the YAML head of a data set's card; none without such a head."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
        head = yaml.safe_load(text.split("---\n", 2)[1]) if text.startswith("---\n") else None
    except (OSError, ValueError, IndexError, yaml.YAMLError):
        return []
    configs = head.get("configs") if isinstance(head, dict) else None
    if not isinstance(configs, list):
        return []
    return [entry for entry in configs if isinstance(entry, dict)]


def _data_files(entry: Any) -> list[tuple[str, list[str]]]:
    """Return (split, patterns) of a config's `data_files` in any of the hub's forms."""
    if isinstance(entry, str):
        entry = [entry]
    if not isinstance(entry, list):
        return []
    if all(isinstance(item, str) for item in entry):
        return [("train", _inside(entry))]
    return [
        (str(item["split"]), _inside(item["path"]))
        for item in entry
        if isinstance(item, dict) and "split" in item and "path" in item
    ]


def _inside(patterns: str | Sequence[str]) -> list[str]:
    """Return patterns that do not leave the folder."""
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    return [item for item in map(str, listed) if item and not _leaves(Path(item))]


def _leaves(path: Path) -> bool:
    return path.is_absolute() or ".." in path.parts


def _load(files: Sequence[Path]) -> Dataset:
    """Copy Parquet files into a temporary Arrow file, some rows at a time, and map it."""
    path, file = temporary_arrow(), files[0]
    try:
        schema = pq.read_schema(file)
        with pa.ipc.new_stream(str(path), schema) as writer:
            for file in files:
                with pq.ParquetFile(file) as parquet:
                    for batch in parquet.iter_batches(batch_size=_ROWS_AT_ONCE):
                        writer.write_table(pa.Table.from_batches([batch]).cast(schema))
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
