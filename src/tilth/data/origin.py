"""Where a row of a source stands, found again when a message needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilth.data.formats import rows_of_file
from tilth.data.sources import locate


def origin_of(source: Any, row: int, split: str) -> str:
    """Name the place of a row: `file:line`, or its number where there are no lines.

    Files are read again up to the row: rows carry no line, and only an error asks for it.

    Args:
        source: what was read; anything but a name counts as rows in memory.
        row: from 0.
        split: of a set that has several.
    """
    if not isinstance(source, str | Path):
        return f"row {row} (rows count from 0)"
    found = locate(source)
    if not isinstance(found, list):
        return f"{source}: {split} row {row} (rows count from 0)"
    left = row
    for path in found:
        for line, _ in rows_of_file(path):
            if not left:
                return f"{path}:{line}"
            left -= 1
    return f"{source}: row {row} (rows count from 0)"  # the file has changed meanwhile
