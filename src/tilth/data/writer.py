"""Write a data set: Parquet files and a card that `datasets.load_dataset` reads."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.data.card import CARD, Card
from tilth.errors import InputError
from tilth.files import TEMPORARY, create_locked, disk_errors, sync_folder, try_lock

if TYPE_CHECKING:
    from datasets import Features

# Fewer rows make files that are slow to read, more make memory grow.
_ROWS_AT_ONCE = 20_000
DROP_REASON = "drop_reason"  # the column that says why a row is left out
_OWNED = {CARD, "data"}
_TEMPORARY = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]+-(old-)?")


class DatasetWriter:
    """Stream tables into a data set folder, which appears when the `with` block ends.

    Files are written to a hidden folder beside it, which is removed after an error. The default
    config is in `data/`, every other in a folder of its name.

    Args:
        folder: replaced if it holds an earlier data set.
        features: config -> features; default: those of the first table of a config.

    Raises:
        InputError: the folder holds something else than a data set.
        TilthError: the disk is full, or the folder cannot be written.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> folder = tempfile.mkdtemp() + "/set"
        >>> with DatasetWriter(folder) as writer:
        ...     writer.write(pa.table({"text": ["Good."], "label": ["yes"]}), split="train")
        >>> from datasets import load_dataset
        >>> load_dataset(folder, split="train")[0]
        {'text': 'Good.', 'label': 'yes'}
    """

    def __init__(self, folder: str | Path, features: dict[str, Features] | None = None) -> None:
        self.folder = Path(os.path.realpath(folder))  # what a link leads to is replaced
        self._features = features or {}
        self._making: Path | None = None
        self._card_file: BinaryIO | None = None  # its lock says that the writer is alive
        self._files: dict[tuple[str, str], _ParquetFile] = {}
        self._card: Card | None = None
        self.drops: Counter[str] = Counter()

    def write(self, table: pa.Table, *, split: str = "train", config: str = "default") -> None:
        """Append rows to a split of a config."""
        key = (config, split)
        with disk_errors(self.folder):
            if key not in self._files:
                path = self._hidden() / _place(config, split)
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files[key] = _ParquetFile(path, self._schema(config, table))
            self._files[key].write(table)

    def write_dropped(self, table: pa.Table) -> pa.Table:
        """Write rows with a `drop_reason` to the config `dropped`; return the others without it.

        `drops` counts the reasons.
        """
        reasons = table[DROP_REASON]
        self.drops.update(reasons.drop_null().to_pylist())
        self.write(table.filter(pc.is_valid(reasons)), config="dropped")
        return table.filter(pc.is_null(reasons)).drop_columns([DROP_REASON])

    def write_card(self, card: Card) -> None:
        """Set the card; its `configs` and `content` are filled in."""
        self._card = card

    def _schema(self, config: str, table: pa.Table) -> pa.Schema:
        from datasets import Features

        features = self._features.get(config) or Features.from_arrow_schema(table.schema)
        return features.arrow_schema

    def __enter__(self) -> DatasetWriter:
        """Make the hidden folder; remove those of killed writers."""
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            raise InputError(f"{self.folder}: is no folder: choose another --out")
        if self.folder.is_dir():
            others = sorted(p.name for p in self.folder.iterdir() if not _is_own(p))
            if others:
                raise InputError(
                    f"{self.folder}: holds {others[0]!r}, which is no part of a data set: "
                    "move it away"
                )
        with disk_errors(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._clear_up()
            card, self._card_file = create_locked(self._make_hidden)
            self._making = card.parent
        return self

    def _make_hidden(self, name: str) -> Path:
        """Make the hidden folder; return the path of its card."""
        folder = self.folder.with_name(f"{name}-{self.folder.name}")
        folder.mkdir()
        return folder / CARD

    def _hidden(self) -> Path:
        if self._making is None:
            raise RuntimeError("a data set is written inside its `with` block only")
        return self._making

    def _clear_up(self) -> None:
        """Remove leftovers of killed writers; restore a set that one was about to replace."""
        replaced = []
        for stale in self.folder.parent.glob(f"{TEMPORARY}*-{glob.escape(self.folder.name)}"):
            match = _TEMPORARY.fullmatch(stale.name.removesuffix(self.folder.name))
            if match is not None and match[1]:
                replaced.append(stale)
            elif match is not None:
                with suppress(FileNotFoundError), open(stale / CARD, "r+b") as card:
                    if not try_lock(card):
                        return  # another writer of this set is alive, and may be replacing it
                    shutil.rmtree(stale)
        for stale in replaced:
            if self.folder.exists():
                shutil.rmtree(stale)
            else:
                stale.rename(self.folder)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Move the set to its place; after an error, remove it."""
        try:
            with disk_errors(self.folder):
                for file in self._files.values():
                    file.close(write=kind is None)
                if kind is None:
                    self._finish()
        finally:
            shutil.rmtree(self._hidden(), ignore_errors=True)
            if self._card_file is not None:
                self._card_file.close()

    def _finish(self) -> None:
        card = self._card or Card(
            title=self.folder.name,
            summary="A data set written by tilth.",
            command="",
            settings={},
            counts={
                split: {"": file.rows}
                for (config, split), file in self._files.items()
                if config == "default"
            },
        )
        configs: dict[str, dict[str, str]] = {}
        is_empty = not any(file.rows for (config, _), file in self._files.items()
                           if config == "default")  # fmt: skip
        for config, split in sorted(self._files, key=lambda key: key[0] != "default"):
            # `datasets` loads no split without rows, nor any other split of its config.
            if self._files[config, split].rows or (is_empty and config == "default"):
                configs.setdefault(config, {})[split] = _place(config, split)
        text = replace(card, configs=configs, content=self._content()).render()
        making = self._hidden()
        assert self._card_file is not None
        self._card_file.write(text.encode(errors="replace"))
        self._card_file.flush()
        os.fsync(self._card_file.fileno())
        old = making.with_name(
            f"{making.name.removesuffix(self.folder.name)}old-{self.folder.name}"
        )
        if self.folder.is_dir():
            self.folder.rename(old)
        try:
            making.rename(self.folder)
        except OSError:
            if old.is_dir():
                old.rename(self.folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
        sync_folder(self.folder.parent)

    def _content(self) -> str:
        """Return a hash of all files."""
        hashed = blake2b(digest_size=16)
        for config, split in sorted(self._files):
            hashed.update(f"{_place(config, split)}\n".encode())
            with open(self._hidden() / _place(config, split), "rb") as file:
                while block := file.read(1 << 20):
                    hashed.update(block)
        return hashed.hexdigest()


class _ParquetFile:
    """Write one Parquet file; gather small tables into row groups."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close()
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd")
        self._waiting: list[pa.Table] = []
        self.rows = self._waiting_rows = 0

    def write(self, table: pa.Table) -> None:
        extra = set(table.column_names) - set(self._schema.names)
        if extra:  # else the column would be lost silently
            raise ValueError(f"the first table had no column {sorted(extra)[0]!r}")
        table = table.select(self._schema.names).cast(self._schema)
        self._waiting.append(table)
        self.rows += table.num_rows
        self._waiting_rows += table.num_rows
        if self._waiting_rows >= _ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting_rows:  # `datasets` cannot read a row group without rows
            self._writer.write_table(
                pa.concat_tables(self._waiting).combine_chunks(), row_group_size=_ROWS_AT_ONCE
            )
        self._waiting, self._waiting_rows = [], 0

    def close(self, *, write: bool) -> None:
        try:
            if write:
                self._flush()
                self._writer.close()
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._writer.is_open = False  # else its __del__ writes to the closed file
            self._file.close()


def _place(config: str, split: str) -> str:
    folder = "data" if config == "default" else config
    return f"{folder}/{split}.parquet"


def _is_own(path: Path) -> bool:
    """Return whether a path is one that a writer makes."""
    if path.is_dir():
        return all(item.suffix == ".parquet" for item in path.iterdir())
    return path.name in _OWNED
