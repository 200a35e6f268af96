"""Turn raw text into parts: Parquet files of clean sentences with the keys of their duplicates."""

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
from numpy.typing import NDArray

from tilth.bank.ingest.cleaning import clean_lines, filter_sentences
from tilth.bank.ingest.documents import BLOCK_BYTES, Block, RawSource, read_sources
from tilth.bank.ingest.duplicate_steps import KeyFile
from tilth.bank.ingest.workers import Spread
from tilth.bank.manifest import ADDING, SHARDS, Manifest
from tilth.bank.settings import BankSettings, Rules
from tilth.bank.store import SOURCE, TEXT, TEXT_FILE, read_table
from tilth.data.hashing import text_hashes
from tilth.data.near_duplicates import NEAR, near_keys
from tilth.data.normalize import normalize_texts
from tilth.data.segment import split_paragraphs
from tilth.files import atomic_write, disk_errors
from tilth.runs import NOTHING_MADE, Progress
from tilth.storage import fetch

_GZ_RATIO = 3
# A source shares a part with the next only as long as they have this fraction of a part's bytes.
_SHARED = 4
_METADATA = b"tilth"
SCHEMA = pa.schema(
    [("text", pa.string()), ("document", pa.int64()), ("exact", pa.uint64())]
    + [(name, pa.uint64()) for name in NEAR]
)


@dataclass(frozen=True, slots=True)
class Part:
    """The summary of a part, stored in its file's metadata.

    Attributes:
        key: hash of the sources and blocks it was made from.
    """

    key: str
    documents: int
    drops: dict[str, int]
    sentences: int


def part_path(bank: Path, key: str) -> Path:
    """Return the path of a part's file."""
    return bank / ADDING / "parts" / f"part-{key}.parquet"


def make_parts(
    bank: Path, sources: Sequence[RawSource], settings: BankSettings, spread: Spread
) -> list[Part]:
    """Segment and clean all sources; parts that exist are skipped."""
    try:
        return _make_parts(bank, sources, settings, spread)
    except KeyboardInterrupt:
        if has_parts(bank):
            raise
        raise KeyboardInterrupt(NOTHING_MADE) from None


def has_parts(bank: Path) -> bool:
    """Tell whether a job in a bank has made a part."""
    return any((bank / ADDING / "parts").glob("*.parquet"))


def _make_parts(
    bank: Path, sources: Sequence[RawSource], settings: BankSettings, spread: Spread
) -> list[Part]:
    total = sum(_size(source) for source in sources) >> 20
    parts: dict[int, Part] = {}
    with Progress(total, quiet=settings.quiet, what="MB read") as progress:

        def missing() -> Iterator[tuple[int, Path, str, list[Block]]]:
            read = 0
            for number, (key, blocks) in enumerate(_groups(sources, settings.part_bytes)):
                before, read = read, read + sum(block.size for block in blocks)
                progress.advance((read >> 20) - (before >> 20))
                path = part_path(bank, key)
                if (found := _read_part(path, key)) is None:
                    yield number, path, key, blocks
                else:
                    parts[number] = found

        made = spread(_make_part, missing(), settings.rules, settings.near)
        for number, part in made:
            parts[number] = part
            progress.advance(kept=part.sentences, dropped=sum(part.drops.values()))
    return [parts[number] for number in sorted(parts)]


def _groups(sources: Sequence[RawSource], part_bytes: int) -> Iterator[tuple[str, list[Block]]]:
    """Yield the key and the blocks of each part.

    Small sources share a part; a large one shares none, so that mending it leaves the others'.
    """
    blocks: list[Block] = []
    digest, size = blake2b(digest_size=16), 0
    for source, block in read_sources(sources, block_bytes=min(part_bytes, BLOCK_BYTES)):
        is_own = block.number == 0 and size >= part_bytes // _SHARED
        if blocks and (is_own or size + block.size > part_bytes):
            yield digest.hexdigest(), blocks
            blocks, digest, size = [], blake2b(digest_size=16), 0
        blocks.append(block)
        read = f"{source.name}/{source.fingerprint}/{source.column}/{source.split}/{part_bytes}"
        digest.update(f"{read}/{block.number}/".encode())
        size += block.size
    if blocks:
        yield digest.hexdigest(), blocks


def _size(source: RawSource) -> int:
    """Estimate the bytes of text of a source, for the progress bar."""
    if source.path is None or not source.path.is_file():
        return 0
    size = source.path.stat().st_size
    return size * _GZ_RATIO if source.path.suffix == ".gz" else size


def _make_part(
    task: tuple[int, Path, str, list[Block]], rules: Rules, near: bool
) -> tuple[int, Part]:
    """Make a part's file; runs in a worker."""
    number, path, key, blocks = task
    tables, drops, documents = [], Counter[str](), 0
    for block in blocks:
        found = sentences_of_documents(block, rules, near=near)
        names = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(found.table), np.int32)), [block.source]
        )
        tables.append(found.table.append_column(SOURCE, names))
        drops.update(found.drops)
        documents += found.documents
    table = pa.concat_tables(tables).unify_dictionaries()
    part = Part(key, documents, dict(drops), len(table))
    _write_table(path, table.replace_schema_metadata({_METADATA: json.dumps(asdict(part))}))
    return number, part


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)  # a host without a shared folder has none
    atomic_write(
        path,
        lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True),
    )


def _read_part(path: Path, key: str) -> Part | None:
    """Return a part by its metadata; None if it is not there or was made of something else."""
    try:
        found = pq.read_schema(path).metadata or {}
        part = Part(**json.loads(found[_METADATA]))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError):
        return None
    return part if part.key == key else None


def make_stored_keys(
    bank: Path, manifest: Manifest, settings: BankSettings, spread: Spread
) -> list[KeyFile]:
    """Compute the keys of the sentences that the bank holds, to find duplicates of them.

    A bank keeps no keys: they would add 56 bytes to each sentence, and the exact
    keys of a million sentences take 0.8 s of one core, with the near ones 2.5 s.
    """
    folder = bank / ADDING / "known"
    with disk_errors(folder):
        folder.mkdir(exist_ok=True)
    files = [
        KeyFile(
            folder / f"{shard.name}.parquet", bank / SHARDS / shard.name / TEXT_FILE,
            shard.sentences,
        )
        for shard in manifest.shards
    ]  # fmt: skip
    tasks = [(file.keys, file.texts) for file in files if not file.keys.exists()]
    done = len(files) - len(tasks)
    with Progress(len(files), done=done, quiet=settings.quiet, what="shards") as progress:
        for _ in spread(_make_keys, iter(tasks), settings.near):
            progress.advance(1)
    return files


def _make_keys(task: tuple[Path, Path], near: bool) -> None:
    path, file = task
    fetch(file)
    texts = read_table(file)[TEXT].combine_chunks()
    documents = np.zeros(len(texts), np.int64)  # unknown
    _write_table(path, _keyed_table(texts, documents, normalize_texts(texts), near=near))


@dataclass(frozen=True, slots=True)
class Sentences:
    """The clean sentences of a block.

    Attributes:
        table: columns of `SCHEMA`: text, line of its document in the source, key of exact
            duplicates and, with `near`, those of near ones.
        documents: number of non-empty documents.
    """

    table: pa.Table
    drops: dict[str, int]
    documents: int


def sentences_of_documents(
    block: Block, rules: Rules | None = None, *, near: bool = True
) -> Sentences:
    r"""Segment and clean the documents of a block and compute the keys of each sentence.

    A line end also ends a sentence. Duplicates stay, for `find_duplicates`. `near` adds the keys
    of near duplicates.

    Example:
        >>> said = b"It rains today. Take a coat.\nWhy?\n"
        >>> block = Block("talk.txt", 0, 1, said, len(said))
        >>> found = sentences_of_documents(block)
        >>> found.table["text"].to_pylist(), found.drops
        (['It rains today.', 'Take a coat.'], {'too short': 1})
    """
    rules = Rules() if rules is None else rules
    if isinstance(block.data, bytes):
        lines = clean_lines(block.text())
        documents = np.arange(block.first, block.first + len(lines))
    else:
        counts = [document.count("\n") + 1 for document in block.data]
        lines = clean_lines("\n".join(block.data))
        documents = np.repeat(np.array(block.lines, np.int64), counts)
    texts, line = split_paragraphs(lines, rules.language or "en")
    kept, normalized, drops = filter_sentences(texts, rules)
    table = _keyed_table(texts.take(pa.array(kept)), documents[line[kept]], normalized, near=near)
    return Sentences(table, drops, len(np.unique(documents[line])))


def _keyed_table(
    texts: pa.Array, documents: NDArray[np.int64], normalized: pa.Array, *, near: bool
) -> pa.Table:
    columns = [texts.cast(pa.string()), pa.array(documents), pa.array(text_hashes(normalized))]
    if near:
        columns += map(pa.array, near_keys(normalized).T)
    return pa.Table.from_arrays(columns, schema=pa.schema(list(SCHEMA)[: len(columns)]))
