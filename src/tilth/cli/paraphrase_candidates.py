"""tilth paraphrase candidates: round trips of sentences, with measured similarities."""

from __future__ import annotations

from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say

_TRANSLATORS = "Translators and search"


def candidates(
    sentences: Annotated[
        str,
        typer.Argument(
            help="Single sentences: a txt, jsonl, csv, tsv or parquet file (plain or gz), a folder "
            "of them, or a hub data set."
        ),
    ],
    out: options.Out,
    forward: Annotated[
        str,
        typer.Option(
            help="Translates into another language: starter (English to German), a folder or a "
            "hub id.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = "starter",
    backward: Annotated[
        str, typer.Option(help="Translates back.", rich_help_panel=_TRANSLATORS)
    ] = "starter",
    forward_prefix: Annotated[
        str | None,
        typer.Option(
            help="Written before every text, for a model of several languages, such as '>>de<< '.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = None,
    backward_prefix: Annotated[
        str | None, typer.Option(help="The same, on the way back.", rich_help_panel=_TRANSLATORS)
    ] = None,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy",
            help="One candidate a sentence, the likeliest word at every step, instead of four by "
            "sampling.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = False,
    beams: Annotated[
        int, typer.Option(help="Width of the search.", rich_help_panel=_TRANSLATORS)
    ] = 5,
    scorer: options.Scorer = "starter",
    column: options.Column = None,
    split: options.Split = "train",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    part_size: Annotated[int, typer.Option(help="Sentences written as one part.")] = 256,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Translate sentences and translate them back: candidates a rewriter can learn from.

    [dim]tilth paraphrase candidates sentences.txt --out runs/candidates[/dim]

    [dim]tilth paraphrase candidates wiki.txt --forward facebook/wmt19-en-de
    --backward facebook/wmt19-de-en --out runs/wmt19[/dim]
    """
    from tilth.paraphrase.trips import make_candidates, read_counts

    make_candidates(
        sentences, out, forward=forward, backward=backward, forward_prefix=forward_prefix,
        backward_prefix=backward_prefix, scorer=scorer, greedy=greedy, beams=beams, column=column,
        split=split, seed=seed, device=device, precision=precision, part_size=part_size,
        overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    counts = read_counts(out)
    if json:
        print_json({**counts.to_dict(), "dataset": str(out / "dataset")})
        return
    print_table("Round trips", ("", "value"), counts.lines())
    say(f"data set: {out / 'dataset'}")
