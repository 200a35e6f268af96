"""Whether all of a bank is on disk as it was written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilth.bank.search.ivf import ABOUT, FOLDER, damaged_index
from tilth.bank.store import damaged, load_codec, read_manifest
from tilth.errors import TilthError
from tilth.runs import Progress


@dataclass(frozen=True, slots=True)
class Checked:
    """What reading all of a bank has shown.

    Attributes:
        files: how many were read.
        size: their bytes, as the manifest has them.
        damaged: a line for each file that is not as it was written.
    """

    files: int
    size: int
    damaged: list[str]


def check_bank(path: Path, *, quiet: bool = False) -> Checked:
    """Read every byte of a bank, also of one that `Bank.open` refuses.

    Raises:
        InputError: there is no bank.
        TilthError: its manifest is damaged.
    """
    manifest = read_manifest(path)
    lines = []
    try:
        load_codec(path, manifest)
    except TilthError as error:
        lines.append(str(error))
    with Progress(manifest.bytes >> 20, quiet=quiet, what="MB") as progress:
        done = 0

        def advance(size: int) -> None:
            nonlocal done
            progress.advance((done + size >> 20) - (done >> 20))
            done += size

        lines += damaged(path, manifest, advance)
    lines += damaged_index(path)
    files = 1 + sum(len(shard.files) for shard in manifest.shards)
    return Checked(files + (path / FOLDER / ABOUT).is_file(), manifest.bytes, lines)
