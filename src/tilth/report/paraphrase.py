"""The page of a run of `tilth paraphrase`: asked against obtained, and rewrites to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.files import atomic_write
from tilth.paraphrase.filter import BINS
from tilth.paraphrase.tags import Cell
from tilth.report.charts import count_of, drop_rows, heat_map
from tilth.report.figures import number, percent
from tilth.report.generation import flat_settings, time_span
from tilth.report.html import SHOWN_LABELS, duration, template
from tilth.report.paraphrase_figures import DROPPED, RewriteExample, RewriteSummary
from tilth.report.paraphrase_rows import Gathered, gather_rewrites, rewrite_summary

__all__ = ["RewriteSummary", "render_rewrites", "rewrite_summary", "write_rewrite_report"]

_MEANS = {
    "empty": "no words in a text",
    "no text": "a text is missing or holds white space only",
    "too long": "a sentence is longer than the model reads",
    "no rewrite found": "nothing but the text itself came out",
    "low meaning": "nothing that came out reached the least meaning",
    "polarity": "what reached the least meaning says the opposite",
    "fewer rewrites than asked for": "the search found no further one",
}


def write_rewrite_report(run_folder: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the report of a run of `tilth paraphrase FILE` and return where it lies.

    Args:
        run_folder: of the run, finished or not.
        out: the file to write; RUN/report.html when None.

    Raises:
        InputError: the folder holds no such run, or no rows yet.
        TilthError: the file cannot be written.
    """
    gathered = gather_rewrites(run_folder)
    target = Path(out) if out is not None else Path(run_folder) / "report.html"
    page = render_rewrites(gathered).encode()
    atomic_write(target, lambda file: file.write(page))
    return target


def render_rewrites(gathered: Gathered) -> str:
    """Return the page of a run."""
    summary, settings = gathered.summary, gathered.asked["settings"]
    counted = summary.pairs - summary.short
    page = template("paraphrase.html.jinja").render(
        title=f"Meaning {summary.asked_meaning:g}, wording {summary.asked_wording:g}",
        claim=_claim(summary, settings),
        notices=gathered.notices,
        figures=_figures(gathered),
        asked_map=heat_map(
            asked_plane(summary.cell),
            title="Asked for",
            text=f"All at {_cell_words(summary.cell)}.",
        ),
        obtained_map=heat_map(
            summary.plane,
            title="Obtained",
            text=_obtained_words(summary),
            outline=summary.cell,
        ),
        counted=counted,
        lines=[line for line in summary.lines() if not line[0].startswith(DROPPED)],
        drops=drop_rows(summary.dropped, summary.asked_rewrites, means=_MEANS),
        examples_lists=_examples(gathered, counted),
        made=_made(gathered),
        label_width="9rem",
        shown=SHOWN_LABELS,
    )
    return page.lstrip()


def asked_plane(cell: Cell) -> NDArray[np.float64]:
    """Return where all pairs would lie if each were in the cell, spread evenly over it.

    Returns:
        Shares by meaning and wording in bins of 5 points, which sum to 1. # (20, 20)
    """
    width = 100 // BINS
    plane = np.zeros((BINS, BINS))
    plane[
        cell.meaning // width : cell.meaning_end // width,
        cell.wording // width : cell.wording_end // width,
    ] = 1 / cell.units
    return plane


def _claim(summary: RewriteSummary, settings: dict[str, Any]) -> str:
    cell = summary.cell
    return (
        f"{count_of(summary.kept, 'rewrite')} of {count_of(summary.rows, 'row')} by the model "
        f"{settings['model']}, asked for a meaning of {cell.meaning} to {cell.meaning_end} and a "
        f"wording of {cell.wording} to {cell.wording_end}: how alike a rewrite and its source are, "
        "from 0 to 100."
    )


def _figures(gathered: Gathered) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers at the top."""
    summary = gathered.summary
    share = percent(summary.kept / summary.asked_rewrites)
    figures = [
        ("rewrites", f"{summary.kept:,}", f"{share} of {summary.asked_rewrites:,} asked for"),
        ("meaning", number(summary.meaning, 1), f"asked: {summary.asked_meaning:g}"),
        ("wording", number(summary.wording, 1), f"asked: {summary.asked_wording:g}"),
        ("inside the asked cell", percent(summary.inside), "both as asked"),
        ("wording near", percent(summary.near), "in the asked step or beside it"),
    ]
    seconds, note = time_span(gathered.asked.get("created"), gathered.parts)
    if seconds:
        figures.append(("time", duration(seconds), note))
    return figures


def _cell_words(cell: Cell) -> str:
    return (
        f"meaning {cell.meaning} to {cell.meaning_end}, "
        f"wording {cell.wording} to {cell.wording_end}"
    )


def _obtained_words(summary: RewriteSummary) -> str:
    return (
        f"Mean meaning {number(summary.meaning, 1)}, mean wording {number(summary.wording, 1)}; "
        f"{percent(summary.inside)} inside the asked cell."
    )


def _examples(gathered: Gathered, counted: int) -> list[tuple[str, list[RewriteExample]]]:
    """Return titled lists; of a few pairs all in one."""
    if 0 < counted == gathered.summary.pairs <= len(gathered.nearest):
        return [("All, the nearest to the asked cell first", gathered.nearest)]
    lists = [
        ("Nearest to the asked cell", gathered.nearest),
        ("Drawn by the seed, not chosen", gathered.drawn),
        ("Farthest from the asked cell", gathered.farthest),
    ]
    return [(title, rows) for title, rows in lists if rows]


def _made(gathered: Gathered) -> list[tuple[str, str]]:
    """Return name and value of how the run was made."""
    asked = gathered.asked
    versions = ", ".join(f"{name} {v}" for name, v in (asked.get("versions") or {}).items())
    facts = [*flat_settings(asked["settings"]), ("versions", versions)]
    return [("begun", str(asked.get("created", ""))), *facts]
