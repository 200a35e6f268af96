"""Raw text to parts: segmented, cleaned sentences with their keys, some megabytes of text each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tilth.bank.ingest.cleaning import Rules
from tilth.bank.ingest.documents import BLOCK_BYTES, Block, Source, read_blocks
from tilth.bank.ingest.sentences import keyed_sentences, sentences_of
from tilth.bank.ingest.workers import in_processes
from tilth.bank.store import SHARDS, SOURCE, TEXT, TEXT_FILE, Manifest, read_text
from tilth.errors import TilthError
from tilth.files import atomic_write, disk_errors
from tilth.runs import Progress

ADDING = "adding"
_GZ_RATIO = 3
# A source shares a part with the next only as long as they have this fraction of a part's bytes.
_SHARED = 4
_ABOUT = b"tilth"


@dataclass(frozen=True, slots=True)
class Work:
    """How a job works.

    The bank's path is absolute: workers may have been started in another folder.
    """

    bank: Path
    rules: Rules
    near: bool
    part_bytes: int
    workers: int
    quiet: bool

    def part_path(self, key: str) -> Path:
        """Return where a part lies."""
        return self.bank / ADDING / "parts" / f"part-{key}.parquet"


@dataclass(frozen=True, slots=True)
class Part:
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


def make_parts(work: Work, sources: Sequence[Source]) -> list[Part]:
    """Segment and clean all sources; parts that are there are passed over."""
    total = sum(_size(source) for source in sources) >> 20
    parts: dict[int, Part] = {}
    with Progress(total, quiet=work.quiet, what="MB read") as progress:

        def missing() -> Iterator[tuple[int, Path, str, list[Block]]]:
            read = 0
            for number, (key, blocks) in enumerate(_groups(sources, work.part_bytes)):
                before, read = read, read + sum(_block_bytes(block) for block in blocks)
                progress.advance((read >> 20) - (before >> 20))
                path = work.part_path(key)
                if (found := _read_part(path, key)) is None:
                    yield number, path, key, blocks
                else:
                    parts[number] = found

        for number, part in in_processes(work.workers, _make_part, missing(), work):
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


def _make_part(task: tuple[int, Path, str, list[Block]], work: Work) -> tuple[int, Part]:
    """Make a part's file; runs in a worker."""
    number, path, key, blocks = task
    tables, drops, documents = [], Counter[str](), 0
    for block in blocks:
        found = sentences_of(block, work.rules, near=work.near)
        names = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(found.table), np.int32)), [block.source]
        )
        tables.append(found.table.append_column(SOURCE, names))
        drops.update(found.drops)
        documents += found.documents
    table = pa.concat_tables(tables).unify_dictionaries()
    part = Part(key, documents, dict(drops), len(table))
    table = table.replace_schema_metadata({_ABOUT: json.dumps(asdict(part))})
    atomic_write(path, lambda file: pq.write_table(table, file, compression="zstd"))
    return number, part


def _read_part(path: Path, key: str) -> Part | None:
    """Return what a part says of itself; None if it is not there or was made of something else."""
    try:
        found = pq.read_schema(path).metadata or {}
        part = Part(**json.loads(found[_ABOUT]))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError):
        return None
    return part if part.key == key else None


def remove_damaged(paths: Sequence[Path]) -> None:
    """Remove parts that cannot be read any more; they are made again.

    Raises:
        TilthError: there was one.
    """
    for path in paths:
        try:
            pq.read_table(path)
        except (OSError, pa.ArrowException) as error:  # noqa: PERF203 - it ends here
            path.unlink(missing_ok=True)
            raise TilthError(
                f"{path}: was damaged and is removed: run the same command again"
            ) from error


def make_known(work: Work, manifest: Manifest) -> list[Path]:
    """Give the sentences that the bank holds their keys, to find duplicates of them.

    A bank keeps no keys: they would add 56 bytes to each sentence, and the exact
    keys of a million sentences take 0.8 s of one core, with the near ones 2.5 s.
    """
    folder = work.bank / ADDING / "known"
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
    paths = [folder / f"{shard.name}.parquet" for shard in manifest.shards]
    tasks = [
        (path, work.bank / SHARDS / path.stem / TEXT_FILE) for path in paths if not path.exists()
    ]
    with Progress(len(paths), done=len(paths) - len(tasks), quiet=work.quiet, what="shards") as bar:
        for _ in in_processes(work.workers, _make_keys, iter(tasks), work.near):
            bar.advance(1)
    return paths


def _make_keys(task: tuple[Path, Path], near: bool) -> None:
    path, text = task
    table = keyed_sentences(read_text(text)[TEXT].combine_chunks(), near=near)
    atomic_write(path, lambda file: pq.write_table(table, file, compression="zstd"))
