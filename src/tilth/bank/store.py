"""What a bank is on disk: shards that are there whole, and a manifest that names them.

    BANK/
      bank.json            the manifest: encoder, format, shards with sizes and checksums, counts
      codec.safetensors    how vectors become bytes
      shards/NAME/         text.arrow, codes.npy, scales.npy and, of int8, fine.npy
      encoder/             only where it was fitted on the bank's own sentences
      run.json, adding/    the job that makes or extends the bank; adding/ goes when it is done

Only what the manifest names belongs to the bank, and the manifest is replaced as a whole: whenever
a job is killed, the bank is what it was before.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib import format as npy
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import Rules
from tilth.bank.quantization import LANES, Codec, Codes, Format
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, atomic_write, check_input, disk_errors, sync_folder
from tilth.runs import read_run_json

MANIFEST = "bank.json"
CODEC = "codec.safetensors"
# An encoder that was fitted on the bank's own sentences.
ENCODER = "encoder"
SHARDS = "shards"
VERSION = 1

TEXT_FILE = "text.arrow"
TEXT, SOURCE, DOCUMENT = "text", "source", "document"
_READ_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the manifest names it.

    Attributes:
        name: of its folder.
        sentences: how many it holds.
        text_bytes: of its sentences in UTF-8.
        files: name -> (bytes, blake2b in hex).
    """

    name: str
    sentences: int
    text_bytes: int
    files: dict[str, tuple[int, str]]

    def __post_init__(self) -> None:
        names = (self.name, *self.files)
        sizes = (self.sentences - 1, self.text_bytes, *(size for size, _ in self.files.values()))
        if min(sizes) < 0 or any(Path(name).name != name for name in names):
            raise ValueError(f"shard {self.name!r:.60}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bank holds.

    Attributes:
        encoder: the name it was given by.
        fingerprint: of the encoder.
        dimension: of its vectors.
        format: of the codes.
        rules: how texts were cleaned.
        near: whether near duplicates were left out.
        fours: see `Codec`.
        twos: see `Codec`.
        codec: blake2b of its file, in hex.
        built: names of the sources it was built of.
        sources: name -> fingerprint, of everything read.
        documents: how many were read.
        jobs: how many have made it: the building, and every adding.
        dropped: reason -> sentences.
        shards: in their order.
        created: when, in UTC.
        versions: of what made it.
    """

    encoder: str
    fingerprint: str
    dimension: int
    format: Format
    rules: dict[str, Any]
    near: bool = True
    fours: int = 0
    twos: int = 0
    codec: str = ""
    built: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    documents: int = 0
    jobs: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    shards: tuple[Shard, ...] = ()
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def widths(self) -> dict[str, int]:
        """Columns of the arrays of a shard, by file."""
        int8 = -(-self.dimension // LANES) * LANES
        if self.format == "int8":
            return {"codes.npy": int8, "scales.npy": 1, "fine.npy": int8 // 2}
        return {"codes.npy": self.fours // 2 + self.twos // 4, "scales.npy": 2}

    @property
    def sentences(self) -> int:
        """In all shards."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def bytes(self) -> int:
        """On disk, of all shards."""
        return sum(size for shard in self.shards for size, _ in shard.files.values())


def write_manifest(bank: Path, manifest: Manifest) -> None:
    """Replace a bank's manifest."""
    text = json.dumps({"version": VERSION, **asdict(manifest)}, indent=1, ensure_ascii=False)
    atomic_write(bank / MANIFEST, lambda file: file.write(text.encode() + b"\n"))


def read_manifest(bank: Path) -> Manifest:
    """Read a bank's manifest.

    Raises:
        InputError: there is no bank, or it is of a later version.
        TilthError: the manifest is damaged.
    """
    file = bank / MANIFEST
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        command = read_run_json(bank)["command"] if (bank / "run.json").is_file() else None
        mend = "name the folder of a bank (tilth bank build SOURCE --out BANK makes one)"
        if command == "bank build":
            mend = "its building is not finished: run the same `tilth bank build` again"
        elif command is not None:
            mend = f"it is the run of `tilth {command}`: {mend}"
        raise InputError(f"{bank}: holds no {MANIFEST}: {mend}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise TilthError(f"{file}: cannot be read ({error}): restore it from a copy") from error
    version = found.pop("version", None) if isinstance(found, dict) else None
    if version is not None and version != VERSION:
        raise InputError(f"{bank}: is a bank of version {version}, this tilth reads {VERSION}")
    try:
        manifest: Manifest = from_json(Manifest, found)
        Rules(**manifest.rules)
        if not manifest.shards or manifest.dimension < 1:
            raise ValueError("no shard or dimension")
    except (InputError, TypeError, ValueError) as error:
        raise TilthError(
            f"{file}: is not what tilth wrote ({error}): restore it from a copy"
        ) from error
    return manifest


def from_json(kind: Any, value: Any, name: str = "all of it") -> Any:
    """Return what JSON holds as a type says it: a dataclass, a list, a text, a number ...

    Raises:
        ValueError: it holds something else; the field is named.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)
        needed = {item.name for item in fields(kind) if item.init and _has_no_default(item)}
        if needed <= set(value) <= set(hints):
            return kind(**{key: from_json(hints[key], item, key) for key, item in value.items()})
    elif kind is Any or (origin is Literal and value in inner):
        return value
    elif origin is tuple and isinstance(value, list):
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(from_json(*pair, name) for pair in zip(kinds, value, strict=True))
    elif origin is list and isinstance(value, list):
        return [from_json(inner[0], item, name) for item in value]
    elif origin is dict and isinstance(value, dict):
        return {key: from_json(inner[1], item, name) for key, item in value.items()}
    elif origin is UnionType:
        return None if value is None else from_json(inner[0], value, name)
    elif type(value) is kind or (kind is float and type(value) is int):
        return value
    raise ValueError(f"{name} is {value!r:.60}")


_hints = cache(get_type_hints)


def _has_no_default(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def write_shard(folder: Path, name: str, made_of: str, table: pa.Table, codes: Codes) -> Shard:
    """Write a shard: afterwards its folder is there whole, whatever happens meanwhile.

    Args:
        folder: where shards go.
        name: of the shard.
        made_of: what tells this shard from another that may have its name; see `read_shard`.
        table: the columns text, source and document of its sentences.
        codes: their vectors.
    """
    temporary, final = folder / f"{TEMPORARY}{os.getpid()}-{name}", folder / name
    writers: dict[str, Callable[[BinaryIO], Any]] = {
        TEXT_FILE: lambda file: _put_arrow(file, table),
        "codes.npy": lambda file: _put_array(file, codes.codes),
        "scales.npy": lambda file: _put_array(file, codes.scales),
    }
    if (fine := codes.fine) is not None:
        writers["fine.npy"] = lambda file: _put_array(file, fine)
    with disk_errors(final):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            for file_name, write in writers.items():
                with open(temporary / file_name, "wb") as file:
                    write(file)
                    file.flush()
                    os.fsync(file.fileno())
            described = Shard(
                name,
                len(table),
                int(pc.sum(pc.binary_length(table[TEXT])).as_py() or 0),
                {name: checksum(temporary / name) for name in writers},
            )
            said = json.dumps({"made_of": made_of, **asdict(described)})
            (temporary / "shard.json").write_text(said, encoding="utf-8")
            sync_folder(temporary)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(folder)
    return described


def read_shard(folder: Path, name: str, made_of: str) -> Shard | None:
    """Return a shard that an interrupted job has written; None when there is no such shard."""
    try:
        found = json.loads((folder / name / "shard.json").read_text(encoding="utf-8"))
        shard: Shard = from_json(Shard, {key: found[key] for key in found if key != "made_of"})
        return shard if found["made_of"] == made_of else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def checksum(path: Path) -> tuple[int, str]:
    """Return a file's size and the blake2b of its bytes."""
    digest, size = blake2b(digest_size=16), 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_READ_AT_ONCE):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def check_sizes(bank: Path, manifest: Manifest) -> None:
    """Check that every file of every shard is there with its size.

    Raises:
        TilthError: the first one that is not.
    """
    for shard in manifest.shards:
        for name, (size, _) in shard.files.items():
            path = bank / SHARDS / shard.name / name
            try:
                found = path.stat().st_size
            except OSError as error:
                raise TilthError(
                    f"{path}: is missing ({error.strerror}): restore the shard from a copy, or "
                    "build the bank anew"
                ) from None
            if found != size:
                raise TilthError(
                    f"{path}: has {found:,} bytes, the manifest says {size:,}: restore the shard "
                    "from a copy, or build the bank anew"
                )


class OpenShard:
    """A shard mapped into memory: nothing is read before it is used."""

    def __init__(self, folder: Path, shard: Shard, first: int, widths: Mapping[str, int]) -> None:
        self.folder, self.first, self.sentences = folder, first, shard.sentences
        self._widths = widths

    def _array(self, name: str, dtype: type, reading: int) -> NDArray[Any]:
        path = self.folder / name
        try:
            # Copied where written, which nobody does: torch takes no arrays that are read-only.
            found: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise TilthError(f"{path}: cannot be read ({error}): run `tilth bank check`") from error
        if found.dtype != dtype or found.shape != (self.sentences, self._widths[name]):
            raise TilthError(f"{path}: is not what was written: run `tilth bank check`")
        if isinstance(found.base, mmap.mmap):
            found.base.madvise(reading)  # what the system reads ahead: half the time when cold
        return np.asarray(found)

    @cached_property
    def codes(self) -> NDArray[np.uint8]:
        """What a scan reads, (sentences, bytes)."""
        return self._array("codes.npy", np.uint8, mmap.MADV_SEQUENTIAL)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Of the codes, (sentences, groups)."""
        return self._array("scales.npy", np.float32, mmap.MADV_SEQUENTIAL)

    @cached_property
    def fine(self) -> NDArray[np.uint8] | None:
        """Further bits for rescoring, (sentences, bytes)."""
        if not (self.folder / "fine.npy").exists():
            return None
        return self._array("fine.npy", np.uint8, mmap.MADV_RANDOM)

    @cached_property
    def table(self) -> pa.Table:
        """The columns text, source and document."""
        table = read_text(self.folder / TEXT_FILE)
        if len(table) != self.sentences:
            raise TilthError(
                f"{self.folder / TEXT_FILE}: is not what was written: run `tilth bank check`"
            )
        return table


def read_text(path: Path) -> pa.Table:
    """Map a shard's texts into memory.

    Raises:
        TilthError: the file is damaged.
    """
    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowException) as error:
        raise TilthError(f"{path}: cannot be read ({error}): run `tilth bank check`") from error


def open_shards(bank: Path, manifest: Manifest) -> list[OpenShard]:
    """Return the shards with their place in the bank."""
    shards, first = [], 0
    for shard in manifest.shards:
        folder = bank / SHARDS / shard.name
        shards.append(OpenShard(folder, shard, first, manifest.widths))
        first += shard.sentences
    return shards


def damaged(
    bank: Path, manifest: Manifest, advance: Callable[[int], None] = lambda _: None
) -> list[str]:
    """Read every byte of every shard; return a line for each file that is not as written.

    Args:
        bank: the folder.
        manifest: of the bank.
        advance: called with the number of bytes after every file.
    """
    lines = []
    for shard in manifest.shards:
        for name, (size, digest) in shard.files.items():
            path = bank / SHARDS / shard.name / name
            try:
                found = checksum(path)
            except OSError as error:
                lines.append(f"{path}: cannot be read ({error.strerror or error})")
            else:
                if found[0] != size:
                    lines.append(f"{path}: has {found[0]:,} bytes, {size:,} were written")
                elif found[1] != digest:
                    lines.append(f"{path}: its bytes are not those that were written")
            advance(size)
    return lines


def load_codec(bank: Path, manifest: Manifest) -> Codec:
    """Read the bank's codec.

    Raises:
        TilthError: it is missing or altered.
    """
    codec = Codec.load(bank / CODEC, manifest.format, manifest.fours, manifest.twos)
    width = manifest.widths["codes.npy"]
    if manifest.format == "compact":
        width = manifest.fours + manifest.twos
    right = codec.mean.shape + codec.turn.shape == (manifest.dimension,) * 2 + (width,)
    bits = (manifest.fours % (2 * LANES), manifest.twos % (4 * LANES))
    if not right or any(bits) or checksum(bank / CODEC)[1] != manifest.codec:
        raise TilthError(
            f"{bank / CODEC}: its bytes are not those that were written: restore it from a copy"
        )
    return codec


def disk_use(manifest: Manifest) -> Mapping[str, int]:
    """Return the bytes of each kind of file."""
    sizes: dict[str, int] = {}
    for shard in manifest.shards:
        for name, (size, _) in shard.files.items():
            sizes[name] = sizes.get(name, 0) + size
    return sizes


def _put_arrow(file: BinaryIO, table: pa.Table) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _put_array(file: BinaryIO, array: NDArray[Any]) -> None:
    """Write what `np.save` writes; that says of a full disk only how many bytes were written."""
    array = np.ascontiguousarray(array)
    npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
    file.write(array.data)
