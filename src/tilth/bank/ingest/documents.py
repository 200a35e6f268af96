"""Find sources of raw text and read their documents in blocks for the workers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.data.formats import decode_line, ending_of, read_chunks
from tilth.data.readers import texts_of_dataset, texts_of_file
from tilth.data.sources import DatasetFolder, HubDataset, locate_split, refuse_split
from tilth.errors import InputError
from tilth.urls import with_urls

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

# A longer line is a file without line ends.
MAX_LINE_BYTES = 16_000_000
# Larger blocks take a fifth longer a sentence: a step's output no longer fits into the cache.
BLOCK_BYTES = 4 << 20
_READ_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class RawSource:
    """One file, or one split of a stored or hub data set.

    Attributes:
        name: as the user named it; for files of a folder, the folder and the path in it.
        fingerprint: hash of names, all bytes and the named column and split, with the prefix
            `sha256:`; for a hub data set, that of `datasets` (and of a named column).
        path: None for a hub data set.
        column: column of texts; None: found as by `read_texts`.
    """

    name: str
    fingerprint: str
    path: Path | None
    hub: HubDataset | None
    column: str | None
    split: str


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive documents of a source.

    Attributes:
        number: from 0 within the source.
        first: line (or row) of the first document, from 1.
        data: unchecked whole lines of a text file, or texts.
        size: bytes of the data.
        lines: line (or row) of each text.
        start: byte offset of the lines in the file.
    """

    source: str
    number: int
    first: int
    data: bytes | list[str]
    size: int
    lines: list[int] | None = None
    start: int = 0

    def text(self) -> str:
        """Return the lines of a text file."""
        assert isinstance(self.data, bytes)
        try:
            text = self.data.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:  # rare: look for the line
            place = self.start
            for number, line in enumerate(self.data.split(b"\n"), self.first):
                decode_line(Path(self.source), number, place, line)
                place += len(line) + 1
        return text


def find_sources(
    sources: str | Path | Sequence[str | Path], *, column: str | None = None, split: str = "train"
) -> list[RawSource]:
    """Find the files and data sets that sources name, in order; folders by file name.

    Fingerprints read every byte once, about 1 GB per second; a bank is built far more slowly.

    Args:
        sources: files (.txt .jsonl .json .csv .tsv, also .gz; .parquet), folders of them, runs,
            data set folders and hub data sets (`owner/name`, `owner/name:config`).
        column: column of texts; None: `text`, `sentence`, or the only column of strings.
    """
    if isinstance(sources, (str, Path)):
        sources = [sources]
    found: dict[Path | HubDataset, RawSource] = {}
    for source in sources:
        refuse_split(source, split)
        located = locate_split(source, split, tell=True)
        if isinstance(located, DatasetFolder):
            located = [located.path]
        elif isinstance(located, list):
            located = _distinct(located)
            sizes = [file.stat().st_size for file in located]
            if any(sizes) and not all(sizes):
                empty = [str(file) for file, size in zip(located, sizes, strict=True) if not size]
                log.warning("left out, as they are empty: %s", ", ".join(empty)[:1000])
                located = [file for file, size in zip(located, sizes, strict=True) if size]
        for place in [located] if isinstance(located, HubDataset) else located:
            key = place if isinstance(place, HubDataset) else place.resolve()
            name = str(source) if isinstance(place, HubDataset) else with_urls(str(place))
            if key in found:
                raise InputError(f"{name}: named twice, also by {found[key].name}: name it once")
            if isinstance(place, HubDataset):
                mark = str(place.load(split)._fingerprint) + (column or "")
                mark = blake2b(mark.encode(), digest_size=8).hexdigest()
                found[key] = RawSource(name, mark, None, place, column, split)
            else:
                # Lines have no columns but `text`.
                own = None if _is_lines(place) and column != "text" else column
                mark = _fingerprint(place, own, split)
                found[key] = RawSource(name, mark, place, None, own, split)
    if not found:
        raise InputError("no source is named: name a file, a folder or a data set of the hub")
    if column not in (None, "text") and all(one.column is None for one in found.values()):
        raise InputError(
            f"{next(iter(found.values())).name}:1: no column {column!r}: there are text"
        )
    return list(found.values())


def _is_lines(path: Path) -> bool:
    return path.is_file() and ending_of(path) == ".txt"


def read_blocks(source: RawSource, *, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    r"""Read a source in blocks, whose borders depend only on the source and the size.

    Args:
        block_bytes: maximum text per block; one document may be longer.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "talk.txt"
        >>> _ = path.write_text("It rains.\nTake a coat.\n")
        >>> [block.data for block in read_blocks(*find_sources(path), block_bytes=12)]
        [b'It rains.\n', b'Take a coat.\n']
    """
    is_lines = source.path is not None and _is_lines(source.path)
    blocks = _blocks_of_lines if is_lines else _blocks_of_texts
    for number, block in enumerate(blocks(source, block_bytes)):
        yield replace(block, number=number)


def read_sources(
    sources: Sequence[RawSource], *, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[RawSource, Block]]:
    """Read sources in blocks, each with its source; warn of one without text.

    Raises:
        InputError: none of them holds text.
    """
    without = []
    for source in sources:
        is_blank = True
        for block in read_blocks(source, block_bytes=block_bytes):
            is_blank = is_blank and not holds_text(block)
            yield source, block
        if is_blank:
            without.append(source.name)
            if len(sources) > 1:
                log.warning("%s: holds no text", source.name)
    if len(without) == len(sources):
        raise InputError(f"{without[0]}: holds no text: give at least one")


def _distinct(files: Sequence[Path]) -> list[Path]:
    """Return the files of a folder without those that lead to an earlier one."""
    found: dict[Path, Path] = {}
    for file in sorted(files, key=Path.is_symlink):  # links last
        if (first := found.setdefault(file.resolve(), file)) is not file:
            log.warning("%s: leads to %s: left out", file, first)
    return [file for file in files if found[file.resolve()] is file]


def _fingerprint(path: Path, column: str | None, split: str) -> str:
    """Return a hash of the names and bytes of a file or of a folder's files, and what is read."""
    hashed = sha256()
    for file in _files(path):
        name = file.relative_to(path) if path.is_dir() else file.name
        with _readable(file), open(file, "rb", buffering=0) as content:
            size = os.fstat(content.fileno()).st_size
            hashed.update(f"{name}/{size}/".encode("utf-8", "surrogateescape"))
            while block := content.read(_READ_AT_ONCE):
                hashed.update(block)
    read = column, split if path.is_dir() else "train"  # a file has no splits
    if read != (None, "train"):
        hashed.update("{}/{}".format(*read).encode("utf-8", "surrogateescape"))
    return f"sha256:{hashed.hexdigest()[:32]}"


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(item for item in path.rglob("*") if item.is_file())


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}: give a readable file") from error


def holds_text(block: Block) -> bool:
    """Return whether a block holds more than white space."""
    if isinstance(block.data, bytes):
        return bool(block.data) and not block.data.isspace()
    return any(text and not text.isspace() for text in block.data)


def _blocks_of_lines(source: RawSource, block_bytes: int) -> Iterator[Block]:
    assert source.path is not None
    for first, start, data in read_chunks(source.path, block_bytes, MAX_LINE_BYTES):
        yield Block(source.name, 0, first, data, len(data), start=start)


def _blocks_of_texts(source: RawSource, block_bytes: int) -> Iterator[Block]:
    lines: list[int] = []
    texts: list[str] = []
    size = 0
    for line, text in _texts(source):
        length = len(text.encode("utf-8", "surrogatepass")) + 1
        if texts and size + length > block_bytes:
            yield Block(source.name, 0, lines[0], texts, size, lines)
            lines, texts, size = [], [], 0
        lines.append(line)
        texts.append(text)
        size += length
    if texts:
        yield Block(source.name, 0, lines[0], texts, size, lines)


def _texts(source: RawSource) -> Iterator[tuple[int, str]]:
    """Yield (line or row, text)."""
    if source.path is not None and source.path.is_file():
        return texts_of_file(source.path, source.column)
    dataset: Dataset
    if source.hub is not None:
        dataset = source.hub.load(source.split)
    else:
        assert source.path is not None
        dataset = DatasetFolder(source.path).load(source.split)
    return texts_of_dataset(source.name, dataset, source.column)
