"""Controlled paraphrase, Fig. 1: meaning and wording of round trips, greedy and with sampling."""

from __future__ import annotations

from collections.abc import Sequence

from tilth.paraphrase.tags import MEANINGS, MOST_WORDING
from tilth.recipes.paraphrase import MeasuredPairs, ParaphraseSteps, round_trips, sentences
from tilth.recipes.recipe import Result
from tilth.recipes.table import Row, Table, TableCell
from tilth.report.paraphrase import HeatMap

GREEDY, SAMPLED = "greedy round trip", "round trip with sampling"
_CORNER = 95  # lower bound of meaning and wording for the top right cell
COLUMNS = ("meaning", "wording", "high quality, %", "top right corner, %")


def run(steps: ParaphraseSteps) -> Result:
    """Make greedy and sampled round trips of the same sentences and count them by similarity."""
    texts = sentences(steps)
    found = {name: round_trips(steps, texts, greedy=name == GREEDY) for name in (GREEDY, SAMPLED)}
    rows = [Row(name, _cells(pairs)) for name, pairs in found.items()]
    maps = [
        HeatMap(f"{name[0].upper()}{name[1:]}", pairs.plane, _said(pairs))
        for name, pairs in found.items()
    ]
    table = Table("Controlled paraphrase, Fig. 1", COLUMNS, rows, _notes(texts, found))
    return Result(table, maps=maps)


def _cells(pairs: MeasuredPairs) -> dict[str, TableCell]:
    if not len(pairs.meaning):
        return {}
    good = (pairs.meaning > MEANINGS[0]) & (pairs.wording <= MOST_WORDING)
    corner = (pairs.meaning >= _CORNER) & (pairs.wording >= _CORNER)
    values = (
        pairs.meaning.mean(), pairs.wording.mean(), 100 * good.mean(), 100 * corner.mean()
    )  # fmt: skip
    return {name: TableCell(float(value)) for name, value in zip(COLUMNS, values, strict=True)}


def _said(pairs: MeasuredPairs) -> str:
    said = ", ".join(f"{name} {cell.value:.1f}" for name, cell in _cells(pairs).items())
    return f"{len(pairs.meaning):,} pairs: {said or 'nothing to count'}."


def _notes(texts: Sequence[str], found: dict[str, MeasuredPairs]) -> list[str]:
    counts = "; ".join(
        f"{name}: {len(pairs.meaning):,} pairs, {pairs.short:,} more with a text under 4 words"
        for name, pairs in found.items()
    )
    return [
        f"Of the same {len(texts):,} sentences of bank/. Counted: {counts}. Equal candidates "
        "of one sentence count once.",
        f"High quality, as the paper has it: meaning above {MEANINGS[0]} and wording at most "
        f"{MOST_WORDING}. Top right corner: both {_CORNER} or more, nearly the same text.",
        "Published: Fig. 1 is a picture without figures. In words: most round trips are close to "
        "their source in meaning but close in wording, too, and many lie in the top right corner; "
        "few are of high quality, and sampling is what section 3.2 adds for that.",
    ]
