"""A run of four small parts."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from tilth.runs import Run


def table(index: int, rows: int = 3) -> pa.Table:
    return pa.table({"part": [index] * rows, "row": range(rows), "text": ["a text"] * rows})


def open_run(path: Path | str, **changes: Any) -> Run:
    asked: dict[str, Any] = {
        "command": "generate",
        "settings": {"decay": 100, "seed": 0},
        "fingerprints": {"inputs": "abc", "model": "def"},
        "parts": 4,
    }
    return Run.open(path, **{**asked, **changes})


def content(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
