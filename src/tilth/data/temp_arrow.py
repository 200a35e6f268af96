"""Rows streamed into a temporary Arrow file and mapped from there, so memory stays flat."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tilth.errors import InputError, TilthError

if TYPE_CHECKING:
    from datasets import Dataset


def is_alive(process: int) -> bool:
    """Say whether another process of this machine has this number."""
    if process == os.getpid():  # what this number left, an earlier process left
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


class _Mapping(mmap.mmap):
    """A mapping that can say when nobody holds it any more."""


def temporary_arrow() -> Path:
    """Return the path of an empty file in a new temporary folder of its own.

    Raises:
        TilthError: no temporary folder can be made.
    """
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    try:
        _remove_stale(Path(tempfile.gettempdir()), host)
        return Path(tempfile.mkdtemp(prefix=f"tilth-{host}-{os.getpid()}-")) / "rows.arrow"
    except OSError as error:
        raise TilthError(
            f"no temporary file can be made: {error}: set TMPDIR to a writable folder"
        ) from error


def _remove_stale(folder: Path, host: str) -> None:
    """Remove what killed processes of this machine left; elsewhere their numbers say nothing."""
    name = re.compile(rf"tilth-{re.escape(host)}-(\d+)-\w+")
    for item in folder.glob(f"tilth-{host}-*"):
        match = name.fullmatch(item.name)
        if match and int(match[1]) != os.getpid() and not is_alive(int(match[1])):
            shutil.rmtree(item, ignore_errors=True)


def open_arrow(path: Path) -> Dataset:
    """Return the rows of a file of `temporary_arrow` without reading them into memory.

    Whatever is made of the rows (`select`, `filter`, columns) keeps the file; with the last of
    it the file goes, at the latest with the process.
    """
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    with open(path, "rb") as file:
        mapping = _Mapping(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Tables hold their buffers, and these the mapping; workers of `map(num_proc=...)` open the
    # path instead, so the name has to stay as long as any table does.
    weakref.finalize(mapping, _remove_own, path, os.getpid())
    table = pa.ipc.open_stream(pa.py_buffer(mapping)).read_all()
    return Dataset(MemoryMappedTable(table, str(path)))


def remove_arrow(path: Path) -> None:
    """Remove a file of `temporary_arrow` and its folder."""
    path.unlink(missing_ok=True)
    try:
        path.parent.rmdir()
    except FileNotFoundError:
        pass
    except OSError:  # `datasets` keeps what map() made beside its source, and it may be in use
        weakref.finalize(_Mapping, _remove_folder, path.parent, os.getpid())  # at exit


def _remove_folder(folder: Path, process: int) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_own(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked worker drops its copy, not the file
        remove_arrow(path)


_ROWS_AT_ONCE = 10_000
_CHARS_AT_ONCE = 16_000_000  # rows can be long
_DEPTH = 32  # Arrow's files and `datasets` go no deeper than some dozens
_MISFITS = (pa.ArrowException, OverflowError, UnicodeEncodeError)


class Spool:
    """Takes rows as dicts and becomes a memory-mapped data set.

    Types are found in the rows: whole numbers and fractions in one column become fractions, a
    missing value is null, and anything else that does not fit together is an error.

    Args:
        source: what is read, for messages.
        names: the columns, in order; None: those of the rows, in order of appearance.
    """

    def __init__(self, source: str, names: Sequence[str] | None = None) -> None:
        self._source, self._fixed = source, names is not None
        self._names = list(names or ())
        self._columns: dict[str, list[Any]] = {name: [] for name in self._names}
        self._origins: list[str] = []
        self._schema: pa.Schema | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._path = temporary_arrow()
        self.rows = self._chars = 0

    def add(self, row: dict[str, Any], origin: str) -> None:
        """Take a row; `origin` names its file and line."""
        if not self._fixed:
            for name in row:
                if name not in self._columns:
                    self._columns[name] = [None] * len(self._origins)
                    self._names.append(name)
        for name in self._names:
            value = row.get(name)
            self._columns[name].append(value)
            if isinstance(value, str):
                self._chars += len(value)
        self._origins.append(origin)
        self.rows += 1
        if len(self._origins) >= _ROWS_AT_ONCE or self._chars >= _CHARS_AT_ONCE:
            self._flush()

    def dataset(self) -> Dataset:
        """Return the rows; the temporary file goes when the data set does."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        return open_arrow(self._path)

    def discard(self) -> None:
        """Remove the temporary file after an error."""
        if self._writer is not None:
            self._writer.close()
        remove_arrow(self._path)

    def _flush(self) -> None:
        arrays = [self._array(name) for name in self._names]
        table = pa.Table.from_arrays(arrays, names=self._names)
        schema = self._unified(table.schema)
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self._path), schema)
            elif schema != self._schema:
                self._rewrite(schema)
            self._schema = schema
            self._writer.write_table(_fit(table, schema))
        except pa.ArrowException as error:  # whole numbers too long to be fractions
            raise self._misfit(error) from error
        except OSError as error:
            raise TilthError(
                f"{self._path}: {error.strerror or error}: free space, or set TMPDIR to "
                "a larger disk"
            ) from error
        self._columns = {name: [] for name in self._names}
        self._origins, self._chars = [], 0

    def _array(self, name: str) -> pa.Array:
        values = self._columns[name]
        try:
            array = pa.array(values)
        except _MISFITS as error:
            place = self._first_misfit(values)
            raise InputError(
                f"{self._origins[place]}: column {name!r} holds {values[place]!r:.60}, which does "
                "not fit the values before it: give the column one type"
            ) from error

        if pa.types.is_struct(array.type) and not array.type.num_fields:
            return pa.nulls(len(array))  # objects without any field: no file format holds them
        wrong = _unstorable(array.type)
        if wrong:
            raise InputError(
                f"{self._origins[0]} and below: column {name!r} holds {wrong}: leave it out, or "
                "store it as text"
            )
        return array

    @staticmethod
    def _first_misfit(values: list[Any]) -> int:
        """Return the index of the first value that the ones before do not go with."""
        low, high = 0, len(values)
        while high - low > 1:  # pa.array(values[:low]) works, pa.array(values[:high]) does not
            middle = (low + high) // 2
            try:
                pa.array(values[:middle])
                low = middle
            except _MISFITS:
                high = middle
        return low

    def _unified(self, schema: pa.Schema) -> pa.Schema:
        if self._schema is None:
            return schema
        try:
            return pa.unify_schemas([self._schema, schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise self._misfit(error) from error

    def _misfit(self, error: pa.ArrowException) -> InputError:
        return InputError(
            f"{self._origins[0]} and below: {str(error).splitlines()[0]} in {self._source}: "
            "give each column one type"
        )

    def _rewrite(self, schema: pa.Schema) -> None:
        """Write what is there again under a wider schema; rare, so it may cost a pass."""
        assert self._writer is not None
        self._writer.close()
        old, self._path = self._path, temporary_arrow()
        self._writer = pa.ipc.new_stream(str(self._path), schema)
        with pa.OSFile(str(old)) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                self._writer.write_table(_fit(pa.Table.from_batches([batch]), schema))
        remove_arrow(old)


def _unstorable(kind: pa.DataType) -> str | None:
    """Return what of a type no file can hold."""
    kinds, depth = [kind], 0
    while kinds:
        if depth > _DEPTH:
            return f"values nested more than {_DEPTH} deep"
        if any(pa.types.is_struct(one) and not one.num_fields for one in kinds):
            return "objects without fields inside other values"
        kinds = [one.field(n).type for one in kinds for n in range(one.num_fields)]
        depth += 1
    return None


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
