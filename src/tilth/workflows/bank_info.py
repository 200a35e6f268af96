"""Description of a bank for `tilth bank info`; torch is not imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilth.bank import Bank
from tilth.bank.manifest import MANIFEST
from tilth.bank.search.ivf import INDEX, INDEX_JSON, read_info

# In larger banks, counting the sentences of each source would take seconds.
_MAX_COUNTED = 100_000_000


def describe_bank(path: Path) -> dict[str, Any]:
    """Return counts, sizes and settings of a bank without loading its encoder."""
    bank = Bank.open(path)
    manifest = bank.manifest
    size = sum(manifest.file_bytes.values())
    known = manifest.sentences <= _MAX_COUNTED
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
        "bytes": {**manifest.file_bytes, "all": size},
        "bytes_a_sentence": round(size / manifest.sentences, 1),
        "shards": len(manifest.shards),
        "additions": manifest.jobs - 1,
        "created": manifest.created,
        "versions": manifest.versions,
        "index": _describe_index(path),
        "sources": counts,
    }


def _describe_index(path: Path) -> dict[str, Any] | None:
    if not (path / INDEX / INDEX_JSON).is_file():
        return None
    info = read_info(path)
    return {
        "factory": info.factory,
        "sentences": info.sentences,
        "nprobe": info.nprobe,
        "bytes": info.bytes,
        "recall": info.recall,
        "created": info.created,
    }


def is_built(path: Path) -> bool:
    """Return whether a folder holds a finished bank."""
    return (path / MANIFEST).is_file()
