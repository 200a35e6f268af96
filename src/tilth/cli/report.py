"""tilth report: the page of a finished run, written anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.generate import print_health
from tilth.cli.screen import note, print_json, print_table


def report(
    run: Annotated[Path, typer.Argument(help="A generate or paraphrase run.")],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="A sentence-transformers model that measures similarity; default: word overlap."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Write RUN/report.html anew and print its figures: of a generate run, each label's health.

    [dim]tilth report runs/pairs[/dim]
    """
    from tilth.errors import InputError
    from tilth.report import command_of, write_report

    rewrites = command_of(run) == "paraphrase"
    if rewrites and encoder is not None:
        raise InputError(f"{run}: --encoder counts for generate runs only: leave it out")
    page = write_report(run, encoder=encoder)
    if not rewrites:
        print_health(run, as_json=json)
        return
    from tilth.report.paraphrase import rewrite_summary

    summary = rewrite_summary(run)
    if json:
        print_json(summary.to_dict())
        return
    print_table("Asked and obtained", ("", "asked", "obtained"), summary.lines())
    note(f"report:   {page}")
