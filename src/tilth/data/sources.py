"""Locate a source (files, a folder, a data set folder or a hub name) and load its rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tilth.data.card import CARD
from tilth.data.formats import CONLL_SPLITS, ENDINGS, ending_of, is_conll, known_ending
from tilth.errors import InputError, TilthError
from tilth.files import check_input, hub_answers, in_local_folder, suggestion
from tilth.storage import as_path, exists, pull
from tilth.urls import url_of

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
# Words in names of files -> split.
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "development", "val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_WORDS = re.compile(r"[a-z]+")
_SAVED = ("dataset_dict.json", "state.json")  # of `save_to_disk`
_HUB_NAME = re.compile(r"(?P<name>\w[\w.-]*/[\w.-]+)(:(?P<config>[^/\s]+))?")


def usual_split(value: Any) -> str | None:
    """Return the split that a value names, such as `validation` by "Dev"; None: it names none."""
    return _SPLITS.get(value.strip().lower()) if isinstance(value, str) else None


def named_split(splits: DatasetDict, name: str) -> Dataset | None:
    """Return the split of a name, or of another usual one of it (`dev` of `validation`).

    One with rows comes before one without.
    """
    found = [one for one in (name, *splits) if one in splits and name in (one, _SPLITS.get(one))]
    return max((splits[one] for one in found), key=lambda rows: len(rows) > 0, default=None)


@dataclass(frozen=True, slots=True)
class HubDataset:
    """Name a data set on the hub."""

    name: str
    config: str | None

    def load(self, split: str) -> Dataset:
        """Load a split."""
        from datasets import load_dataset

        with _datasets_errors(self.name), _offline_if_unreachable():
            dataset: Dataset = load_dataset(self.name, self.config, split=split)
            return dataset

    def splits(self) -> list[str]:
        """Return the names of all splits."""
        from datasets import get_dataset_split_names

        with _datasets_errors(self.name), _offline_if_unreachable():
            return list(get_dataset_split_names(self.name, self.config))


@dataclass(frozen=True, slots=True)
class DatasetFolder:
    """Name a folder written by `DatasetWriter` or by `datasets`."""

    path: Path

    def load(self, split: str) -> Dataset:
        """Load a split."""
        if "default" in folder_configs(self.path):
            return load_folder(self.path, split)

        splits = self._read()
        if not isinstance(splits, dict):
            return splits
        if split not in splits:
            raise InputError(f"{self.path}: no split {split!r}: there are {', '.join(splits)}")
        return splits[split]

    def splits(self) -> list[str]:
        """Return the names of all splits; none of rows without a split."""
        splits = folder_configs(self.path).get("default") or self._read()
        return list(splits) if isinstance(splits, dict) else []

    def filled(self) -> list[str]:
        """Return the names of the splits that hold rows."""
        stored = folder_configs(self.path).get("default")
        if not stored:
            return self.splits()
        return [split for split, files in stored.items() if any(map(_has_rows, files))]

    def _read(self) -> Dataset | DatasetDict:
        """Read what `datasets` has written or reads: all splits, or rows without a split."""
        from datasets import load_dataset, load_from_disk

        saved = any((self.path / name).is_file() for name in _SAVED)
        with _datasets_errors(str(self.path)):
            found: Dataset | DatasetDict = (
                load_from_disk(str(self.path)) if saved else load_dataset(str(self.path))
            )
            return found


def _has_rows(file: Path) -> bool:
    import pyarrow as pa  # not above: the names of sources are checked without
    import pyarrow.parquet as pq

    try:
        return bool(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowException):
        return True  # whoever reads it says what is wrong


def locate(source: str | Path) -> list[Path] | DatasetFolder | HubDataset:
    """Resolve a source; an existing path takes precedence over a hub name."""
    if not str(source):
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    path = fetched(source)
    exists = check_input(path)
    if path.is_dir():
        return _locate_folder(path)
    if exists:
        known_ending(path)
        return [path]
    match = _HUB_NAME.fullmatch(str(source))
    is_path = isinstance(source, Path) or ending_of(path) is not None or in_local_folder(path)
    if match is None or is_path:
        hint = suggestion(path)
        if not hint and len(str(source).split()) > 2:
            hint = "; a text in memory goes into a list, those of a bank into a file"
        raise InputError(f"{source!s:.200}: no such file or folder: check the path{hint}")
    return HubDataset(match["name"], match["config"])


def locate_split(
    source: str | Path, split: str, *, tell: bool = False
) -> list[Path] | DatasetFolder | HubDataset:
    """Resolve a source as `locate` does; of files that are named after splits, those of one.

    Args:
        tell: warn that the files of other splits are not read.
    """
    found = locate(source)
    if not isinstance(found, list):
        return found
    splits, wanted = splits_of(found), _SPLITS.get(split, split)
    if not splits:
        is_folder = found != [as_path(source)]
        named = set(_by_split(found)) if is_folder and wanted != "train" else set()
        if len(named) == 1 and not named & {"", wanted}:
            log.warning("%s: all its files are named %s: they are read as %s", source,
                        *named, wanted)  # fmt: skip
        return found
    files = splits.get(wanted)
    if files is None:
        raise InputError(
            f"{source}: no split {split!r}: there are {', '.join(splits)}; name files of it"
        )
    if tell:
        log.warning("%s: of its splits %s, %s is read", source, ", ".join(splits), split)
    return files


def split_names(source: str | Path, *, filled: bool = False) -> list[str]:
    """Return the names of all splits of a source, or of `filled` ones; none of rows without."""
    found = locate(source)
    if filled and isinstance(found, DatasetFolder):
        return found.filled()
    return list(splits_of(found)) if isinstance(found, list) else found.splits()


def refuse_split(source: Any, split: str, usual: str = "train") -> None:
    """Refuse to ask for a split of files that have none: all their rows would be read.

    Args:
        usual: the split that is read without asking.
    """
    if split == usual or not isinstance(source, str | Path):
        return
    found, wanted = locate(source), _SPLITS.get(split, split)
    if isinstance(found, list):
        is_there = wanted in splits_of(found) or set(_by_split(found)) == {wanted}
    else:
        is_there = isinstance(found, HubDataset) or bool(found.splits())
    if not is_there:
        raise InputError(
            f"{source}: no split {split!r}: leave --split out, or give each split a file of its "
            "name"
        )


def source_name(source: Any) -> str:
    """Return the name of a source for messages; rows in memory have none."""
    return str(source) if isinstance(source, str | Path) else "the rows given"


def chosen_split(source: Any, split: str) -> str:
    """Return which split of a place is read: the one asked for, if it has several, or its only."""
    names = split_names(source) if isinstance(source, str | Path) else []
    names = list(source) if isinstance(source, Mapping) else names
    return names[0] if len(names) == 1 else split


def splits_of(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return split -> files if all are named after splits, and after several; else nothing.

    The words may be among others, but not in the names of txt files, most of which are raw text.

    Example:
        >>> splits_of([Path("dev.jsonl.gz"), Path("trec-train.jsonl.gz"), Path("eng.testb")])
        {'validation': [...('dev.jsonl.gz')], 'train': [...], 'test': [...]}
    """
    found = _by_split(files)
    others = found.pop("", [])
    if others and len(found) > 1:
        log.warning(
            "%s: named after no split, so that all files are read, those of %s, too",
            others[0], " and ".join(found),
        )  # fmt: skip
    return found if len(found) > 1 and not others else {}


def _by_split(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return split -> files named after it; "" -> those named after none."""
    found: dict[str, list[Path]] = {}
    for file in files:
        name = CONLL_SPLITS.get(ending_of(file) or "") or file.name.lower()
        words = _WORDS.findall(name.removesuffix(".gz"))
        known = {_SPLITS[word] for word in words if word in _SPLITS}
        if words[-1:] == ["txt"] and len(words) > 2:
            known = set()
        found.setdefault(known.pop() if len(known) == 1 else "", []).append(file)
    return found


def fetched(source: str | Path) -> Path:
    """Return the path of a source; what a URL names is copied first, of a run its data sets."""
    path = as_path(source)
    if isinstance(source, str) and url_of(path) is not None:
        is_run = exists(path / "run.json")
        wanted = {path / "run.json", path / "dataset", path / "curated"}
        pull(path, only=lambda one: not is_run or bool(wanted & {one, *one.parents}), clean=True)
    return path


def _locate_folder(path: Path) -> list[Path] | DatasetFolder:
    if (path / "run.json").is_file():
        if not (path / "dataset").is_dir():
            raise InputError(
                f"{path}: the run holds no data set: name one that does, or, if this one is not "
                "finished, run its command again"
            )
        return DatasetFolder(path / "dataset")
    if any((path / name).is_file() for name in _SAVED):
        return DatasetFolder(path)
    if folder_configs(path) or card_configs(path):
        return DatasetFolder(path)
    try:
        items = list(_walk(path))
    except PermissionError as error:
        raise InputError(f"{error.filename}: no permission to read: change it") from error
    files = [item for item in items if item.is_file() and is_read(item)]
    skipped = [
        str(item.relative_to(path)) + (" (a link to a folder)" if item.is_dir() else "")
        for item in sorted(set(items) - set(files))
    ]
    if not files:
        raise InputError(
            f"{path}: no file to read in the folder: use {', '.join(ENDINGS)}; a .json file is "
            "read where it is named itself"
        )
    if skipped:
        log.warning("%s: not read: %s", path, ", ".join(skipped[:10]))
    return files


def is_read(file: Path) -> bool:
    """Tell whether a file is read as a part of its folder."""
    ending = ending_of(file)
    if ending == ".json":  # beside data, it mostly holds something else
        return False
    return ending is not None and (ending not in CONLL_SPLITS or is_conll(file))


def _walk(path: Path) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders, by name, without hidden ones.

    Links to folders, which may form a circle, are yielded themselves.
    """
    for item in sorted(path.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            check_input(item)
            yield item
        elif item.is_dir() and item.is_symlink():
            yield item
        elif item.is_dir():
            if (item / "run.json").is_file() or card_configs(item):
                raise InputError(
                    f"{path}: {item.name!r} in it is a data set of its own: name it "
                    "itself, or a folder of plain files"
                )
            yield from _walk(item)


def load_folder(folder: str | Path, split: str = "train", config: str = "default") -> Dataset:
    """Load a split of a data set folder, as `DatasetWriter` writes it.

    Unlike `datasets.load_dataset`, it leaves no copy in a cache, shows no progress bar and accepts
    a split without rows: a temporary copy is memory-mapped and removed with its rows.

    Args:
        folder: of the data set, or of the run that made it.
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
    path = fetched(folder)
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
    return _map_parquet(splits[split])


def _map_parquet(files: Sequence[Path]) -> Dataset:
    """Copy Parquet files in batches into a temporary Arrow file and map it."""
    import pyarrow as pa  # not above: the names of sources are checked without
    import pyarrow.parquet as pq

    from tilth.data.parquet import parquet_tables
    from tilth.data.temp_arrow import open_arrow, temporary_arrow

    file = files[0]
    with temporary_arrow() as path:
        try:
            check_input(file)
            schema = pq.read_schema(file)
            with pa.ipc.new_stream(str(path), schema) as writer:
                for file in files:
                    for table in parquet_tables(file):
                        writer.write_table(table.cast(schema))
            return open_arrow(path)
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"{file}: no readable Parquet ({str(error).splitlines()[0]}): make the file again"
            ) from error


def folder_configs(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Return config -> split -> Parquet files of a data set folder; empty if it is none.

    Includes splits without rows and dropped rows of which there are none, which the card's YAML
    head does not list.
    """
    found: dict[str, dict[str, list[Path]]] = {}
    for name, splits in card_configs(folder).items():
        for split, patterns in splits.items():
            try:
                files = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
            except (ValueError, NotImplementedError) as error:
                raise InputError(f"{folder / CARD}: {error}: name files of the folder") from error
            if files and all(file.suffix == ".parquet" for file in files):
                found.setdefault(name, {})[split] = files
    listed = {name: set(splits) for name, splits in found.items()}
    for file in sorted(folder.glob("*/*.parquet")):
        name = "default" if file.parent.name == "data" else file.parent.name
        if name not in (*listed, "default", "dropped"):
            continue
        split = _SHARD.sub("", file.stem)
        if split not in listed.get(name, ()):
            found.setdefault(name, {}).setdefault(split, []).append(file)
    return found


def card_configs(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return config -> split -> file patterns from the YAML head of a data set's card."""
    found: dict[str, dict[str, list[str]]] = {}
    for file in (folder / CARD, folder / ".huggingface.yaml"):  # `datasets` reads both
        try:
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            if file.name == CARD:
                text = text.split("---\n", 2)[1] if text.startswith("---\n") else ""
            head = yaml.safe_load(text)
        except (OSError, ValueError, IndexError, RecursionError, yaml.YAMLError):
            continue
        configs = head.get("configs") if isinstance(head, dict) else None
        for entry in configs if isinstance(configs, list) else ():
            if isinstance(entry, dict):
                given = entry.get("config_name", "default")
                name = str(given) if isinstance(given, str | int) else "default"
                splits = dict(_data_files(entry.get("data_files")))
                for patterns in (*splits.values(), _strings(entry.get("data_dir"))):
                    _check_inside(file, patterns)
                found.setdefault(name, {}).update(splits)
    return found


def _data_files(entry: Any) -> list[tuple[str, list[str]]]:
    """Return (split, patterns) of a config's `data_files` in any of the hub's forms."""
    if isinstance(entry, dict):
        return [(split, _strings(paths)) for split, paths in entry.items() if _strings(split)]
    plain = _strings(entry)
    return [("train", plain)] * bool(plain) + [
        (item["split"], _strings(item.get("path")))
        for item in (entry if isinstance(entry, list) else ())
        if isinstance(item, dict) and isinstance(item.get("split"), str)
    ]


def _strings(value: Any) -> list[str]:
    """Return the non-empty strings of a value or a list of values."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]


def _check_inside(card: Path, patterns: list[str]) -> None:
    for pattern in patterns:
        path = Path(pattern)
        if path.is_absolute() or ".." in path.parts or ":" in pattern:
            raise InputError(
                f"{card}: names {pattern!r:.300}, which is not in its folder: name files of the "
                "folder"
            )


@contextmanager
def _offline_if_unreachable() -> Iterator[None]:
    """Use the hub's cache alone without a network."""
    from datasets import config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE
    if not (config.HF_HUB_OFFLINE or hub_answers()):
        constants.HF_HUB_OFFLINE = config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, config.HF_HUB_OFFLINE = before


@contextmanager
def _datasets_errors(source: str) -> Iterator[None]:
    """Turn errors of `datasets` into one line."""
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
