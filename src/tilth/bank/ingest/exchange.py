"""Files that steps of an ingestion hand to each other; damaged ones are removed and made again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tilth.errors import TilthError
from tilth.files import atomic_write, is_damage
from tilth.storage import fetch, remove

FORM = 2  # of the files
_ABOUT, _CHECKSUM = b"about", b"checksum"


@contextmanager
def removing_damage(path: Path) -> Iterator[None]:
    """Remove a file that cannot be read, so that the same command makes it again."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, KeyError) as error:
        if not is_damage(error):
            raise
        remove(path)
        raise TilthError(
            f"{path}: was damaged and is removed: run the same command again"
        ) from error


def read_columns(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return columns of a Parquet file."""
    fetch(path)
    with removing_damage(path):
        return pq.read_table(path, columns=list(columns), page_checksum_verification=True)


def write_batches(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], about: bytes = b""
) -> None:
    """Write a file with a record batch for each receiver."""
    path.parent.mkdir(parents=True, exist_ok=True)  # a host without a shared folder has none
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    schema = schema.with_metadata({_ABOUT: about})

    def write(file: object) -> None:
        with pa.ipc.new_file(file, schema, options=options) as writer:
            for batch in batches:
                own = batch.replace_schema_metadata(schema.metadata)
                writer.write_batch(own, custom_metadata={_CHECKSUM: _checksum(own)})

    atomic_write(path, write, sync=False)  # a damaged one is made again


def _checksum(batch: pa.RecordBatch) -> bytes:
    return b"%08x" % zlib.crc32(batch.serialize())


class Batches:
    """The record batches of a file that `write_batches` wrote."""

    def __init__(self, path: Path) -> None:
        fetch(path)
        self._path = path
        with removing_damage(path):
            self._file = pa.ipc.open_file(pa.memory_map(str(path)))

    def __getitem__(self, receiver: int) -> pa.RecordBatch:
        """Return the batch of a receiver."""
        with removing_damage(self._path):
            batch, beside = self._file.get_batch_with_custom_metadata(receiver)
            if beside is None or beside[_CHECKSUM] != _checksum(batch):
                raise pa.ArrowInvalid("its checksum is another")
            return batch

    @property
    def about(self) -> bytes:
        """Return what was written beside the batches."""
        return bytes(self._file.schema.metadata[_ABOUT])
