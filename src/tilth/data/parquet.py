"""Record batches of a Parquet file, checked; memory does not grow with what they expand to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.errors import InputError
from tilth.files import check_input

_ROWS = 10_000
_BATCH_BYTES = 256 << 20
_GROUP_BYTES = 4 << 30  # pages of a row group are decompressed together


def parquet_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows in order.

    Texts are read as the file keeps them, each distinct one once, and put in their rows a few at
    a time: a file of some kB may hold a long text a million times.

    Args:
        path: of the file.
        columns: those wanted, as far as there are such; None: all.

    Raises:
        InputError: a row group is larger than 4 GB.
        pyarrow.ArrowException: the file is damaged, or texts are no UTF-8.
        OSError: it cannot be read.
    """
    check_input(path)
    with pq.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    wanted = [name for name in schema.names if columns is None or name in columns] or schema.names
    for group in range(metadata.num_row_groups):
        chunks = [metadata.row_group(group).column(n) for n in range(metadata.num_columns)]
        size = sum(
            chunk.total_uncompressed_size
            for chunk in chunks
            if chunk.path_in_schema.split(".")[0] in wanted
        )
        if size > _GROUP_BYTES:
            raise InputError(
                f"{path}: row group {group} holds {size:,} bytes, at most {_GROUP_BYTES:,} are "
                "read: write smaller row groups"
            )
    texts = [field.name for field in schema if _is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(_ROWS, columns=wanted):
            batch.validate(full=True)
            yield from _decoded(batch, schema, texts)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _decoded(
    batch: pa.RecordBatch, schema: pa.Schema, texts: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield a batch with its texts in their rows, in pieces where they are long."""
    encoded = [name for name in batch.schema.names if name in texts]
    size = sum(
        pc.sum(pc.take(pc.binary_length(batch[name].dictionary), batch[name].indices)).as_py() or 0
        for name in encoded
    )
    if size > _BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _decoded(batch.slice(0, half), schema, texts)
        yield from _decoded(batch.slice(half), schema, texts)
        return
    columns = [
        batch[name].cast(schema.field(name).type) if name in encoded else batch[name]
        for name in batch.schema.names
    ]
    fields = [schema.field(name) for name in batch.schema.names]
    yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
