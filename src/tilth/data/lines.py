"""Lines of a UTF-8 file, plain or gz, with their numbers."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

import numpy as np

from tilth.errors import InputError
from tilth.files import check_input

_BOM = b"\xef\xbb\xbf"
_GZ = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_READ_BYTES = 1 << 20


def read_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 file.

    Memory is bounded whatever a line's length. A byte order mark and CRLF ends are removed.
    """
    number = offset = 0
    with _opened(path) as file, _gz_errors(path, lambda: number + 1):
        while line := file.readline(max_bytes + 3):
            number += 1
            if number == 1:
                _check_start(path, line)
            if len(line) > max_bytes + 2 or (
                len(line) > max_bytes and len(line.rstrip(b"\r\n")) > max_bytes
            ):
                raise _too_long(path, number, max_bytes)
            yield number, decode_line(path, number, offset, line)
            offset += len(line)


def read_chunks(path: Path, chunk_bytes: int, max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number of the first line, byte of the file where it begins, whole lines).

    A chunk ends with the last line that ends within `chunk_bytes`, or else with its first line.
    Memory is bounded whatever a line's length. The content of the lines is not checked.
    """
    number, start, held, more = 1, 0, bytearray(), True
    with _opened(path) as file, _gz_errors(path, lambda: number + held.count(b"\n")):
        while more or held:
            end = _chunk_end(held, chunk_bytes, more)
            if end:
                chunk = bytes(held[:end])
                del held[:end]
                _check_lengths(path, number, chunk, max_bytes)
                yield number, start, chunk
                number, start = number + chunk.count(b"\n"), start + end
                continue
            if len(held) > chunk_bytes + max_bytes:
                _check_lengths(path, number, bytes(held), max_bytes)
            piece = file.read1(_READ_BYTES)
            if not start and not held:
                _check_start(path, piece)
            more = bool(piece)
            held += piece


def decode_line(path: Path, number: int, offset: int, line: bytes) -> str:
    """Return a line without its end; `number` counts from 1, `offset` is its byte in the file."""
    if number == 1 and line.startswith(_BOM):
        line = line[len(_BOM) :]
        offset += len(_BOM)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    nul = line.find(b"\0")
    if nul >= 0:
        raise InputError(
            f"{path}:{number}: NUL byte at byte {offset + nul} of the file: is it a text file"
            " in UTF-8?"
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}:{number}: byte {line[error.start]:#04x} at byte {offset + error.start} of the "
            "file is not UTF-8: save the file as UTF-8"
        ) from error


def _chunk_end(held: bytearray, chunk_bytes: int, more: bool) -> int:
    """Return where the next chunk ends; 0: not known before more is read."""
    if more and len(held) < chunk_bytes:
        return 0
    end = held.rfind(b"\n", 0, chunk_bytes) + 1
    return end or held.find(b"\n", chunk_bytes) + 1 or (0 if more else len(held))


def _check_lengths(path: Path, number: int, lines: bytes, max_bytes: int) -> None:
    if len(lines) <= max_bytes:
        return
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    lengths = np.diff(ends, prepend=-1, append=len(lines)) - 1
    for line in np.flatnonzero(lengths > max_bytes).tolist():
        stop = ends[line] if line < len(ends) else len(lines)
        if lengths[line] - lines[:stop].endswith(b"\r") > max_bytes:
            raise _too_long(path, number + line, max_bytes)


def _too_long(path: Path, number: int, max_bytes: int) -> InputError:
    return InputError(
        f"{path}:{number}: the line is longer than {max_bytes:,} bytes: write one text a line"
    )


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    check_input(path)
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


@contextmanager
def _gz_errors(path: Path, line: Callable[[], int]) -> Iterator[None]:
    """Name the line after which a gz file is broken."""
    try:
        yield
    except EOFError as error:
        raise InputError(
            f"{path}:{line()}: the gz file is cut short: copy or download it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"{path}:{line()}: the gz file is broken ({error}): copy or download it again, "
            "or take .gz off the name of a plain file"
        ) from error


def _check_start(path: Path, line: bytes) -> None:
    if line.startswith(_UTF16):
        raise InputError(f"{path}:1: the file is UTF-16: save it as UTF-8")
    if line.startswith(_GZ):
        raise InputError(f"{path}:1: the file is compressed with gz: name it {path.name}.gz")
