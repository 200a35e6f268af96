"""Controlled paraphrase, section 4.1: the search over top-k and temperature of round trips."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from tilth.recipes.paraphrase_figures import (
    BANK,
    MODELS,
    PAPER,
    QUALITIES,
    SOURCE,
    STARTER,
    Figure,
    qualities,
    span,
)
from tilth.recipes.recipe import Recipe, Result

if TYPE_CHECKING:
    from tilth.recipes.paraphrase import ParaphraseSteps

GRID = tuple(product((10, 20, 30, 40), (1.0, 2.0, 3.0, 4.0)))  # top-k and temperature
_SHARE = QUALITIES[2]


def run(steps: ParaphraseSteps) -> Result:
    """Make round trips of the same sentences at each top-k and temperature, and count them."""
    from tilth.paraphrase.settings import SAMPLING
    from tilth.paraphrase.tags import MEANINGS, MOST_WORDING
    from tilth.recipes.paraphrase import measured_pairs, round_trips, sentences

    texts = sentences(steps)
    found = {
        (top_k, heat): measured_pairs(round_trips(steps, texts, ((top_k, heat),)))
        for top_k, heat in GRID
    }
    figure = Figure("Controlled paraphrase, section 4.1: top-k and temperature", QUALITIES)
    for (top_k, heat), pairs in found.items():
        kept = ", the paper's" if (top_k, heat) in SAMPLING else ""
        figure.add(f"k {top_k}, T {heat:g}{kept}", qualities(pairs), pairs.plane)
    counted = sorted({len(pairs.meaning) for pairs in found.values()})
    shares = {row.name: row.cells[_SHARE].value for row in figure.rows if row.cells}
    best = sorted(shares, key=lambda name: -shares[name])[:2]
    return figure.result([
        f"Of the same {len(texts):,} sentences of bank/, one candidate each. Counted, with 4 words "
        f"or more in both texts: {span(counted)}.",
        f"High quality, as the paper has it: meaning above {MEANINGS[0]} and wording at most "
        f"{MOST_WORDING}. The most: {' and '.join(best)}. Chance (95%): up to ±"
        f"{98 / math.sqrt(max(counted[-1], 1)):.0f} points of a share.",
        "Published: no figures. The paper took (20, 3.0) and (30, 2.0) by their distributions and "
        "by reading for unnatural sentences. Here nothing measures whether a candidate is natural.",
    ])  # fmt: skip


RECIPE = Recipe(
    name="paraphrase-sampling",
    title="Meaning and wording of round trips at 16 pairs of top-k and temperature",
    source=f"{SOURCE}, section 4.1",
    options=(),
    run=run,
    steps=(
        "draw sentences from all raw text in bank/",
        "translate them to German and back by beam search with sampling, one candidate each, at "
        "each k of 10, 20, 30 and 40 and T of 1, 2, 3 and 4",
        "measure meaning and wording, and count",
    ),
    needs=BANK,
    scales={
        "starter": replace(
            STARTER,
            sentences=64,
            departures=("64 sentences of all of bank/ for a number that is not published",),
        ),
        "paper": replace(
            PAPER,
            departures=(
                "this scale has never been run",
                "50,000 sentences of all of bank/ for a number of WikiMatrix and NewsCrawl that is "
                "not published",
            ),
        ),
    },
    models=MODELS,
    departures=("nobody reads the candidates: the share of high quality alone ranks the pairs",),
)
