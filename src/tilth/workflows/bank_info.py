"""What a bank holds; no encoder is loaded, and no module of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilth.bank import Bank
from tilth.bank.search.ivf import ABOUT, FOLDER, read_about
from tilth.bank.store import MANIFEST, disk_use

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
        "rules": {**manifest.rules, "near": manifest.near},
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


def is_built(path: Path) -> bool:
    """Say whether a folder holds a finished bank."""
    return (path / MANIFEST).is_file()
