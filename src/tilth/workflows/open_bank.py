"""Banks by any encoder name the command line takes: word vectors as well, fitted ones kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from tilth.bank import Bank, Rules
from tilth.bank.ingest.documents import find_sources, read_blocks
from tilth.bank.ingest.sentences import sentences_of
from tilth.bank.manifest import ENCODER, read_manifest
from tilth.bank.quantization import Format
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, disk_errors
from tilth.limits import FORMAT, SEED
from tilth.models.names import FITTED, WORDS
from tilth.runs import refuse_inside

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from tilth.bank.encoder import TextEncoder

_WEIGHTS: dict[str, Literal["idf", "sif"]] = {"words-idf": "idf", "words-sif": "sif"}


def is_words(name: str, *, fitted: bool = False) -> bool:
    """Say whether a name is of word vectors; with `fitted`, of such as need sentences."""
    kind, _, file = name.partition(":")
    return bool(file) and kind in (FITTED if fitted else WORDS)


def open_words(name: str, sentences: Sequence[str]) -> SentenceTransformer:
    """Load word vectors by a name of which `is_words` holds.

    Args:
        name: see `open_encoder`.
        sentences: what idf counts and uSIF is fitted on.
    """
    from tilth.encoders.usif import usif
    from tilth.encoders.word_vectors import word_vectors

    kind, _, file = name.partition(":")
    if kind == "usif":
        return usif(file, sentences=sentences)
    return word_vectors(
        file, weights=_WEIGHTS.get(kind), sentences=sentences if kind in FITTED else None
    )


# What such an encoder is fitted on: the beginnings of so many sources, evenly chosen.
_FITTED_SOURCES = 256
_FITTED_BYTES = 1 << 19


def build_named(
    path: Path,
    sources: Sequence[str],
    *,
    encoder: str,
    format: str,  # noqa: A002 - the word of the command line
    rules: Rules,
    near: bool,
    column: str | None,
    split: str,
    seed: int,
    shard_megabytes: int,
    workers: int | None,
    device: str,
    overwrite: bool,
    quiet: bool,
) -> Bank:
    """Build a bank as `Bank.build` does, with an encoder by any name of the command line.

    Word vectors that are fitted on sentences (`words-idf:FILE`, `usif:FILE`) are fitted on the
    beginnings of the sources and saved in the bank.

    Raises:
        InputError: a source, a setting or the encoder is wrong, or `path` holds a source.
        TilthError: the disk is full, or a file is damaged.
    """
    FORMAT.check("format", format)
    SEED.check("seed", seed)
    refuse_inside(path, *sources)
    from tilth.bank.encoder import TextEncoder  # torch: `tilth bank info` does without

    chosen: str | TextEncoder = encoder
    if is_words(encoder):
        texts = []
        if is_words(encoder, fitted=True):
            texts = _beginnings(sources, rules, column=column, split=split)
        chosen = TextEncoder(open_words(encoder, texts), encoder)
    bank = Bank.build(
        path, sources, encoder=chosen, format=cast(Format, format), rules=rules, near=near,
        column=column, split=split, seed=seed, shard_megabytes=shard_megabytes, workers=workers,
        device=device, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    if isinstance(chosen, TextEncoder) and is_words(encoder, fitted=True):
        _save(chosen, path / ENCODER)
    return bank


def add_named(
    path: Path, sources: Sequence[str], *, encoder: str | None, device: str, **options: Any
) -> Bank:
    """Add to a bank as `Bank.add` does, with an encoder by any name of the command line."""
    refuse_inside(path, *sources)
    return open_named(path, encoder=encoder, device=device).add(sources, **options)


def open_named(path: Path, *, encoder: str | None = None, device: str = "auto") -> Bank:
    """Open a bank as `Bank.open` does, with an encoder by any name of the command line."""
    return Bank.open(path, encoder=_encoder(path, encoder), device=device)


def _encoder(path: Path, name: str | None) -> str | TextEncoder | None:
    """Return what `Bank.open` is to be given for an encoder; None: it knows itself."""
    from tilth.bank.encoder import TextEncoder

    built_with = read_manifest(path).encoder
    if is_words(built_with, fitted=True) and name in (None, built_with):
        if not (path / ENCODER / "modules.json").is_file():
            raise TilthError(
                f"{path / ENCODER}: the encoder {built_with!r}, fitted for this bank, is missing: "
                "run its `tilth bank build` again, or restore it from a copy"
            )
        from tilth.models.encoder import load_encoder

        return TextEncoder(load_encoder(str(path / ENCODER), device="cpu"), built_with)
    asked = built_with if name is None else name
    if is_words(asked, fitted=True):
        raise InputError(
            f"encoder {asked!r} is fitted when a bank is built, {path} was built with "
            f"{built_with!r}: leave --encoder out"
        )
    if is_words(asked):
        return TextEncoder(open_words(asked, ()), asked)
    return name


def _beginnings(
    sources: Sequence[str], rules: Rules, *, column: str | None, split: str
) -> list[str]:
    found = find_sources(sources, column=column, split=split)
    step = -(-len(found) // _FITTED_SOURCES)
    texts: dict[str, None] = {}
    for source in found[::step]:
        block = next(iter(read_blocks(source, block_bytes=_FITTED_BYTES)))
        texts.update(dict.fromkeys(sentences_of(block, rules).table["text"].to_pylist()))
    return list(texts)


def _save(encoder: TextEncoder, folder: Path) -> None:
    """Save an encoder, unless it is there: the folder is there whole or not at all."""
    if folder.is_dir():
        return
    temporary = folder.with_name(f"{TEMPORARY}{os.getpid()}-{folder.name}")
    with disk_errors(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        encoder.model.save(str(temporary))
        temporary.rename(folder)
