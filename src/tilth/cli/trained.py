"""What a training of a classifier or tagger gained, printed as one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilth.cli.screen import print_table, say


def print_trained(results: Mapping[str, Any]) -> None:
    """Print a training's results.json for a reader."""
    from tilth.report.tested import gain_lines, tested_on, validation_words

    head, lines = gain_lines(results)
    if lines:  # an interval stands under its figure: narrow screens hold all
        print_table(
            f"x 100 (95% interval over rows; one training), {tested_on(results)}",
            ["", *head[1::2]],
            [
                [line[0], *map("\n".join, zip(line[1::2], line[2::2], strict=True))]
                for line in lines
            ],
        )
    for line in (*results.get("warnings", []), *results.get("notes", [])):
        say(line)
    best = results["best"]
    score = "no validation rows" if best["score"] is None else f"{best['score']:.1f}"
    seed = f"seed {best['seed']}, " if len(results["seeds"]) > 1 else ""
    say(f"kept: {seed}step {best['step']}, {validation_words(results)} {score}")
