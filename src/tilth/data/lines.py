"""Lines of a text file, plain or gz, checked: what is wrong is named with file and line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from tilth.errors import InputError

# A longer text is a file without line ends, not a sentence.
MAX_CHARS = 100_000
_BOM = b"\xef\xbb\xbf"
_GZ = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line without its end) of a UTF-8 file.

    Memory stays flat whatever a line's length. A byte order mark and CRLF ends are taken off.

    Raises:
        InputError: a line is longer than `max_bytes`, no UTF-8 or holds NUL bytes; the gz file
            is cut short or none.
    """
    number = offset = 0
    with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as file:
        try:
            while line := file.readline(max_bytes + 3):
                number += 1
                if number == 1:
                    _check_start(path, line)
                if len(line) > max_bytes + 2 or (
                    len(line) > max_bytes and len(line.rstrip(b"\r\n")) > max_bytes
                ):
                    raise InputError(
                        f"{path}:{number}: the line is longer than {max_bytes:,} bytes: "
                        "write one text a line"
                    )
                yield number, _decode(path, number, offset, line)
                offset += len(line)
        except EOFError as error:
            raise InputError(
                f"{path}:{number + 1}: the gz file is cut short: copy or download it again"
            ) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(
                f"{path}:{number + 1}: the gz file is broken ({error}): copy or download it again, "
                "or take .gz off the name of a plain file"
            ) from error


def _check_start(path: Path, line: bytes) -> None:
    if line.startswith(_UTF16):
        raise InputError(f"{path}:1: the file is UTF-16: save it as UTF-8")
    if line.startswith(_GZ):
        raise InputError(f"{path}:1: the file is compressed with gz: name it {path.name}.gz")


def _decode(path: Path, number: int, offset: int, line: bytes) -> str:
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
