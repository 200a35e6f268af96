"""Build, extend, open and describe banks, with an encoder by name, word vectors included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tilth.bank.manifest import ENCODER, read_manifest
from tilth.bank.settings import BankSettings
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, disk_errors
from tilth.models.names import FITTED, WORDS
from tilth.runs import refuse_inside
from tilth.storage import push

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank import Bank
    from tilth.bank.encoder import TextEncoder
    from tilth.runs.cluster import Cluster

_WEIGHTS: dict[str, Literal["idf", "sif"]] = {"words-idf": "idf", "words-sif": "sif"}
# Number of evenly chosen sources whose beginnings word vectors are fitted on.
_FITTED_SOURCES = 256
_FITTED_BYTES = 1 << 19
# In larger banks, counting the sentences of each source would take seconds.
_MAX_COUNTED = 100_000_000


def is_words(name: str, *, fitted: bool = False) -> bool:
    """Return whether a name is of word vectors; with `fitted`, of those fitted on sentences."""
    kind, _, file = name.partition(":")
    return bool(file) and kind in (FITTED if fitted else WORDS)


def open_words(name: str, sentences: Sequence[str]) -> SentenceTransformer:
    """Load word vectors by a name that `is_words` accepts.

    Args:
        sentences: idf is counted and uSIF fitted on them.
    """
    from tilth.encoders.usif import usif
    from tilth.encoders.word_vectors import word_vectors

    kind, _, file = name.partition(":")
    if kind == "usif":
        return usif(file, sentences=sentences)
    return word_vectors(
        file, weights=_WEIGHTS.get(kind), sentences=sentences if kind in FITTED else None
    )


def build_named(
    path: Path,
    sources: Sequence[str],
    name: str,
    settings: BankSettings,
    *,
    device: str = "auto",
    overwrite: bool = False,
) -> Bank:
    """Build a bank as `Bank.build` does, with an encoder by any name of the command line.

    Word vectors that are fitted on sentences (`words-idf:FILE`, `usif:FILE`) are fitted on the
    beginnings of the sources and saved in the bank.
    """
    refuse_inside(path, *sources)
    _check_workers(name, settings.cluster)
    from tilth.bank import Bank  # not above: word vectors are opened without banks, too
    from tilth.bank.build import build_bank
    from tilth.bank.encoder import TextEncoder

    encoder: str | TextEncoder = name
    if is_words(name):
        texts = _beginnings(sources, settings) if is_words(name, fitted=True) else []
        encoder = TextEncoder(open_words(name, texts), name)
    found = build_bank(path, sources, encoder, settings, device=device, overwrite=overwrite)
    if is_words(name, fitted=True):
        _save(found, path / ENCODER)
    return Bank.open(path, encoder=found)


def add_named(
    path: Path, sources: Sequence[str], *, encoder: str | None, device: str, **options: Any
) -> Bank:
    """Add to a bank as `Bank.add` does, with an encoder by any name of the command line."""
    refuse_inside(path, *sources)
    _check_workers(encoder or read_manifest(path).encoder, options["cluster"])
    return open_named(path, encoder=encoder, device=device).add(sources, **options)


def _check_workers(encoder: str, cluster: Cluster) -> None:
    if cluster.on is not None and is_words(encoder):
        raise InputError(
            f"encoder {encoder!r}: word vectors are read in this process alone: leave --on out, or "
            "take another encoder"
        )


def open_named(path: Path, *, encoder: str | None = None, device: str = "auto") -> Bank:
    """Open a bank as `Bank.open` does, with an encoder by any name of the command line."""
    from tilth.bank import Bank

    return Bank.open(path, encoder=_encoder(path, encoder), device=device)


def describe_bank(path: Path) -> dict[str, Any]:
    """Return counts, sizes and settings of a bank without loading its encoder."""
    from tilth.bank.store import Store

    bank = Store.open(path)
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
    from tilth.bank.search.ivf import INDEX, INDEX_JSON, read_info

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


def _encoder(path: Path, name: str | None) -> str | TextEncoder | None:
    """Return the encoder argument of `Bank.open`; None: the bank's manifest names it."""
    from tilth.bank.encoder import TextEncoder

    built_with = read_manifest(path).encoder
    if is_words(built_with, fitted=True) and name in (None, built_with):
        if not (path / ENCODER / "modules.json").is_file():
            raise TilthError(
                f"{path / ENCODER}: the encoder {built_with!r}, fitted for this bank, is missing: "
                "run its `tilth bank build` again, or restore it from a copy"
            )
        return None  # it is loaded from there
    asked = built_with if name is None else name
    if is_words(asked, fitted=True):
        raise InputError(
            f"encoder {asked!r} is fitted when a bank is built, {path} was built with "
            f"{built_with!r}: leave --encoder out"
        )
    if is_words(asked):
        return TextEncoder(open_words(asked, ()), asked)
    return name


def _beginnings(sources: Sequence[str], settings: BankSettings) -> list[str]:
    """Return the distinct sentences at the beginnings of some of the sources."""
    from tilth.bank.ingest.documents import find_sources, read_blocks
    from tilth.bank.ingest.parts import sentences_of_documents

    found = find_sources(sources, column=settings.column, split=settings.split)
    step = -(-len(found) // _FITTED_SOURCES)
    texts: dict[str, None] = {}
    for source in found[::step]:
        for block in islice(read_blocks(source, block_bytes=_FITTED_BYTES), 1):
            sentences = sentences_of_documents(block, settings.rules).table["text"]
            texts.update(dict.fromkeys(sentences.to_pylist()))
    return list(texts)


def _save(encoder: TextEncoder, folder: Path) -> None:
    """Save an encoder unless its folder exists, by an atomic rename."""
    if folder.is_dir():
        return
    temporary = folder.with_name(f"{TEMPORARY}{os.getpid()}-{folder.name}")
    with disk_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        encoder.model.save(str(temporary))
        temporary.rename(folder)
        push(folder)
