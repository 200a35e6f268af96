"""tilth curate: clean a generated set, soften its labels, split it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say


def curate(
    source: Annotated[str, typer.Argument(help="A generate run, or a labelled file or data set.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where the data set goes; default: SOURCE/curated."),
    ] = None,
    smoothing: Annotated[
        float | None,
        typer.Option(help="Label smoothing of numeric labels; default 0.2, so 0 / 1 -> 0.1 / 0.9."),
    ] = None,
    sampled_pairs: Annotated[
        int | None,
        typer.Option(help="Unrelated pairs added for each first text; default 2."),
    ] = None,
    per_label: Annotated[
        int, typer.Option(help="Second texts kept for each (first text, label).")
    ] = 2,
    validation: Annotated[float, typer.Option(help="Share of the validation split.")] = 0.1,
    near_duplicates: Annotated[
        float | None,
        typer.Option(help="Also drop rows this similar (0 to 1, Jaccard of words and word pairs)."),
    ] = None,
    min_label_fit: Annotated[
        float,
        typer.Option(help="Drop generated texts that fit their label less (-1: keep all)."),
    ] = 0.0,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Clean a generated set as the DINO paper does: duplicates, smoothing, sampled pairs, split.

    [dim]tilth curate runs/pairs[/dim]
    """
    from tilth.data.curate import CurateOptions
    from tilth.workflows.curate import curate_folder

    chosen = CurateOptions(
        smoothing=smoothing,
        sampled_pairs=sampled_pairs,
        per_label=per_label,
        validation=validation,
        near_duplicates=near_duplicates,
        min_label_fit=min_label_fit,
        seed=seed,
    )
    folder, counts = curate_folder(source, out, chosen, overwrite=overwrite)
    if json:
        print_json(counts)
        return
    print_table("Rows", ("", "rows"), [(name, str(count)) for name, count in counts.items()])
    say(f"data set: {folder}")
