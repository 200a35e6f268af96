"""tilth quickstart: generate labelled pairs from shipped sentences, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tilth.cli.app import Fields
from tilth.cli.generate import print_quality
from tilth.cli.options import Common, Out
from tilth.cli.screen import command_line, say
from tilth.limits import SEED


def quickstart(
    out: Out = Path("runs/quickstart"),
    seed: Annotated[int, SEED, "Same settings and seed, same rows."] = 0,
    *,
    common: Annotated[Common, Fields(only=("overwrite", "quiet"))],
) -> None:
    """Write labelled sentence pairs for some hundred sentences with the shipped model.

    [dim]tilth quickstart[/dim]
    """
    from tilth.workflows.quickstart import run_quickstart

    say("Writing sentence pairs of similarity 1, 0.5 and 0 with the starter model.")
    run_quickstart(out, seed=seed, overwrite=common.overwrite, quiet=common.quiet)
    print_quality(out, as_json=False)
    say(f"Open {out / 'report.html'} in a browser. Then try your own sentences, one a line:")
    say("  tilth generate sts-x2 --inputs sentences.txt --out runs/mine")
    say(f"Read and annotate the rows (extra 'view'): {command_line('view', out)}")
