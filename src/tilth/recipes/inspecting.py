"""What a bank holds and whether it is whole; no encoder is loaded, and no module of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilth.bank import Bank
from tilth.bank.index import ABOUT, FOLDER, damaged_index, read_about
from tilth.bank.store import MANIFEST, damaged, disk_use, load_codec, read_manifest
from tilth.errors import TilthError
from tilth.runs.progress import Progress

# Above so many sentences, counting those of each source would take seconds.
_COUNTED = 100_000_000


def describe_bank(path: Path) -> dict[str, Any]:
    """Return what a bank holds, for `tilth bank info`; its encoder is not loaded.

    Raises:
        InputError: there is no bank.
        TilthError: a file of it is missing or damaged.
    """
    bank = Bank.open(path)
    manifest = bank.manifest
    known = manifest.sentences <= _COUNTED
    counts = bank.sources() if known else dict.fromkeys(manifest.sources)
    return {
        "bank": str(path),
        "sentences": manifest.sentences,
        "documents": manifest.documents,
        "dropped": manifest.dropped,
        "encoder": manifest.encoder,
        "dimension": manifest.dimension,
        "fingerprint": manifest.fingerprint,
        "format": manifest.format,
        "rules": manifest.rules,
        "bytes": {**disk_use(manifest), "all": manifest.bytes},
        "bytes_a_sentence": round(manifest.bytes / manifest.sentences, 1),
        "shards": len(manifest.shards),
        "additions": manifest.jobs - 1,
        "created": manifest.created,
        "versions": manifest.versions,
        "index": _describe_index(path),
        "sources": counts,
    }


def _describe_index(path: Path) -> dict[str, Any] | None:
    if not (path / FOLDER / ABOUT).is_file():
        return None
    about = read_about(path)
    return {
        "factory": about.factory,
        "sentences": about.sentences,
        "nprobe": about.nprobe,
        "bytes": about.bytes,
        "recall": about.recall,
        "created": about.created,
    }


@dataclass(frozen=True, slots=True)
class Checked:
    """What reading all of a bank has shown.

    Attributes:
        files: how many were read.
        size: their bytes, as the manifest has them.
        damaged: a line for each file that is not as it was written.
    """

    files: int
    size: int
    damaged: list[str]


def check_bank(path: Path, *, quiet: bool = False) -> Checked:
    """Read every byte of a bank, also of one that `Bank.open` refuses.

    Raises:
        InputError: there is no bank.
        TilthError: its manifest is damaged.
    """
    manifest = read_manifest(path)
    lines = []
    try:
        load_codec(path, manifest)
    except TilthError as error:
        lines.append(str(error))
    with Progress(manifest.bytes >> 20, quiet=quiet, what="MB") as progress:
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            progress.advance((done + size >> 20) - (done >> 20))
            done += size

        lines += damaged(path, manifest, advance)
    lines += damaged_index(path)
    files = 1 + sum(len(shard.files) for shard in manifest.shards)
    return Checked(files + (path / FOLDER / ABOUT).is_file(), manifest.bytes, lines)


def is_built(path: Path) -> bool:
    """Say whether a folder holds a finished bank."""
    return (path / MANIFEST).is_file()
