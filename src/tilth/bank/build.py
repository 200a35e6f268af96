"""Makes banks and adds to them: raw text to parts, duplicates out, parts to shards, the manifest.

Every step leaves whole files that the same command finds again. Parts and shards are made by
worker processes; what they make follows from the sources and the settings alone.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tilth.bank.bank import Bank
from tilth.bank.cleaning import Rules
from tilth.bank.codes import Codec, Codes, Floats, Format, check_format, fit_codec
from tilth.bank.documents import BLOCK_BYTES, Block, Source, find_sources, read_blocks
from tilth.bank.duplicates import Duplicates, find_duplicates
from tilth.bank.encode import STARTER, TextEncoder
from tilth.bank.store import (
    CODEC,
    DOCUMENT,
    MANIFEST,
    SHARDS,
    SOURCE,
    TEXT,
    TEXT_FILE,
    Manifest,
    Shard,
    checksum,
    load_codec,
    read_manifest,
    read_shard,
    read_text,
    write_manifest,
    write_shard,
)
from tilth.bank.text import keyed_sentences, sentences_of
from tilth.bank.workers import end_processes, in_processes
from tilth.errors import InputError
from tilth.runs import Progress, Run, RunMismatch
from tilth.runs.asked import read_run_json, versions
from tilth.runs.files import TEMPORARY, disk_errors, write_whole

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

ADDING = "adding"
NO_VECTOR = "no vector"
_MEGABYTES = 16
_ENCODED_AT_ONCE = 1 << 15
# Sentences that the codec is fitted on; means and variances are sharp with far fewer.
_SAMPLE = 1 << 15
_SAMPLED_PARTS = 64
_GZ_RATIO = 3
# A source shares a part with the next only as long as they have this fraction of a part's bytes.
_SHARED = 4
_ABOUT = b"tilth"


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
        sources: see `tilth.bank.documents.find_sources`.
        encoder: `starter` (static, 256 dimensions), what `tilth.load_encoder` takes, or a loaded
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
    check_format(format)
    _check_counts(shard_megabytes, workers)
    found = find_sources(sources, column=column, split=split)
    text_encoder = TextEncoder.load(encoder, device=device)
    run = Run.open(
        path,
        command="bank build",
        settings={
            "sources": [source.name for source in found],
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
        overwrite=overwrite,
        nested=(ADDING,),
    )
    with run:
        if (path / MANIFEST).exists():
            _warn_of_changes(path, found)
        else:
            manifest = Manifest(
                text_encoder.name,
                text_encoder.fingerprint,
                text_encoder.dimension,
                format,
                rules=asdict(rules),
                created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                versions=versions(),
            )
            work = _Work(
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
    return Bank.open(path, encoder=text_encoder)


def add_to_bank(
    path: str | Path,
    sources: str | Path | Sequence[str | Path],
    *,
    encoder: str | SentenceTransformer | TextEncoder | None = None,
    near: bool = True,
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
        near: see there.
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
    manifest = Bank.open(path, encoder=encoder, device=device).manifest
    found = find_sources(sources, column=column, split=split)
    settings = {
        "sources": [source.name for source in found],
        "near": near,
        "column": column,
        "split": split,
        "shard_megabytes": shard_megabytes,
    }
    overwrite = overwrite or _is_finished(path, manifest)
    with _job(path, settings, overwrite=overwrite) as job:
        bank = Bank.open(path, encoder=encoder, device=device)  # another may have added meanwhile
        manifest = bank.manifest
        if job.resolve("job", lambda: manifest.jobs) == manifest.jobs:
            new = [item for item in found if manifest.sources.get(item.name) != item.fingerprint]
            for item in found:
                if item not in new:
                    log.warning("%s: is in the bank already, as it is now: passed over", item.name)
            rules = Rules(**manifest.rules)
            work = _Work(
                path.absolute(), rules, near, shard_megabytes << 20,
                workers or os.cpu_count() or 1, quiet,
            )  # fmt: skip
            if new:
                _extend(work, new, manifest, bank.text_encoder, seed=0)
        _remove_job(path)
    return Bank.open(path, encoder=encoder, device=device)


def _check_counts(shard_megabytes: int, workers: int | None) -> None:
    for name, value in (("shard_megabytes", shard_megabytes), ("workers", workers)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}: give 1 or more")


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
            overwrite=overwrite,
        )
    except RunMismatch as error:
        raise InputError(
            f"{path}: an adding of other sources or settings is unfinished there: finish it with "
            "its own command, or drop what it has done with --overwrite"
        ) from error
    with run:
        try:
            yield run
        finally:
            end_processes()


def _warn_of_changes(path: Path, sources: Sequence[Source]) -> None:
    before = read_manifest(path).sources
    for item in sources:
        if before.get(item.name) != item.fingerprint:
            log.warning(
                "%s: has changed since %s was built: `tilth bank add` takes in what is new, "
                "--overwrite builds anew",
                item.name,
                path,
            )


def _is_finished(path: Path, manifest: Manifest) -> bool:
    """Say whether the job in a bank's folder has done all but to remove its own."""
    if not (path / ADDING / "run.json").exists():
        return False
    return int(read_run_json(path / ADDING)["resolved"].get("job", manifest.jobs)) < manifest.jobs


def _remove_job(path: Path) -> None:
    with disk_errors(path):
        shutil.rmtree(path / ADDING, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Work:
    """How a job works.

    The bank's path is absolute: workers may have been started in another folder.
    """

    bank: Path
    rules: Rules
    near: bool
    part_bytes: int
    workers: int
    quiet: bool

    def part_path(self, number: int) -> Path:
        return self.bank / ADDING / "parts" / f"part-{number:05d}.parquet"


@dataclass(frozen=True, slots=True)
class _Part:
    """What was found in some documents, as it stands in the part's file.

    Attributes:
        key: of the sources and blocks it was made from.
        documents: how many there were.
        drops: reason -> sentences.
        sentences: kept.
    """

    key: str
    documents: int
    drops: dict[str, int]
    sentences: int


def _extend(
    work: _Work, sources: Sequence[Source], manifest: Manifest, encoder: TextEncoder, seed: int
) -> None:
    """Put sources into shards behind those of a manifest, then replace the manifest."""
    parts = _make_parts(work, sources)
    paths = [work.part_path(number) for number in range(len(parts))]
    known = _make_known(work, manifest)
    bank = Bank(work.bank, manifest, encoder) if manifest.shards else None
    _say(work, "looking for duplicates")
    duplicates = find_duplicates(
        paths, known=known, known_texts=None if bank is None else bank.texts, near=work.near,
        folder=work.bank / ADDING / "duplicates", threads=work.workers,
    )  # fmt: skip
    if bank is None:
        codec = fit_codec(manifest.format, _sample(paths, duplicates, encoder), seed=seed)
        write_whole(work.bank / CODEC, lambda file: _put(file, codec.save()))
        digest = checksum(work.bank / CODEC)[1]
        manifest = replace(manifest, fours=codec.fours, twos=codec.twos, codec=digest)
    shards, without = _make_shards(work, paths, parts, duplicates, manifest, encoder)
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


def _make_parts(work: _Work, sources: Sequence[Source]) -> list[_Part]:
    """Segment and clean all sources; parts that are there are passed over."""
    total = sum(_size(source) for source in sources) >> 20
    parts: dict[int, _Part] = {}
    with Progress(total, quiet=work.quiet, what="MB read") as progress:

        def missing() -> Iterator[tuple[int, Path, str, list[Block]]]:
            read = 0
            for number, (key, blocks) in enumerate(_groups(sources, work.part_bytes)):
                before, read = read, read + sum(_block_bytes(block) for block in blocks)
                progress.advance((read >> 20) - (before >> 20))
                path = work.part_path(number)
                if (found := _read_part(path, key)) is None:
                    yield number, path, key, blocks
                else:
                    parts[number] = found

        for number, part in in_processes(work.workers, _make_part, missing(), work.rules):
            parts[number] = part
            progress.advance(kept=part.sentences, dropped=sum(part.drops.values()))
    return [parts[number] for number in sorted(parts)]


def _groups(sources: Sequence[Source], part_bytes: int) -> Iterator[tuple[str, list[Block]]]:
    """Yield blocks that make a part together, and the part's key.

    Small sources share a part; a large one shares none, so that mending it leaves the others'.
    """
    blocks: list[Block] = []
    digest, size = blake2b(digest_size=16), 0
    for source in sources:
        if size >= part_bytes // _SHARED:
            yield digest.hexdigest(), blocks
            blocks, digest, size = [], blake2b(digest_size=16), 0
        for block in read_blocks(source, block_bytes=min(part_bytes, BLOCK_BYTES)):
            if blocks and size + _block_bytes(block) > part_bytes:
                yield digest.hexdigest(), blocks
                blocks, digest, size = [], blake2b(digest_size=16), 0
            blocks.append(block)
            read = f"{source.name}/{source.fingerprint}/{source.column}/{source.split}/{part_bytes}"
            digest.update(f"{read}/{block.number}/".encode())
            size += _block_bytes(block)
    if blocks:
        yield digest.hexdigest(), blocks


def _block_bytes(block: Block) -> int:
    if isinstance(block.data, bytes):
        return len(block.data)
    return sum(map(len, block.data))


def _size(source: Source) -> int:
    """Return how many bytes of text a source may have, for the bar."""
    if source.path is None or not source.path.is_file():
        return 0
    size = source.path.stat().st_size
    return size * _GZ_RATIO if source.path.suffix == ".gz" else size


def _make_part(task: tuple[int, Path, str, list[Block]], rules: Rules) -> tuple[int, _Part]:
    """Make a part's file; runs in a worker."""
    number, path, key, blocks = task
    tables, drops, documents = [], Counter[str](), 0
    for block in blocks:
        found = sentences_of(block, rules)
        names = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(found.table), np.int32)), [block.source]
        )
        tables.append(found.table.append_column(SOURCE, names))
        drops.update(found.drops)
        documents += found.documents
    table = pa.concat_tables(tables).unify_dictionaries()
    part = _Part(key, documents, dict(drops), len(table))
    table = table.replace_schema_metadata({_ABOUT: json.dumps(asdict(part))})
    write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))
    return number, part


def _read_part(path: Path, key: str) -> _Part | None:
    """Return what a part says of itself; None if it is not there or was made of something else."""
    try:
        found = pq.read_schema(path).metadata or {}
        part = _Part(**json.loads(found[_ABOUT]))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError):
        return None
    return part if part.key == key else None


def _make_known(work: _Work, manifest: Manifest) -> list[Path]:
    """Give the sentences that the bank holds their keys, to find duplicates of them."""
    folder = work.bank / ADDING / "known"
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
    paths = [folder / f"{shard.name}.parquet" for shard in manifest.shards]
    tasks = [
        (path, work.bank / SHARDS / path.stem / TEXT_FILE) for path in paths if not path.exists()
    ]
    with Progress(len(paths), done=len(paths) - len(tasks), quiet=work.quiet, what="shards") as bar:
        for _ in in_processes(work.workers, _make_keys, iter(tasks)):
            bar.advance(1)
    return paths


def _make_keys(task: tuple[Path, Path]) -> None:
    path, text = task
    table = keyed_sentences(read_text(text)[TEXT].combine_chunks())
    write_whole(path, lambda file: pq.write_table(table, file, compression="zstd"))


def _sample(paths: Sequence[Path], duplicates: Duplicates, encoder: TextEncoder) -> Floats:
    """Return vectors of sentences from all over the parts, (sentences, dimension)."""
    places = np.unique(np.linspace(0, len(paths) - 1, min(len(paths), _SAMPLED_PARTS)).astype(int))
    each = -(-_SAMPLE // max(len(places), 1))
    texts = []
    for place in places:
        rows = np.flatnonzero(duplicates.kept(place))
        rows = rows[:: max(1, len(rows) // each)][:each]
        texts += pq.read_table(paths[place], columns=[TEXT])[TEXT].take(pa.array(rows)).to_pylist()
    vectors = encoder.encode(pa.array(texts, pa.large_string()))
    known: Floats = vectors[vectors.any(axis=1)]
    return known if len(known) else np.zeros((1, encoder.dimension), np.float32)


def _make_shards(
    work: _Work,
    paths: Sequence[Path],
    parts: Sequence[_Part],
    duplicates: Duplicates,
    manifest: Manifest,
    encoder: TextEncoder,
) -> tuple[list[Shard], int]:
    """Encode what is left of each part into a shard; shards that are there are passed over.

    Returns:
        The shards, and how many sentences had no vector.
    """
    codec = load_codec(work.bank, manifest)
    folder = work.bank / SHARDS
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
        mark = blake2b((work.bank / CODEC).read_bytes(), digest_size=8).hexdigest()
    shards: dict[int, Shard] = {}
    total = int(sum(duplicates.kept(number).sum() for number in range(len(paths))))
    with Progress(total, quiet=work.quiet, what="sentences") as progress:

        def missing() -> Iterator[tuple[int, Path, NDArray[np.bool_], str, str]]:
            for number, path in enumerate(paths):
                kept = duplicates.kept(number)
                if not kept.any():
                    continue
                digest = blake2b(kept.tobytes(), digest_size=8).hexdigest()
                made_of = f"{parts[number].key} {digest} {encoder.fingerprint} {mark}"
                name = f"{manifest.jobs:04d}-{number:05d}"
                if (shard := read_shard(folder, name, made_of)) is None:
                    yield number, path, kept, name, made_of
                else:
                    shards[number] = shard
                    progress.skip(int(kept.sum()))

        # A table of vectors goes to every worker; other encoders use all cores by themselves.
        workers = work.workers if encoder.rows is not None else 1
        encode = encoder.encode if encoder.rows is None else encoder.rows.encode
        made = in_processes(workers, _make_shard, missing(), folder, codec, encode)
        for number, shard, asked in made:
            if shard is not None:
                shards[number] = shard
            progress.advance(asked)
    found = [shards[number] for number in sorted(shards)]
    return found, total - sum(shard.sentences for shard in found)


def _make_shard(
    task: tuple[int, Path, NDArray[np.bool_], str, str],
    folder: Path,
    codec: Codec,
    encode: Callable[[pa.Array], Floats],
) -> tuple[int, Shard | None, int]:
    """Encode and write a shard; runs in a worker."""
    number, path, kept, name, made_of = task
    table = pq.read_table(path, columns=[TEXT, SOURCE, DOCUMENT]).filter(pa.array(kept))
    texts = table[TEXT].combine_chunks()
    coded, known = [], []
    for start in range(0, len(texts), _ENCODED_AT_ONCE):
        vectors = encode(texts.slice(start, _ENCODED_AT_ONCE))
        there = vectors.any(axis=1)
        coded.append(codec.encode(vectors[there]))
        known.append(there)
    mask = np.concatenate(known)
    if not mask.any():
        return number, None, len(texts)
    if not mask.all():
        table = table.filter(pa.array(mask))
    fine = [codes.fine for codes in coded if codes.fine is not None]
    codes = Codes(
        np.concatenate([codes.codes for codes in coded]),
        np.concatenate([codes.scales for codes in coded]),
        np.concatenate(fine) if fine else None,
    )
    shard = write_shard(folder, name, made_of, table.combine_chunks(), codes)
    return number, shard, len(texts)


def _remove_strays(bank: Path, manifest: Manifest) -> None:
    """Remove shards that no manifest names: of jobs that were dropped, or killed while writing."""
    named = {shard.name for shard in manifest.shards}
    with disk_errors(bank):
        for item in (bank / SHARDS).iterdir():
            if item.name not in named:
                shutil.rmtree(item, ignore_errors=True)
        for item in bank.glob(f"{TEMPORARY}*"):
            item.unlink(missing_ok=True)


def _say(work: _Work, what: str) -> None:
    if not work.quiet:
        log.info("%s: %s", work.bank, what)


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)
