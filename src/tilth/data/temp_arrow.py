"""Write rows to a temporary Arrow file and memory-map it."""

from __future__ import annotations

import atexit
import mmap
import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from tilth.data.labels import is_number
from tilth.errors import InputError, TilthError

if TYPE_CHECKING:
    from datasets import Dataset

_ROWS_AT_ONCE = 10_000
_CHARS_AT_ONCE = 16_000_000  # rows can be long
_DEPTH = 32  # Arrow's files and `datasets` go no deeper than some dozens
_MISFITS = (pa.ArrowException, OverflowError, UnicodeEncodeError)


@contextmanager
def temporary_arrow() -> Iterator[Path]:
    """Yield the path of a new temporary file; remove it if the block raises."""
    try:
        folder = process_folder(tempfile.gettempdir(), os.getpid())
        folder.mkdir(mode=0o700, exist_ok=True)  # a cleaner of old files may have removed it
        handle, name = tempfile.mkstemp(".arrow", dir=folder)
        os.close(handle)
    except OSError as error:
        raise TilthError(
            f"no temporary file can be made: {error}: set TMPDIR to a writable folder"
        ) from error
    path = Path(name)
    try:
        yield path
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, name):
            raise TilthError(
                f"{path}: {error.strerror or error}: free space, or set TMPDIR to a larger disk"
            ) from error
        raise


@cache
def process_folder(parent: str, process: int) -> Path:
    """Make a process's temporary folder in `parent`; remove those of killed processes."""
    host = re.sub(r"[^\w.]", "_", socket.gethostname())  # on another, process ids say nothing
    for item in Path(parent).glob(f"tilth-{host}-*"):
        match = re.fullmatch(rf"tilth-{re.escape(host)}-(\d{{1,9}})-\w+", item.name)
        if match and not psutil.pid_exists(int(match[1])):
            shutil.rmtree(item, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"tilth-{host}-{process}-", dir=parent))
    atexit.register(_remove, folder, process)
    return folder


def _remove(path: Path, process: int) -> None:
    if os.getpid() != process:  # a forked worker drops its copy, not the files
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class _Mapping(mmap.mmap):
    """Support weak references to a memory mapping."""


def open_arrow(path: Path) -> Dataset:
    """Memory-map the rows of a file of `temporary_arrow`.

    The file is removed with the last table derived from the rows (`select`, `filter`, columns), at
    the latest with the process.
    """
    from datasets import Dataset
    from datasets.table import MemoryMappedTable

    with open(path, "rb") as file:
        mapping = _Mapping(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Tables hold their buffers, and these the mapping; workers of `map(num_proc=...)` open the
    # path instead, so the name has to stay as long as any table does.
    weakref.finalize(mapping, _remove, path, os.getpid())
    table = pa.ipc.open_stream(pa.py_buffer(mapping)).read_all()
    return Dataset(MemoryMappedTable(table, str(path)))


class TempArrowWriter:
    """Collect rows as dicts inside a `with` block; `dataset` returns them memory-mapped.

    Types are inferred: whole numbers and fractions in one column become fractions, numbers and
    texts become texts, missing values are null, and other mixed types are an error.

    Args:
        source: for messages.
        names: the columns, in order; None: those of the rows, in order of appearance.
    """

    def __init__(self, source: str, names: Sequence[str] | None = None) -> None:
        self._source, self._fixed = source, names is not None
        self._names = list(names or ())
        self._columns: dict[str, list[Any]] = {name: [] for name in self._names}
        self._locations: list[str] = []
        self._schema: pa.Schema | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._stack = ExitStack()
        self.rows = self._chars = 0

    def __enter__(self) -> TempArrowWriter:
        """Make the temporary file."""
        self._path = self._stack.enter_context(temporary_arrow())
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the file; remove it after an error."""
        if self._writer is not None:
            with suppress(OSError):  # on a full disk, closing fails once more
                self._writer.close()
        self._stack.__exit__(*error)

    def add(self, row: dict[str, Any], location: str) -> None:
        """Add a row; `location` names its file and line."""
        if not self._fixed:
            for name in row:
                if name not in self._columns:
                    self._columns[name] = [None] * len(self._locations)
                    self._names.append(name)
        for name in self._names:
            value = row.get(name)
            self._columns[name].append(value)
            if isinstance(value, str):
                self._chars += len(value)
        self._locations.append(location)
        self.rows += 1
        if len(self._locations) >= _ROWS_AT_ONCE or self._chars >= _CHARS_AT_ONCE:
            self._flush()

    def dataset(self) -> Dataset:
        """Return the rows; the temporary file is removed with them."""
        self._flush()
        assert self._writer is not None  # _flush has made it
        self._writer.close()
        return open_arrow(self._path)

    def _flush(self) -> None:
        arrays = [self._array(name) for name in self._names]
        table = pa.Table.from_arrays(arrays, names=self._names)
        try:
            schema = table.schema
            if self._writer is None:
                self._writer = pa.ipc.new_stream(str(self._path), schema)
            elif schema != self._schema:
                assert self._schema is not None  # that of the writer
                schema = pa.unify_schemas(
                    _with_texts(self._schema, schema), promote_options="permissive"
                )
                if schema != self._schema:
                    self._rewrite(schema)
            self._schema = schema
            self._writer.write_table(_cast(table, schema))
        except pa.ArrowException as error:  # also whole numbers too long to be fractions
            raise InputError(
                f"{self._locations[0]} and below: {str(error).splitlines()[0]} in {self._source}: "
                "give each column one type"
            ) from error
        self._columns = {name: [] for name in self._names}
        self._locations, self._chars = [], 0

    def _array(self, name: str) -> pa.Array:
        values = self._columns[name]
        try:
            array = pa.array(_as_texts(values) if _is_mixed(values) else values)
        except _MISFITS as error:
            if {type(value) for value in values} <= {int, float, type(None)}:  # above 64 bits
                return pa.array(_as_texts(values))
            place = self._first_misfit(values)
            why = "does not fit the values before it" if place else "mixes types"
            remedy = "give the column one type"
            if isinstance(error, UnicodeEncodeError):
                why, remedy = "has half a character (a lone surrogate)", "write the whole character"
            raise InputError(
                f"{self._locations[place]}: column {name!r} holds {values[place]!r:.60}, which "
                f"{why}: {remedy}"
            ) from error

        if pa.types.is_struct(array.type) and not array.type.num_fields:
            return pa.nulls(len(array))  # objects without any field: no file format holds them
        wrong = _unstorable(array.type)
        if wrong:
            raise InputError(
                f"{self._locations[0]} and below: column {name!r} holds {wrong}: leave it out, or "
                "store it as text"
            )
        return array

    @staticmethod
    def _first_misfit(values: list[Any]) -> int:
        """Return the index of the first value that does not fit those before it."""
        low, high = 0, len(values)
        while high - low > 1:  # pa.array(values[:low]) works, pa.array(values[:high]) does not
            middle = (low + high) // 2
            try:
                pa.array(values[:middle])
                low = middle
            except _MISFITS:
                high = middle
        return low

    def _rewrite(self, schema: pa.Schema) -> None:
        """Rewrite the file under a wider schema; rare, so it may cost a pass."""
        assert self._writer is not None  # its schema is what changes
        self._writer.close()
        old, self._path = self._path, self._stack.enter_context(temporary_arrow())
        self._writer = pa.ipc.new_stream(str(self._path), schema)
        with pa.OSFile(str(old)) as file, pa.ipc.open_stream(file) as batches:
            for batch in batches:
                self._writer.write_table(_cast(pa.Table.from_batches([batch]), schema))
        old.unlink()


def _with_texts(*schemas: pa.Schema) -> list[pa.Schema]:
    """Return two schemas in which a column of numbers is of texts where the other one's is."""
    found = list(schemas)
    for name in set(found[0].names) & set(found[1].names):
        kinds = [schema.field(name).type for schema in found]
        if any(map(pa.types.is_string, kinds)) and any(map(is_number, kinds)):
            found = [
                schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
                for schema in found
            ]
    return found


def _is_mixed(values: list[Any]) -> bool:
    """Tell whether values are numbers and texts."""
    kinds = {type(value) for value in values} - {type(None)}
    return str in kinds and len(kinds) > 1 and kinds <= {str, int, float}


def _as_texts(values: list[Any]) -> list[str | None]:
    """Return values as texts; NaN, such as of pandas, is a missing one."""
    return [
        None if value is None or value != value
        else pa.scalar(value).cast(pa.string()).as_py() if isinstance(value, float)
        else str(value)
        for value in values
    ]  # fmt: skip


def _unstorable(kind: pa.DataType) -> str | None:
    """Describe the part of a type that no file can hold."""
    kinds, depth = [kind], 0
    while kinds:
        if depth > _DEPTH:
            return f"values nested more than {_DEPTH} deep"
        if any(pa.types.is_struct(one) and not one.num_fields for one in kinds):
            return "objects without fields inside other values"
        kinds = [one.field(n).type for one in kinds for n in range(one.num_fields)]
        depth += 1
    return None


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table[field.name]
        if pa.types.is_floating(column.type) and pa.types.is_string(field.type):
            column = pc.if_else(pc.is_nan(column), None, column)  # a missing text
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
