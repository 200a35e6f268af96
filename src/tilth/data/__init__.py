"""Data sets: reading texts and rows, curating them, writing them with a card."""

from tilth.data.card import Card
from tilth.data.curate import Curated, CurateOptions, curate, curate_rows
from tilth.data.hashing import fingerprint, text_id
from tilth.data.readers import read_rows, read_texts
from tilth.data.sources import load_folder
from tilth.data.writer import DatasetWriter

__all__ = [
    "Card",
    "CurateOptions",
    "Curated",
    "DatasetWriter",
    "curate",
    "curate_rows",
    "fingerprint",
    "load_folder",
    "read_rows",
    "read_texts",
    "text_id",
]
