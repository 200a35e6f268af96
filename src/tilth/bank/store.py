"""Write, map, check and read the shards of a bank, which hold sentences and codes."""

from __future__ import annotations

import json
import mmap
import operator
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank.manifest import (
    ADDING,
    MANIFEST,
    QUANTIZER,
    SHARDS,
    Manifest,
    Shard,
    checksum,
    from_json,
    read_manifest,
)
from tilth.bank.quantization import Codes, Quantizer, Signs
from tilth.bank.settings import GROUP, LANES
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, disk_errors, sync_folder
from tilth.storage import as_path, pull, push, remove
from tilth.urls import url_of

Ids: TypeAlias = NDArray[np.int64]
TEXT_FILE = "text.arrow"
TEXT, SOURCE, DOCUMENT = "text", "source", "document"
_ROWS = pa.schema([(TEXT, pa.string()), (SOURCE, pa.string()), (DOCUMENT, pa.int64())])
_SHOWN_SOURCES = 5
# Arrow's strings hold fewer bytes in one array; so many sentences, of 4,000 characters of 4 bytes
# at most, have no more.
_MOST_BYTES = 2**31 - 1
_FEW = _MOST_BYTES // 16_000


class MappedShard:
    """A memory-mapped shard, opened on first use."""

    def __init__(self, folder: Path, shard: Shard, first: int, widths: dict[str, int]) -> None:
        self.folder, self.first, self.sentences = folder, first, shard.sentences
        self._widths, self._files = widths, shard.files

    def _array(self, name: str, dtype: type, reading: int, rows: int | None = None) -> NDArray[Any]:
        path = self.folder / name
        try:
            # Copy-on-write, though never written: torch takes no read-only arrays.
            found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise TilthError(f"{path}: cannot be read ({error}): run `tilth bank check`") from error
        if found.dtype != dtype or found.shape != (rows or self.sentences, self._widths[name]):
            raise TilthError(f"{path}: is not what was written: run `tilth bank check`")
        if isinstance(found.base, mmap.mmap):
            found.base.madvise(reading)  # read-ahead: half the time when cold
        return np.asarray(found)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """Return the codes for a scan, (sentences, bytes)."""
        return self._array("codes.npy", np.uint8, mmap.MADV_SEQUENTIAL)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Return the scales of the codes, (sentences, groups)."""
        return self._array("scales.npy", np.float32, mmap.MADV_SEQUENTIAL)

    @cached_property
    def residual(self) -> NDArray[np.uint8] | None:
        """Return residual bits for rescoring, (sentences, bytes); None for compact."""
        if "fine.npy" not in self._files:
            return None
        return self._array("fine.npy", np.uint8, mmap.MADV_RANDOM)

    @cached_property
    def signs(self) -> Signs | None:
        """Return the signs of int8 codes; None for compact."""
        if "signs.npy" not in self._files:
            return None
        groups = -(-self.sentences // GROUP)
        return Signs(
            self._array("signs.npy", np.uint64, mmap.MADV_SEQUENTIAL, groups),
            self._array("sign_scales.npy", np.float32, mmap.MADV_SEQUENTIAL),
        )

    @cached_property
    def table(self) -> pa.Table:
        """Return the columns text, source and document."""
        table = read_table(self.folder / TEXT_FILE)
        if len(table) != self.sentences:
            raise TilthError(
                f"{self.folder / TEXT_FILE}: is not what was written: run `tilth bank check`"
            )
        return table


Selected: TypeAlias = Callable[[MappedShard], "NDArray[np.bool_] | None"]
"""Which sentences of a shard are searched; None: all."""


class Store:
    """The sentences of a bank, a sequence of texts, and their codes."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.shards: list[MappedShard] = []
        first = 0
        for shard in manifest.shards:
            folder = path / SHARDS / shard.name
            self.shards.append(MappedShard(folder, shard, first, manifest.widths))
            first += shard.sentences
        self._firsts = np.array([shard.first for shard in self.shards], np.int64)
        self.quantizer = load_quantizer(path, manifest)

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Open the store of a bank."""
        path = as_path(path)
        manifest = read_manifest(path)
        pull(path, only=lambda one: one.relative_to(path).parts[0] != ADDING)
        _check_sizes(path, manifest)
        return cls(path, manifest)

    def __len__(self) -> int:
        """Return the number of sentences."""
        return self.manifest.sentences

    @overload
    def __getitem__(self, number: int) -> str: ...

    @overload
    def __getitem__(self, number: slice) -> list[str]: ...

    def __getitem__(self, number: int | slice) -> str | list[str]:
        """Return one sentence or a slice; negative numbers count from the end."""
        if isinstance(number, slice):
            some: list[str] = self.texts(np.arange(*number.indices(len(self)))).to_pylist()
            return some
        place = operator.index(number)
        place += len(self) if place < 0 else 0
        return str(self.texts(np.array([place], np.int64))[0])

    def __iter__(self) -> Iterator[str]:
        """Yield all sentences in order."""
        for shard in self.shards:
            for batch in shard.table.select([TEXT]).to_batches(max_chunksize=10_000):
                yield from batch.column(0).to_pylist()

    def texts(self, ids: Ids) -> pa.Array:
        """Return sentences in the order of ids."""
        return self.rows(ids)[TEXT].combine_chunks()

    def rows(self, ids: Ids) -> pa.Table:
        """Return the columns text, source and document, in the order of ids."""
        ids = np.asarray(ids, np.int64)
        if not len(ids):
            return _ROWS.empty_table()
        if not 0 <= ids.min() <= ids.max() < len(self):
            raise IndexError(f"the bank holds sentences 0 to {len(self) - 1:,}")
        order = np.argsort(ids, kind="stable")
        cuts = np.searchsorted(ids[order], np.append(self._firsts, len(self)))
        tables = []
        for shard, start, stop in zip(self.shards, cuts, cuts[1:], strict=False):
            if start < stop:
                table = shard.table.select([TEXT, SOURCE, DOCUMENT])
                if len(ids) > _FEW:
                    table = table.set_column(0, TEXT, table[TEXT].cast(pa.large_string()))
                tables.append(table.take(_indices(ids[order[start:stop]] - shard.first)))
        table = pa.concat_tables(tables)
        table = table.set_column(1, SOURCE, pc.cast(table[SOURCE], pa.string()))
        table = table.take(_indices(np.argsort(order)))
        if table[TEXT].nbytes < _MOST_BYTES:
            table = table.set_column(0, TEXT, table[TEXT].cast(pa.string()))
        return table

    def sources(self) -> dict[str, int]:
        """Count the sentences of each source; reads a number for every sentence."""
        counts = dict.fromkeys(self.manifest.sources, 0)
        for shard in self.shards:
            for chunk in shard.table[SOURCE].chunks:
                names = chunk.dictionary.to_pylist()
                found = np.bincount(_numbers(chunk.indices), minlength=len(names))
                for name, count in zip(names, found.tolist(), strict=True):
                    counts[name] = counts.get(name, 0) + count
        return counts

    def source_filter(self, sources: Sequence[str] | None) -> Selected | None:
        """Return a filter by source names, patterns with `*`, or folders; None for all."""
        if sources is None:
            return None
        if isinstance(sources, str) or not len(sources):
            raise InputError(f"sources is {sources!r}: give a list of names")
        names = list(self.manifest.sources)
        for pattern in sources:
            if not any(_is_of(name, pattern) for name in names):
                raise InputError(
                    f"{self.path}: no source {pattern!r}: there are {some(names, _SHOWN_SOURCES)}"
                )
        return partial(_of_sources, tuple(sources))


def _indices(rows: Ids) -> pa.Array:
    """Return numbers of rows as Arrow takes them; `pa.array` imports pandas."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])


def _numbers(indices: pa.Array) -> NDArray[Any]:
    """Return indices without a missing one; `to_numpy` imports pandas."""
    numbers = np.frombuffer(indices.buffers()[1], f"i{indices.type.bit_width // 8}")
    return numbers[indices.offset :][: len(indices)]


def _of_sources(patterns: Sequence[str], shard: MappedShard) -> NDArray[np.bool_] | None:
    """Return which sentences of a shard are of some sources; None: all."""
    masks = [np.zeros(0, np.bool_)]
    for chunk in shard.table[SOURCE].chunks:
        wanted = [
            any(_is_of(name, pattern) for pattern in patterns)
            for name in chunk.dictionary.to_pylist()
        ]
        masks.append(np.array(wanted, np.bool_)[_numbers(chunk.indices)])
    mask = np.concatenate(masks)
    return None if mask.all() else mask


def _is_of(name: str, pattern: str) -> bool:
    """Tell whether a name, also that of the file alone, `*` pattern or folder matches a source."""
    if pattern in (name, name.rpartition("/")[2] or name):
        return True
    if name.startswith(pattern.rstrip("/") + "/"):
        return True
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.DOTALL) is not None


def some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of others, for a message."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def write_shard(folder: Path, name: str, made_of: str, table: pa.Table, codes: Codes) -> Shard:
    """Write a shard's folder atomically.

    Args:
        made_of: identity of the content, which `read_shard` compares.
    """
    temporary, final = folder / f"{TEMPORARY}{os.getpid()}-{name}", folder / name
    arrays: dict[str, NDArray[Any]] = {"codes.npy": codes.codes, "scales.npy": codes.scales}
    if codes.residual is not None:
        signs = Signs.of(codes)
        arrays["fine.npy"] = codes.residual
        arrays["signs.npy"], arrays["sign_scales.npy"] = signs.bits, signs.scales
    with disk_errors(final):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            text = temporary / TEXT_FILE
            with _synced(text) as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            for file_name, array in arrays.items():
                with _synced(temporary / file_name) as file:
                    np.save(file, array)
            described = Shard(
                name,
                len(table),
                int(pc.sum(pc.binary_length(table[TEXT])).as_py() or 0),
                {name: checksum(temporary / name) for name in (TEXT_FILE, *arrays)},
            )
            about = json.dumps({"made_of": made_of, **asdict(described)})
            (temporary / "shard.json").write_text(about, encoding="utf-8")
            sync_folder(temporary)
            remove(final)
            os.replace(temporary, final)
            push(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(folder)
    return described


@contextmanager
def _synced(path: Path) -> Iterator[BinaryIO]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def read_shard(folder: Path, name: str, made_of: str) -> Shard | None:
    """Return a shard that an interrupted job wrote; None without a matching, whole one."""
    try:
        found = json.loads((folder / name / "shard.json").read_text(encoding="utf-8"))
        shard: Shard = from_json(Shard, {key: found[key] for key in found if key != "made_of"})
        sizes = ((folder / name / file, size) for file, (size, _) in shard.files.items())
        # Under a URL, the copies may be gone.
        is_whole = url_of(folder) or all(path.stat().st_size == size for path, size in sizes)
        return shard if is_whole and found["made_of"] == made_of else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def read_table(path: Path) -> pa.Table:
    """Map a shard's texts into memory."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        are_whole = all(map(_are_in_order, table[TEXT].chunks))
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise TilthError(f"{path}: cannot be read ({error}): run `tilth bank check`") from error
    if not are_whole:
        raise TilthError(f"{path}: is not what was written: run `tilth bank check`")
    return table


def _are_in_order(texts: pa.Array) -> bool:
    """Tell whether texts lie one behind another; Arrow follows wrong places out of the file."""
    if not len(texts):
        return True
    _, starts, data = texts.buffers()
    places = np.frombuffer(starts, np.int32)[texts.offset :][: len(texts) + 1]
    is_complete = len(places) == len(texts) + 1 and places[0] >= 0 and places[-1] <= data.size
    return bool(is_complete and (np.diff(places) >= 0).all())


def load_quantizer(bank: Path, manifest: Manifest) -> Quantizer:
    """Read the bank's quantizer."""
    path = bank / QUANTIZER
    quantizer = Quantizer.load(path, manifest.format, manifest.fours, manifest.twos)
    width = manifest.widths["codes.npy"]
    if manifest.format == "compact":
        width = manifest.fours + manifest.twos
    right = (*quantizer.mean.shape, *quantizer.rotation.shape) == (*[manifest.dimension] * 2, width)
    bits = (manifest.fours % (2 * LANES), manifest.twos % (4 * LANES))
    if not right or any(bits) or checksum(path)[1] != manifest.codec:
        raise TilthError(
            f"{path}: its bytes are not those that were written: restore it from a copy"
        )
    return quantizer


def _check_sizes(bank: Path, manifest: Manifest) -> None:
    """Check that every shard file exists with its size."""
    for path, size, _ in _files(bank, manifest):
        try:
            found = path.stat().st_size
        except OSError as error:
            wrong = f"is missing ({error.strerror})"
        else:
            if found == size:
                continue
            wrong = f"has {found:,} bytes, the manifest says {size:,}"
        raise TilthError(f"{path}: {wrong}: restore the shard from a copy, or build the bank anew")


def check_files(bank: Path, manifest: Manifest) -> Iterator[tuple[int, list[str]]]:
    """Verify the checksum of each shard file; yield its bytes, and a line if it is damaged."""
    for path, size, digest in _files(bank, manifest):
        lines = []
        try:
            found = checksum(path)
            if found[0] != size:
                lines.append(f"{path}: has {found[0]:,} bytes, {size:,} were written")
            elif found[1] != digest:
                lines.append(f"{path}: its bytes are not those that were written")
        except OSError as error:
            lines.append(f"{path}: cannot be read ({error.strerror or error})")
        yield size, lines


def miscounted(bank: Path, manifest: Manifest) -> list[str]:
    """Return a line on the first file that is not as the manifest says."""
    try:
        for shard in Store(bank, manifest).shards:
            _ = shard.codes, shard.scales, shard.residual, shard.signs, shard.table
    except TilthError as error:
        path, _, _ = str(error).partition(": ")
        return [f"{path}: does not fit {MANIFEST}: one of the two was edited"]
    return []


def _files(bank: Path, manifest: Manifest) -> Iterator[tuple[Path, int, str]]:
    for shard in manifest.shards:
        for name, (size, digest) in shard.files.items():
            yield bank / SHARDS / shard.name / name, size, digest
