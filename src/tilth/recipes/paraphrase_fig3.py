"""Controlled paraphrase, Fig. 3: meaning and wording of rewrites for each pair of control tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from tilth.paraphrase.paraphrase_set import run_paraphrase
from tilth.paraphrase.rewriter import load_paraphraser
from tilth.paraphrase.settings import RewriteSettings
from tilth.paraphrase.tags import asked_cell
from tilth.recipes.paraphrase import PART, ParaphraseSteps, round_trips, sentences
from tilth.recipes.recipe import Result
from tilth.recipes.table import Row, Table, TableCell
from tilth.report.paraphrase import HeatMap
from tilth.report.rewrites import RewriteSummary, rewrite_summary

PAIRS = tuple(product((95, 70), (5, 20, 40)))  # meaning, wording; the paper shows the first three
TRIES = 5
# Kind of search -> whether copying has a cost, whether rewrites outside the cell are tried again.
SEARCHES = {"tags alone": (False, False), "steered": (True, False), "checked": (True, True)}
GREEDY = "greedy round trip"
COLUMNS = ("meaning", "wording", "inside the cell, %", "wording near, %", "same as source, %")


def run(steps: ParaphraseSteps) -> Result:
    """Rewrite the same sentences at each tag pair with three kinds of search, and count."""
    texts = sentences(steps)
    rewriter = load_paraphraser(
        steps.scale.rewriter,
        scorer=steps.scale.scorer,
        polarity=False,
        device=steps.settings.device,
    )
    rows, maps = [], []
    short: dict[str, int] = {}
    for (way, (steer, check)), (meaning, wording) in product(SEARCHES.items(), PAIRS):
        asked = RewriteSettings(
            meaning, wording, min_meaning=0, steer=steer, tries=TRIES if check else 1,
            beams=steps.scale.beams, part_size=PART,
        )  # fmt: skip
        folder = steps.at(f"rewrite-{meaning}-{wording}-{way.replace(' ', '-')}")
        run_paraphrase([{"text": text} for text in texts], rewriter, asked, folder,
                       quiet=steps.settings.quiet)  # fmt: skip
        summary = rewrite_summary(folder)
        name = f"meaning {meaning}, wording {wording}, {way}"
        rows.append(Row(name, _cells(_values(summary))))
        maps.append(
            HeatMap(name[0].upper() + name[1:], summary.plane, _said(rows[-1]),
                     asked_cell(meaning, wording))
        )  # fmt: skip
        short[name] = summary.short + sum(summary.dropped.values())
    greedy = round_trips(steps, texts, greedy=True)
    means: list[float | None] = [None] * len(COLUMNS)
    if len(greedy.meaning):
        means = [greedy.meaning.mean(), greedy.wording.mean(), None, None, 100 * greedy.same]
    rows.append(Row(GREEDY, _cells(means)))
    maps.append(HeatMap("Greedy round trip", greedy.plane, _said(rows[-1])))
    table = Table("Controlled paraphrase, Fig. 3", COLUMNS, rows, _notes(steps, texts, short))
    return Result(table, maps=maps)


def _values(summary: RewriteSummary) -> list[float | None]:
    shares = (summary.inside, summary.near, summary.same)
    return [
        summary.meaning, summary.wording,
        *(None if share is None else 100 * share for share in shares),
    ]  # fmt: skip


def _cells(values: Sequence[float | None]) -> dict[str, TableCell]:
    named = zip(COLUMNS, values, strict=True)
    return {name: TableCell(float(value)) for name, value in named if value is not None}


def _said(row: Row) -> str:
    said = ", ".join(f"{name} {cell.value:.1f}" for name, cell in row.cells.items())
    return f"{said or 'Nothing to count'}."


def _notes(steps: ParaphraseSteps, texts: Sequence[str], short: Mapping[str, int]) -> list[str]:
    counts = sorted(set(short.values()))
    left = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return [
        f"Of the same {len(texts):,} sentences of bank/; {left} of them are not counted, for "
        "want of a rewrite or of 4 words in a text.",
        f"Tags alone: the best of {steps.scale.beams} beams, be it the sentence itself, as in the "
        "paper (--no-steer). Steered: searched at five costs of copying, the nearest counts. "
        f"Checked: up to {TRIES} such searches (--check). The paper has the first only. Nothing "
        "is left out for its meaning or polarity (--min-meaning 0 --no-polarity).",
        "Inside the cell: meaning and wording both in the asked step. Wording near: in the asked "
        "step or one beside it. Same: but for case, punctuation and white space.",
        "Published: Fig. 3 is a picture without figures, of meaning 95 with wording 5, 20 and 40. "
        "In words: for each tag pair about the asked similarities come out.",
    ]
