"""tilth report: the page of a finished run, written anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.generate import print_health


def report(
    run: Annotated[Path, typer.Argument(help="A generate run.")],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="A sentence-transformers model that measures similarity; default: word overlap."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Write RUN/report.html anew and print the health of each label.

    [dim]tilth report runs/pairs[/dim]
    """
    from tilth.report import write_report

    write_report(run, encoder=encoder)
    print_health(run, as_json=json)
