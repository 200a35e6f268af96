"""Data sets: reading texts and rows, curating them, writing them with a card."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilth.data.card import Card
    from tilth.data.curate import Curated, curate_rows
    from tilth.data.hashing import fingerprint, text_id
    from tilth.data.readers import read_rows, read_texts
    from tilth.data.sources import load_folder
    from tilth.data.writer import DatasetWriter

__all__ = [
    "Card", "Curated", "DatasetWriter", "curate_rows", "fingerprint",
    "load_folder", "read_rows", "read_texts", "text_id",
]  # fmt: skip
_HOMES = {
    "Card": "card", "Curated": "curate", "DatasetWriter": "writer",
    "curate_rows": "curate", "fingerprint": "hashing", "load_folder": "sources",
    "read_rows": "readers", "read_texts": "readers", "text_id": "hashing",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use: settings are read without pyarrow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tilth.data.{_HOMES[name]}"), name)
