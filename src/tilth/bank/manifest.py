"""Read and write the manifest of a bank: encoder, settings, shards with checksums.

    BANK/
      bank.json            the manifest
      codec.safetensors    the quantizer
      shards/NAME/         text.arrow, codes.npy, scales.npy and, of int8, fine.npy, signs.npy,
                           sign_scales.npy
      encoder/             only an encoder that was fitted on the bank's own sentences
      index/               an index, if one was made
      run.json, adding/    the job that builds or extends the bank; adding/ goes when it is done

Only what the manifest names belongs to the bank, and the manifest is replaced as a whole: a job
that is killed leaves the bank as it was.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tilth.bank.settings import LANES, Format, Rules
from tilth.errors import InputError, TilthError
from tilth.files import check_input, write_json
from tilth.runs import command_of
from tilth.storage import pull

MANIFEST, QUANTIZER, SHARDS, ENCODER = "bank.json", "codec.safetensors", "shards", "encoder"
ADDING = "adding"
VERSION = 1
_READ_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the manifest names it.

    Attributes:
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
    """What a bank holds; the fields are the keys of bank.json.

    Attributes:
        fours: dimensions with 4 bits.
        twos: dimensions with 2 bits.
        codec: blake2b of the quantizer's file, in hex.
        built: names of the sources of the build.
        sources: name -> fingerprints, separated by blanks: of the build and of additions.
        jobs: number of jobs: the build and every addition.
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
            signs = {"signs.npy": -(-int8 // 64) * 8, "sign_scales.npy": 1}
            return {"codes.npy": int8, "scales.npy": 1, "fine.npy": int8 // 2, **signs}
        return {"codes.npy": self.fours // 2 + self.twos // 4, "scales.npy": 2}

    @property
    def sentences(self) -> int:
        """Number of sentences in all shards."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def file_bytes(self) -> dict[str, int]:
        """Bytes on disk of each kind of file."""
        sizes: dict[str, int] = {}
        for shard in self.shards:
            for name, (size, _) in shard.files.items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes


def write_manifest(bank: Path, manifest: Manifest) -> None:
    """Replace a bank's manifest."""
    write_json(bank / MANIFEST, {"version": VERSION, **asdict(manifest)})


def read_manifest(bank: Path) -> Manifest:
    """Read a bank's manifest."""
    file = bank / MANIFEST
    for name in (MANIFEST, "run.json"):
        pull(bank / name, clean=True)
    check_input(file)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        command = command_of(bank)
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
    """Convert JSON to a type: a dataclass, a list, a tuple, a dictionary, a plain value."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)
        if set(value) == set(hints):
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


def checksum(path: Path, size: int | None = None) -> tuple[int, str]:
    """Return the number of bytes and their blake2b, of a file or of its first `size` bytes."""
    digest, done = blake2b(digest_size=16), 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(
            _READ_AT_ONCE if size is None else min(size - done, _READ_AT_ONCE)
        ):
            digest.update(block)
            done += len(block)
    return done, digest.hexdigest()
