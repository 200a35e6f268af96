"""tilth curate: clean a generated set, soften its labels, split it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.checks import DATA
from tilth.cli.screen import print_json, print_table, say
from tilth.data.curate import CurateOptions


def curate(
    source: Annotated[
        str, DATA, typer.Argument(help="A generate run, or a labelled file or data set.")
    ],
    chosen: CurateOptions,
    out: Annotated[
        Path | None,
        options.OtherFolder,
        typer.Option("--out", "-o", help="Where the data set goes; default: SOURCE/curated."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Clean a generated set as the DINO paper does: duplicates, smoothing, sampled pairs, split.

    [dim]tilth curate runs/pairs[/dim]
    """
    from tilth.workflows.curate import curate_folder

    folder, counts = curate_folder(source, out, chosen, overwrite=overwrite)
    if json:
        print_json(counts)
        return
    print_table("Rows", ("", "rows"), [(name, str(count)) for name, count in counts.items()])
    say(f"data set: {folder}")
