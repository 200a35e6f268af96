"""Build banks and add to them: text to parts, deduplication, parts to shards, the manifest.

Every step leaves whole files that the same command finds again. Parts and shards are made by
worker processes; their content follows from the sources and the settings alone.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilth.bank.encoder import TextEncoder
from tilth.bank.ingest.deduplicate import find_duplicates
from tilth.bank.ingest.documents import RawSource, find_sources
from tilth.bank.ingest.duplicate_steps import KeyFile
from tilth.bank.ingest.parts import has_parts, make_parts, make_stored_keys, part_path
from tilth.bank.ingest.shards import make_shards, sample_vectors
from tilth.bank.ingest.workers import Spread, job_workers
from tilth.bank.manifest import (
    ADDING,
    ENCODER,
    MANIFEST,
    QUANTIZER,
    SHARDS,
    Manifest,
    checksum,
    read_manifest,
    write_manifest,
)
from tilth.bank.quantization import fit_quantizer
from tilth.bank.search.ivf import INDEX
from tilth.bank.settings import BankSettings, Format
from tilth.bank.store import some
from tilth.data.hashing import hash_of
from tilth.errors import InputError, TilthError
from tilth.files import TEMPORARY, disk_errors, write_file
from tilth.runs import ASIDE, Run, RunMismatch, read_run_json, refuse_foreign, versions
from tilth.runs.out_folder import is_aside
from tilth.storage import pull, remove
from tilth.urls import url_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

NO_VECTOR = "no vector"
_SMALL = 1 << 20  # bytes of sources that are in a bank before other processes have started


def build_bank(
    path: Path,
    sources: str | Path | Sequence[str | Path],
    encoder: str | SentenceTransformer | TextEncoder,
    settings: BankSettings,
    *,
    device: str,
    overwrite: bool,
) -> TextEncoder:
    """Build a bank, or continue an interrupted build; return its encoder."""
    found = find_sources(sources, column=settings.column, split=settings.split)
    refuse_foreign(path)
    text_encoder = TextEncoder.load(encoder, device=device)
    asked = asdict(settings)
    del asked["workers"], asked["quiet"], asked["cluster"]
    was_empty = _is_empty(path)
    run = Run.open(
        path,
        command="bank build",
        settings={"encoder": text_encoder.name, **asked},
        fingerprints={"encoder": text_encoder.fingerprint},
        parts=0,
        outputs=(MANIFEST, QUANTIZER, SHARDS, ADDING, INDEX, ENCODER),
        overwrite=overwrite or was_empty,
    )
    with run:
        if was_empty and not overwrite:
            run.drop_replaced()
        _keep_overwritten(run, found, overwrite=overwrite)
        if (path / MANIFEST).exists():
            _check_sources(path, found)
            if _is_finished(path, read_manifest(path)):
                with _job(path, {}, overwrite=True):
                    _remove_job(path)
            _remove_ended(path)
        else:
            empty = Manifest(
                text_encoder.name,
                text_encoder.fingerprint,
                text_encoder.dimension,
                cast(Format, settings.format),
                asked["rules"],
                near=settings.near,
                built=tuple(source.name for source in found),
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                versions=versions(),
            )
            with _job(path, {}, overwrite=False) as job:
                job.resolve("job", lambda: 0)
                _extend(path, found, empty, text_encoder, settings)
                _remove_job(path)
    return text_encoder


def add_to_bank(
    path: Path,
    sources: str | Path | Sequence[str | Path],
    encoder: TextEncoder,
    settings: BankSettings,
    *,
    overwrite: bool,
) -> None:
    """Add to a bank, or continue an interrupted addition."""
    found = find_sources(sources, column=settings.column, split=settings.split)
    kept = ("near", "column", "split", "shard_megabytes")
    asked = {"sources": [source.name for source in found]}
    asked |= {name: getattr(settings, name) for name in kept}
    pull(path / ADDING, clean=True)  # another machine may have begun one
    anew = overwrite or _is_finished(path, read_manifest(path)) or not has_parts(path)
    with _job(path, asked, overwrite=anew) as job:
        if anew and not overwrite:
            job.drop_replaced()
        manifest = read_manifest(path)  # another process may have added meanwhile
        pull(path)
        if job.resolve("job", lambda: manifest.jobs) == manifest.jobs:
            marks = set(" ".join(manifest.sources.values()).split())
            known = [source for source in found if source.fingerprint in marks]
            new = [source for source in found if source.fingerprint not in marks]
            if known:
                log.warning(
                    "%s: %d of %d sources are in the bank already, as they are now, such as %s: "
                    "passed over", path, len(known), len(found), known[0].name,
                )  # fmt: skip
            if new:
                _extend(path, new, manifest, encoder, settings)
        _remove_job(path)


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
            f"{path}: an addition of other sources or settings is unfinished there: finish it with "
            "its own command, or drop it with --overwrite"
        ) from error
    except InputError as error:
        raise InputError(
            f"{path / ADDING}: holds something else than an unfinished addition: remove that "
            "folder and run the same command again"
        ) from error
    try:
        with run:
            yield run
    except InputError:
        if not has_parts(path):  # refused: nothing of it stays
            remove(run.path)
        raise


def _keep_overwritten(run: Run, sources: Sequence[RawSource], *, overwrite: bool) -> None:
    """Refuse, while the earlier bank is kept, to go on with a build that overwrites it by others.

    The settings of both may be the same: only the sources tell them apart. A refused run is put
    back by `Run`.
    """
    if is_aside(run.path):
        marks = hash_of(*((source.name, source.fingerprint) for source in sources))
        if overwrite:
            run.resolve("sources", lambda: marks)
        elif run.resolved.get("sources") != marks:
            raise RunMismatch(
                f"{run.path}: a build with --overwrite, of other sources or of other content of "
                "them, was stopped here: the earlier bank is back in its place; --overwrite builds "
                "anew, and the command of that bank completes it"
            )


def _is_empty(path: Path) -> bool:
    """Tell whether a build in the folder was stopped before it had made anything."""
    begun = not (path / "run.json").exists() or has_parts(path)
    return not begun and not any((path / name).exists() for name in (MANIFEST, ASIDE))


def _check_sources(path: Path, sources: Sequence[RawSource]) -> None:
    """Refuse a finished bank that was built of other sources, or of other content of them."""
    manifest = read_manifest(path)
    names = tuple(source.name for source in sources)
    if names != manifest.built:
        raise RunMismatch(
            f"{path}: this bank was built from {some(manifest.built)}, not from {some(names)}: "
            "`tilth bank add` adds sources, --overwrite builds anew, or choose another --out"
        )
    known = {name: marks.split() for name, marks in manifest.sources.items()}
    changed = [item.name for item in sources if item.fingerprint not in known.get(item.name, ())]
    if changed:
        raise RunMismatch(
            f"{path}: {some(changed)} changed since the bank was built: `tilth bank add` takes in "
            "what is new, --overwrite builds anew, or choose another --out"
        )


def _is_finished(path: Path, manifest: Manifest) -> bool:
    """Tell whether a bank's job is done except for removing its folder."""
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
    if url_of(path) is not None:
        remove(path / ADDING)  # run.json goes last: half of it is a run folder still
        return
    # Renamed first: a removal that is killed would leave half of a run folder.
    going = path / f"{TEMPORARY}{secrets.token_hex(4)}-{ADDING}"
    with disk_errors(path):
        if (path / ADDING).is_dir():
            (path / ADDING).rename(going)
    _remove_ended(path)


def _remove_ended(path: Path) -> None:
    """Remove the folders of finished jobs, also of those killed while they removed theirs."""
    for going in path.glob(f"{TEMPORARY}*-{ADDING}"):
        shutil.rmtree(going, ignore_errors=True)


def _extend(
    path: Path,
    sources: Sequence[RawSource],
    manifest: Manifest,
    encoder: TextEncoder,
    settings: BankSettings,
) -> None:
    """Put sources into shards behind those of a manifest, then replace the manifest."""
    path = path.absolute()  # workers may have been started in another folder
    if settings.workers is None and settings.cluster.on is None and _are_small(sources):
        settings = replace(settings, workers=1)
    with job_workers(path, settings) as spread:
        grown = _make(path, sources, manifest, encoder, settings, spread)
    write_manifest(path, grown)
    _remove_strays(path, grown)


def _are_small(sources: Sequence[RawSource]) -> bool:
    """Tell whether the sources are small files; a data set folder or one of the hub is not."""
    sizes = (
        one.path.stat().st_size if one.path is not None and one.path.is_file() else _SMALL
        for one in sources
    )
    return sum(sizes) < _SMALL


def _make(
    path: Path,
    sources: Sequence[RawSource],
    manifest: Manifest,
    encoder: TextEncoder,
    settings: BankSettings,
    spread: Spread,
) -> Manifest:
    """Make the shards of sources in workers; return the manifest with them."""
    parts = make_parts(path, sources, settings, spread)
    paths = [part_path(path, part.key) for part in parts]
    duplicates = find_duplicates(
        [KeyFile(file, file, part.sentences) for file, part in zip(paths, parts, strict=True)],
        stored=make_stored_keys(path, manifest, settings, spread),
        near=settings.near, folder=path / ADDING / "duplicates", spread=spread,
        quiet=settings.quiet,
    )  # fmt: skip
    if not manifest.shards:
        sample = sample_vectors(paths, duplicates, encoder)
        quantizer = fit_quantizer(manifest.format, sample, seed=settings.seed)
        write_file(path / QUANTIZER, quantizer.save())
        manifest = replace(
            manifest,
            fours=quantizer.dims_4bit,
            twos=quantizer.dims_2bit,
            codec=checksum(path / QUANTIZER)[1],
        )
    shards, without_vector = make_shards(
        path, parts, duplicates, manifest, encoder, settings, spread
    )
    dropped = Counter(manifest.dropped)
    for reasons in (*(part.drops for part in parts), duplicates.counts):
        dropped.update(reasons)
    dropped[NO_VECTOR] += without_vector
    marks = dict(manifest.sources)
    for item in sources:
        marks[item.name] = f"{marks.get(item.name, '')} {item.fingerprint}".strip()
    grown = replace(
        manifest,
        sources=marks,
        documents=manifest.documents + sum(part.documents for part in parts),
        dropped=dict(sorted((reason, count) for reason, count in dropped.items() if count)),
        shards=(*manifest.shards, *shards),
        jobs=manifest.jobs + 1,
    )
    if not grown.shards:
        raise InputError(
            f"{path}: no sentence is left of {sum(dropped.values()):,}: "
            + ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common() if count)
            + ": give other text, or other rules (see `tilth bank build --help`)"
        )
    return grown


def _remove_strays(bank: Path, manifest: Manifest) -> None:
    """Remove shards that no manifest names, of dropped or killed jobs."""
    named = {shard.name for shard in manifest.shards}
    strays = [item for item in (bank / SHARDS).iterdir() if item.name not in named]
    with disk_errors(bank):
        for item in (*strays, *bank.glob(f"{TEMPORARY}*")):
            remove(item)
