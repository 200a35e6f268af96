"""Makes banks and adds to them: raw text to parts, duplicates out, parts to shards, the manifest.

Every step leaves whole files that the same command finds again. Parts and shards are made by
worker processes; what they make follows from the sources and the settings alone.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.bank.bank import Bank
from tilth.bank.encoder import STARTER, TextEncoder
from tilth.bank.ingest.cleaning import Rules
from tilth.bank.ingest.deduplicate import DamagedPart, find_duplicates
from tilth.bank.ingest.documents import Source, find_sources, is_known
from tilth.bank.ingest.parts import ADDING, Work, make_known, make_parts, remove_damaged
from tilth.bank.ingest.shards import make_shards, sample_vectors
from tilth.bank.ingest.workers import end_processes
from tilth.bank.quantization import Format, fit_codec
from tilth.bank.search.ivf import FOLDER
from tilth.bank.store import (
    CODEC,
    ENCODER,
    MANIFEST,
    SHARDS,
    Manifest,
    checksum,
    read_manifest,
    write_manifest,
)
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, atomic_write, disk_errors
from tilth.limits import CORES, FORMAT, SEED, SHARD_MEGABYTES
from tilth.runs import ASIDE, Run, RunMismatch, read_run_json, versions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

NO_VECTOR = "no vector"
_MEGABYTES = 16


def build_bank(
    path: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    encoder: str | SentenceTransformer | TextEncoder = STARTER,
    format: Format = "int8",  # noqa: A002 - the word of the command line
    rules: Rules | None = None,
    near: bool = True,
    column: str | None = None,
    split: str = "train",
    seed: int = 0,
    shard_megabytes: int = _MEGABYTES,
    workers: int | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Bank:
    """Make a bank of raw text, or go on with one that was begun.

    Texts are segmented, cleaned, freed of duplicates over all sources, encoded and written in
    shards. Called again after an interruption it goes on; memory does not grow with the text.

    Args:
        path: the bank's folder.
        sources: see `tilth.bank.ingest.documents.find_sources`.
        encoder: what `tilth.load_encoder` takes, or a loaded
            encoder.
        format: of the vectors: `int8` or `compact`; see `Codec`.
        rules: what sentences must be like; None: the defaults.
        near: whether near duplicates go, too.
        column: of the texts.
        split: of data sets.
        seed: of the random turn of the vectors.
        shard_megabytes: raw text of a shard; with billions of sentences take 128 or more.
        workers: processes; default: one per core. An encoder that is not static runs in this one.
        device: of the encoder.
        overwrite: remove an earlier bank in the folder first.
        quiet: show no progress.

    Raises:
        InputError: a source is wrong, or the folder holds something else.
        RunMismatch: it holds a bank that was asked for otherwise.
        RunLocked: another process builds it.
        TilthError: the disk is full, or a file is damaged.
    """
    path, rules = Path(path), Rules() if rules is None else rules
    FORMAT.check("format", format)
    _check_counts(shard_megabytes, workers, seed)
    found = find_sources(sources, column=column, split=split)
    text_encoder = TextEncoder.load(encoder, device=device)
    run = Run.open(
        path,
        command="bank build",
        settings={
            "encoder": text_encoder.name,
            "format": format,
            "rules": asdict(rules),
            "near": near,
            "column": column,
            "split": split,
            "seed": seed,
            "shard_megabytes": shard_megabytes,
        },
        fingerprints={"encoder": text_encoder.fingerprint},
        parts=0,
        outputs=(MANIFEST, CODEC, SHARDS, ADDING, FOLDER, ENCODER),
        overwrite=overwrite or _is_empty(path),
    )
    with run:
        if (path / MANIFEST).exists():
            _check_sources(path, found)
        else:
            manifest = Manifest(
                text_encoder.name,
                text_encoder.fingerprint,
                text_encoder.dimension,
                format,
                rules=asdict(rules),
                near=near,
                built=tuple(source.name for source in found),
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                versions=versions(),
            )
            work = Work(
                path.absolute(), rules, near, shard_megabytes << 20,
                workers or os.cpu_count() or 1, quiet,
            )  # fmt: skip
            with _job(path, {}, overwrite=False) as job:
                job.resolve("job", lambda: 0)
                _extend(work, found, manifest, text_encoder, seed)
                _remove_job(path)
        if _is_finished(path, read_manifest(path)):
            with _job(path, {}, overwrite=True):
                _remove_job(path)
        _remove_ended(path)
    return Bank.open(path, encoder=text_encoder)


def add_to_bank(
    path: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    encoder: str | SentenceTransformer | TextEncoder | None = None,
    near: bool | None = None,
    column: str | None = None,
    split: str = "train",
    shard_megabytes: int = _MEGABYTES,
    workers: int | None = None,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
) -> Bank:
    """Add raw text to a bank, cleaned by the bank's rules, without what the bank holds already.

    The bank stays as it was until all is added; called again after an interruption it goes on.
    Sources that the bank has, unchanged, are passed over.

    Args:
        path: the bank's folder.
        sources: see `build_bank`, as for all that follow but these.
        encoder: the bank's, where its name does not lead to it; see `Bank.open`.
        near: see there; None: as the bank was built.
        column: see there.
        split: see there.
        shard_megabytes: see there.
        workers: see there.
        device: see there.
        overwrite: drop what an unfinished adding of other sources has done.
        quiet: see there.

    Raises:
        InputError: a source is wrong, the encoder is not the bank's, or an adding of other sources
            is unfinished.
        RunLocked: another process adds to the bank.
        TilthError: the disk is full, or a file is damaged.
    """
    path = Path(path)
    _check_counts(shard_megabytes, workers)
    opened = Bank.open(path, encoder=encoder, device=device)
    if encoder is not None:
        encoder = opened.text_encoder  # loaded once, however often the bank is opened here
    manifest = opened.manifest
    near = manifest.near if near is None else near
    found = find_sources(sources, column=column, split=split)
    settings = {
        "sources": [source.name for source in found],
        "near": near,
        "column": column,
        "split": split,
        "shard_megabytes": shard_megabytes,
    }
    overwrite = overwrite or _is_finished(path, manifest) or not _has_parts(path)
    with _job(path, settings, overwrite=overwrite) as job:
        bank = Bank.open(path, encoder=encoder, device=device)  # another may have added meanwhile
        manifest = bank.manifest
        if job.resolve("job", lambda: manifest.jobs) == manifest.jobs:
            there = set(manifest.sources.values())
            known = [item for item in found if is_known(item, there)]
            new = [item for item in found if item not in known]
            if known:
                log.warning(
                    "%s: %d of %d sources are in the bank already, as they are now, such as %s: "
                    "passed over", path, len(known), len(found), known[0].name,
                )  # fmt: skip
            rules = Rules(**manifest.rules)
            work = Work(
                path.absolute(), rules, near, shard_megabytes << 20,
                workers or os.cpu_count() or 1, quiet,
            )  # fmt: skip
            if new:
                _extend(work, new, manifest, bank.text_encoder, seed=0)
        _remove_job(path)
    return Bank.open(path, encoder=encoder, device=device)


def _check_counts(shard_megabytes: int, workers: int | None, seed: int = 0) -> None:
    SHARD_MEGABYTES.check("shard_megabytes", shard_megabytes)
    if workers is not None:
        CORES.check("workers", workers)
    SEED.check("seed", seed)


@contextmanager
def _job(path: Path, settings: dict[str, Any], *, overwrite: bool) -> Iterator[Run]:
    """Open the folder of a job in a bank and lock it."""
    try:
        run = Run.open(
            path / ADDING,
            command="bank add",
            settings=settings,
            fingerprints={},
            parts=0,
            outputs=("duplicates", "known"),
            overwrite=overwrite,
        )
    except RunMismatch as error:
        raise InputError(
            f"{path}: an adding of other sources or settings is unfinished there: finish it with "
            "its own command, or drop what it has done with --overwrite"
        ) from error
    try:
        with run:
            try:
                yield run
            finally:
                end_processes()
    except InputError:
        if not _has_parts(path):  # refused: nothing stays of it
            shutil.rmtree(run.path)
        raise


def _is_empty(path: Path) -> bool:
    """Say whether a building in the folder was stopped before it had made anything."""
    if (
        any((path / name).exists() for name in (MANIFEST, ASIDE))
        or not (path / "run.json").exists()
    ):
        return False
    return not _has_parts(path)


def _has_parts(path: Path) -> bool:
    """Say whether the job in a bank's folder has done anything that is worth keeping."""
    return any((path / ADDING / "parts").glob("*.parquet"))


def _check_sources(path: Path, sources: Sequence[Source]) -> None:
    """Refuse a finished bank that was built of others.

    Raises:
        RunMismatch: it was, or some have changed since.
    """
    manifest = read_manifest(path)
    names = tuple(source.name for source in sources)
    if names != manifest.built:
        raise RunMismatch(
            f"{path}: holds a bank built of {_some(manifest.built)}, {_some(names)} asked: "
            "`tilth bank add` adds to it, --overwrite builds anew, or choose another --out"
        )
    changed = [
        item.name for item in sources if not is_known(item, {manifest.sources.get(item.name, "")})
    ]
    if changed:
        raise RunMismatch(
            f"{path}: {_some(changed)} changed since the bank was built: `tilth bank add` takes in "
            "what is new, --overwrite builds anew, or choose another --out"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"


def _is_finished(path: Path, manifest: Manifest) -> bool:
    """Say whether the job in a bank's folder has done all but to remove its own."""
    if not (path / ADDING / "run.json").exists():
        return False
    job = read_run_json(path / ADDING)["resolved"].get("job", manifest.jobs)
    if not isinstance(job, int):
        raise TilthError(
            f"{path / ADDING / 'run.json'}: is not what tilth wrote (job is {job!r:.40}): "
            "--overwrite starts anew"
        )
    return job < manifest.jobs


def _remove_job(path: Path) -> None:
    # Renamed first: killed while it is removed, a half of it would stand there as no run.
    going = path / f"{TEMPORARY}{os.getpid()}-{ADDING}"
    with disk_errors(path):
        if (path / ADDING).is_dir():
            (path / ADDING).rename(going)
    _remove_ended(path)


def _remove_ended(path: Path) -> None:
    """Remove what jobs have left that ended and were killed while they removed their own."""
    for going in path.glob(f"{TEMPORARY}*-{ADDING}"):
        shutil.rmtree(going, ignore_errors=True)


def _extend(
    work: Work, sources: Sequence[Source], manifest: Manifest, encoder: TextEncoder, seed: int
) -> None:
    """Put sources into shards behind those of a manifest, then replace the manifest."""
    parts = make_parts(work, sources)
    paths = [work.part_path(part.key) for part in parts]
    known = make_known(work, manifest)
    bank = Bank(work.bank, manifest, encoder) if manifest.shards else None
    _say(work, "looking for duplicates")
    try:
        duplicates = find_duplicates(
            paths, known=known, known_texts=None if bank is None else bank.texts, near=work.near,
            folder=work.bank / ADDING / "duplicates", threads=work.workers,
        )  # fmt: skip
    except DamagedPart:
        remove_damaged(paths)
        raise
    if bank is None:
        codec = fit_codec(manifest.format, sample_vectors(paths, duplicates, encoder), seed=seed)
        atomic_write(work.bank / CODEC, lambda file: file.write(codec.save()))
        digest = checksum(work.bank / CODEC)[1]
        manifest = replace(manifest, fours=codec.fours, twos=codec.twos, codec=digest)
    shards, without = make_shards(work, paths, parts, duplicates, manifest, encoder)
    dropped = Counter(manifest.dropped)
    for reasons in (*(part.drops for part in parts), duplicates.counts, {NO_VECTOR: without}):
        dropped.update(reasons)
    grown = replace(
        manifest,
        sources={**manifest.sources, **{item.name: item.fingerprint for item in sources}},
        documents=manifest.documents + sum(part.documents for part in parts),
        dropped=dict(sorted((reason, count) for reason, count in dropped.items() if count)),
        shards=(*manifest.shards, *shards),
        jobs=manifest.jobs + 1,
    )
    if not grown.shards:
        raise InputError(
            f"{work.bank}: no sentence is left of {sum(dropped.values()):,}: "
            + ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common() if count)
        )
    write_manifest(work.bank, grown)
    _remove_strays(work.bank, grown)


def _remove_strays(bank: Path, manifest: Manifest) -> None:
    """Remove shards that no manifest names: of jobs that were dropped, or killed while writing."""
    named = {shard.name for shard in manifest.shards}
    with disk_errors(bank):
        for item in (bank / SHARDS).iterdir():
            if item.name not in named:
                shutil.rmtree(item, ignore_errors=True)
        for item in bank.glob(f"{TEMPORARY}*"):
            if item.is_dir():
                shutil.rmtree(item, ignore_errors=True)
            else:
                item.unlink(missing_ok=True)


def _say(work: Work, what: str) -> None:
    if not work.quiet:
        log.info("%s: %s", work.bank, what)
