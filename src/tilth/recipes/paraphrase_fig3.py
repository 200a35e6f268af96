"""Controlled paraphrase, Fig. 3: what a rewriter gives, tag pair by tag pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa

from tilth.paraphrase.dataset import run_paraphrase
from tilth.paraphrase.decoding import Search, decode
from tilth.paraphrase.rewrite import LONGEST, SHORTEST, Rewriter, load_paraphraser
from tilth.paraphrase.settings import Asked
from tilth.paraphrase.similarity import meaning as meanings_of
from tilth.paraphrase.similarity import wording as wordings_of
from tilth.paraphrase.tags import CELLS, Cell, asked_cell, cells_of, near
from tilth.recipes.rewriting import PART, Pairs, hash_of, pairs_of, round_trips, sentences
from tilth.recipes.steps import Result, Steps
from tilth.recipes.table import Cell as Figure
from tilth.recipes.table import Row, Table
from tilth.report.maps import PlaneMap
from tilth.report.obtained import RewriteSummary
from tilth.report.rewrites import rewrite_summary
from tilth.runs import Progress, Run

PAIRS = tuple(product((95, 70), (5, 20, 40)))  # meaning, wording; the paper shows the first three
TRIES = 5
TAGS_ALONE = "tags alone"
WAYS = {"steered": False, "checked": True}  # whether what lies outside is tried again
GREEDY = "greedy round trip"
COLUMNS = ("meaning", "wording", "inside the cell, %", "wording near, %", "same as source, %")


def run(steps: Steps) -> Result:
    """Rewrite the same sentences at each tag pair, searched for in three ways, and count."""
    texts = sentences(steps)
    rewriter = load_paraphraser(
        steps.scale.rewriter, scorer=steps.scale.scorer, device=steps.settings.device
    )
    rows, maps = [], []
    short: dict[str, int] = {}

    def enter(name: str, values: list[float | None], found: Pairs | RewriteSummary,
              cell: Cell | None = None) -> None:  # fmt: skip
        rows.append(Row(name, _cells(values)))
        title = name[0].upper() + name[1:]
        maps.append(PlaneMap(title, found.plane, _said(rows[-1]), cell))

    for meaning, wording in PAIRS:
        name, cell = f"meaning {meaning}, wording {wording}, {TAGS_ALONE}", asked_cell(
            meaning, wording
        )  # fmt: skip
        pairs = _best_beams(steps, rewriter, texts, cell)
        enter(name, _values_of(pairs, cell), pairs, cell)
        short[name] = pairs.short
    for (way, check), (meaning, wording) in product(WAYS.items(), PAIRS):
        asked = Asked(
            meaning, wording, check=check, tries=TRIES, beams=steps.scale.beams, part_size=PART
        )
        folder = steps.at(f"rewrite-{meaning}-{wording}-{way}")
        run_paraphrase([{"text": text} for text in texts], rewriter, asked, folder,
                       quiet=steps.settings.quiet)  # fmt: skip
        summary = rewrite_summary(folder)
        name = f"meaning {meaning}, wording {wording}, {way}"
        enter(name, _values(summary), summary, asked_cell(meaning, wording))
        short[name] = summary.short + sum(summary.dropped.values())
    greedy = round_trips(steps, texts, greedy=True)
    enter(GREEDY, _values_of(greedy, None), greedy)
    table = Table("Controlled paraphrase, Fig. 3", COLUMNS, rows, _notes(steps, texts, short))
    return Result(table, maps=maps)


def _best_beams(steps: Steps, rewriter: Rewriter, texts: Sequence[str], cell: Cell) -> Pairs:
    """Rewrite as in the paper: the best beam counts, be it the sentence itself or far from it."""
    model = replace(rewriter.seq2seq, prefix=f"{cell.tags} ")
    search = Search(beams=steps.scale.beams, shortest=SHORTEST, longest=LONGEST)
    starts = range(0, len(texts), PART)
    run = Run.open(
        steps.at(f"rewrite-{cell.meaning}-{cell.wording}-best-beam"),
        command="recipe rewrite",
        settings={"cell": cell.tags, "beams": search.beams},
        fingerprints={
            "texts": hash_of("\n".join(texts)), "model": rewriter.seq2seq.fingerprint,
            "scorer": rewriter.scorer.fingerprint,
        },
        parts=len(starts),
    )  # fmt: skip
    with run, Progress(len(starts), quiet=steps.settings.quiet, what="parts") as progress:
        for part in run.missing():
            some = texts[starts[part] : starts[part] + PART]
            best = [(found or [""])[0] for found in decode(model, some, search)]
            run.write_part(part, pa.table({
                "text_a": some, "text_b": best, "meaning": meanings_of(some, best, rewriter.scorer),
                "wording": wordings_of(some, best),
            }))  # fmt: skip
            progress.advance(1)
        return pairs_of(pa.concat_tables(run.read_part(part) for part in range(run.parts)))


def _values(summary: RewriteSummary) -> list[float | None]:
    shares = (summary.inside, summary.near, summary.same)
    return [
        summary.meaning, summary.wording,
        *(None if share is None else 100 * share for share in shares),
    ]  # fmt: skip


def _values_of(pairs: Pairs, cell: Cell | None) -> list[float | None]:
    if not len(pairs.meaning):
        return [None] * len(COLUMNS)
    means = [float(pairs.meaning.mean()), float(pairs.wording.mean())]
    shares: list[float | None] = [None, None]
    if cell is not None:
        inside = cells_of(pairs.meaning, pairs.wording) == CELLS.index(cell)
        beside = [near(one, cell) for one in pairs.wording.tolist()]
        shares = [100 * float(np.mean(inside)), 100 * float(np.mean(beside))]
    return [*means, *shares, 100 * pairs.same]


def _cells(values: Sequence[float | None]) -> dict[str, Figure]:
    named = zip(COLUMNS, values, strict=True)
    return {name: Figure(value) for name, value in named if value is not None}


def _said(row: Row) -> str:
    said = ", ".join(f"{name} {cell.value:.1f}" for name, cell in row.cells.items())
    return f"{said or 'Nothing to count'}."


def _notes(steps: Steps, texts: Sequence[str], short: Mapping[str, int]) -> list[str]:
    counts = sorted(set(short.values()))
    left = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    return [
        f"Of the same {len(texts):,} sentences of bank/; {left} of them are not counted, for "
        "want of a rewrite or of 4 words in a text.",
        f"Tags alone: the best of {steps.scale.beams} beams as it is, even the sentence itself, as "
        "in the paper; --no-steer takes the best in other words. Steered: searched at five costs "
        f"of copying, the nearest counts. Checked: up to {TRIES} such searches (--check).",
        "Inside the cell: meaning and wording both in the asked step. Wording near: in the asked "
        "step or one beside it. Same: but for case, punctuation and white space.",
        "Published: Fig. 3 is a picture without figures, of meaning 95 with wording 5, 20 and 40. "
        "In words: for each tag pair about the asked similarities come out.",
    ]
