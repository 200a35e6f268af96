"""Write the pages of rewrites, of a recipe's heat maps, and of a rewriter's corpus and training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from tilth.data import load_folder
from tilth.paraphrase.candidates import BINS
from tilth.paraphrase.settings import FEWER
from tilth.paraphrase.tags import CELLS, MEANINGS, MOST_MEANING, MOST_WORDING, WORDINGS, Cell
from tilth.report.charts import count_rows, curve_charts, gain_map, heat_map
from tilth.report.html import count_of, number, percent, write_page
from tilth.report.rewrites import DROPPED, RewriteExample, RewriteReport, read_rewrites
from tilth.report.run_reader import read_run, settings_facts, time_figure
from tilth.runs import finished_results

SHOWN_PAIRS = 3  # of each corner cell
_KEPT = (MEANINGS[0], MOST_MEANING, 0, MOST_WORDING)  # what the filter keeps
_CORNERS = tuple(
    Cell(meaning, wording)
    for meaning in (MEANINGS[-1], MEANINGS[0])
    for wording in (WORDINGS[0], WORDINGS[-1])
)
DROP_REASONS = {
    "empty": "no words in a text",
    "no text": "a text is missing or holds white space only",
    "too long": "a sentence is longer than the model reads",
    "no rewrite found": "nothing but the text itself came out",
    "low meaning": "nothing that came out reached the least meaning",
    "polarity": "what reached the least meaning says the opposite",
    "literal changed": "a URL, an address, a path or code came out otherwise",
    FEWER: "the search found no further one",
}


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A heat map of pairs by meaning and wording.

    Attributes:
        plane: pairs in bins of 5 points. # (20, 20)
        text: description for screen readers.
        cell: the requested cell, outlined.
    """

    name: str
    plane: NDArray[np.int64]
    text: str
    cell: Cell | None = None
    claim: ClassVar[str] = (
        "The similarity of sentences and their rewrites in meaning and in wording, from 0 to 100."
    )

    def draw(self) -> Markup:
        """Return it as a figure."""
        outline = None
        if cell := self.cell:
            outline = (cell.meaning, cell.meaning_end, cell.wording, cell.wording_end)
        return heat_map(self.plane, title=self.name, text=self.text, outline=outline)


@dataclass(frozen=True, slots=True)
class GainMap:
    """A map of the gain of each tag pair.

    Attributes:
        gains: in points. # (meanings, wordings)
    """

    name: str
    gains: Sequence[Sequence[float]]
    meanings: Sequence[int]
    wordings: Sequence[int]
    claim: ClassVar[str] = (
        "The gain of training with rewrites of each requested meaning and wording, in points."
    )

    def draw(self) -> Markup:
        """Return it as a figure."""
        return gain_map(
            np.array(self.gains), [f"meaning {one}" for one in self.meanings],
            [f"wording {one}" for one in self.wordings], title=self.name,
        )  # fmt: skip


def write_rewrite_report(folder: Path) -> Path:
    """Write RUN/report.html of a `tilth paraphrase FILE` run, finished or not; return its path."""
    report = read_rewrites(folder)
    summary, cell = report.summary, report.summary.cell
    counted = summary.pairs - summary.short
    title, asked, inside, maps = "Round trips", "translated and back", "", []
    if cell:
        title = f"Meaning {summary.asked_meaning:g}, wording {summary.asked_wording:g}"
        asked = f"asked for {cell.words}"
        inside = f"; {percent(summary.inside)} inside the asked cell"
        maps = [HeatMap("Asked for", asked_plane(cell), f"All at {cell.words}.").draw()]
    obtained = (
        f"Mean meaning {number(summary.meaning, 1)}, mean wording {number(summary.wording, 1)}"
        f"{inside}."
    )
    return write_page(
        folder / "report.html",
        "paraphrase",
        title=title,
        kind="report of rewrites",
        claim=f"{count_of(summary.kept, 'rewrite')} of {count_of(summary.rows, 'row')} by the "
        f"model {report.run['settings']['model']}, {asked}: the similarity of a rewrite "
        "and its source, from 0 to 100.",
        notices=report.notices,
        figures=list(_figures(report)),
        made=settings_facts(report.run),
        maps=[*maps, HeatMap("Obtained", summary.plane, obtained, cell).draw()],
        counted=counted,
        caption=f"Of {count_of(counted, 'pair')} of texts with 4 words or more",
        lines=[line for line in summary.lines() if not line[0].startswith(DROPPED)],
        drops=count_rows(
            summary.dropped, summary.asked_rewrites, means=DROP_REASONS, kind="bar drop"
        ),
        examples=[_example_table(*one) for one in _examples(report, counted)],
    )


def write_map_report(
    file: Path,
    maps: Sequence[HeatMap | GainMap],
    *,
    title: str,
    facts: Sequence[tuple[str, str]],
    head: Sequence[str],
    lines: Sequence[Sequence[str]],
    notes: Sequence[str],
) -> None:
    """Write a page with heat maps and a table.

    Args:
        file: written atomically.
        head: column headings of the table.
        lines: table rows, the name first.
        notes: sentences at the foot.
        facts: name and value: the source, the command, the models.
    """
    write_page(
        file,
        "maps",
        title=title,
        kind="report of meaning and wording",
        claim=maps[0].claim,
        made=list(facts),
        maps=[one.draw() for one in maps],
        head=head,
        lines=lines,
        notes=notes,
    )


def asked_plane(cell: Cell) -> NDArray[np.int64]:
    """Return the meaning and wording bins that a cell covers, as ones, (20, 20)."""
    width = 100 // BINS
    plane = np.zeros((BINS, BINS), np.int64)
    plane[
        cell.meaning // width : cell.meaning_end // width,
        cell.wording // width : cell.wording_end // width,
    ] = 1
    return plane


def _figures(report: RewriteReport) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each headline figure."""
    summary = report.summary
    share = percent(summary.kept / summary.asked_rewrites)
    yield "rewrites", f"{summary.kept:,}", f"{share} of {summary.asked_rewrites:,} asked for"
    if summary.cell:
        yield "meaning", number(summary.meaning, 1), f"asked: {summary.asked_meaning:g}"
        yield "wording", number(summary.wording, 1), f"asked: {summary.asked_wording:g}"
        yield "inside the asked cell", percent(summary.inside), "both as asked"
        yield "wording near", percent(summary.near), "in the asked step or beside it"
    else:
        yield "meaning", number(summary.meaning, 1), "mean"
        yield "wording", number(summary.wording, 1), "mean"
    if time := time_figure(report.run, report.parts):
        yield time


def _examples(report: RewriteReport, counted: int) -> list[tuple[str, list[RewriteExample]]]:
    """Return titled lists of examples; a single list when there are few pairs."""
    if 0 < counted == report.summary.pairs <= len(report.nearest):
        return [("All, the nearest to the asked cell first", report.nearest)]
    lists = [
        ("Nearest to the asked cell", report.nearest),
        ("Sampled at random", report.sample),
        ("Farthest from the asked cell", report.farthest),
    ]
    return [(title, rows) for title, rows in lists if rows]


def _example_table(
    title: str, rows: Sequence[RewriteExample]
) -> tuple[str, dict[str, str], list[list[object]]]:
    """Return title, columns and rows of a table; no label column without labels."""
    columns = {"label": "chip", "text and rewrite": "pair", "meaning": "score", "wording": "score"}
    lines: list[list[object]] = [
        [row.label, (row.source, row.text), number(row.meaning, 1), number(row.wording, 1)]
        for row in rows
    ]
    if not any(row.label for row in rows):
        del columns["label"]
        lines = [line[1:] for line in lines]
    return title, columns, lines


def write_corpus_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished `tilth paraphrase corpus`; return its path."""
    folder = Path(run_folder)
    run, found = _finished(folder, "paraphrase corpus")
    kept, read, drawn = found["kept"], found["candidates"], found["drawn"]
    maps = [
        ("Candidates", "plane", f"{kept:,} of {read:,} pairs lie in the frame and are kept."),
        (
            "Sample to train on",
            "plane_drawn",
            f"{drawn['train']:,} pairs, drawn evenly over the cells in the frame.",
        ),
    ]
    return write_page(
        folder / "report.html",
        "corpus",
        title="Corpus of a rewriter",
        kind="report of tilth paraphrase corpus",
        claim="Pairs of a sentence and its rewrite, drawn evenly over 48 cells of meaning and "
        "wording: as many from each, twice as many where wording is below 10.",
        notices=found["notes"],
        figures=[
            ("pairs read", f"{read:,}", ""),
            ("kept", f"{kept:,}", "meaning above 70, wording up to 45"),
            ("to train on", f"{drawn['train']:,}", f"of {found['size']:,} wanted"),
            ("validation", f"{drawn['validation']:,}", "to stop training with"),
            ("test", f"{drawn['test']:,}", "to measure with"),
        ],
        made=settings_facts(run),
        maps=[
            heat_map(np.array(found[key]), title=title, text=text, outline=_KEPT)
            for title, key, text in maps
        ],
        drops=count_rows(found["left_out"], read, kind="bar drop"),
        head=["wording", *(f"meaning {low} to {low + 5}" for low in MEANINGS)],
        cells=_cell_lines(found["cells"]),
        examples=_corner_pairs(folder),
    )


def write_rewriter_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished `tilth paraphrase train`; return its path."""
    folder = Path(run_folder)
    run, found = _finished(folder, "paraphrase train")
    best, curve = found["best"], found["curve"]
    losses = {"validation": curve["validation_loss"], "training": curve["loss"]}
    drawing, rows = curve_charts(
        [(name, curve["step"], values, best["step"]) for name, values in losses.items()],
        title="mean loss of a token by step",
        places=3,
    )
    return write_page(
        folder / "report.html",
        "rewriter",
        title=f"Rewriter trained from {found['base']}",
        kind="report of tilth paraphrase train",
        claim="It reads two tags, of meaning and of wording, and a sentence; it writes a rewrite.",
        figures=[
            ("pairs", f"{found['pairs']['train']:,}", "to train on"),
            ("epochs", f"{found['epochs']:,}", f"the best: {best['epoch']}"),
            ("validation loss", f"{best['validation_loss']:.3f}", "of the weights kept"),
        ],
        made=settings_facts(run),
        all_curves=drawing,
        curves=rows,
    )


def _finished(folder: Path, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return read_run(folder, command), finished_results(folder)


def _cell_lines(cells: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the drawn pairs by wording (descending) and meaning."""
    held = {(cell["meaning"], cell["wording"]): cell for cell in cells}
    lines: list[list[Any]] = []
    for wording in reversed(WORDINGS):
        line: list[Any] = [f"{wording} to {Cell(MEANINGS[0], wording).wording_end}"]
        for meaning in MEANINGS:
            cell = held[meaning, wording]
            mark = "*" if cell["train"] < cell["wanted"] else ""
            line.append((f"{cell['train']:,}{mark}", f"of {cell['had']:,}"))
        lines.append(line)
    return lines


def _corner_pairs(folder: Path) -> list[tuple[str, list[list[Any]]]]:
    """Return the first pairs of each corner cell; the set's order is a seeded draw."""
    rows = load_folder(folder, "train").with_format("arrow")
    tags = np.array([cell.tags for cell in CELLS])
    found = np.array(rows.select_columns(["tags"])[:]["tags"].to_pylist())
    lists = []
    for cell in _CORNERS:
        places = np.flatnonzero(found == tags[CELLS.index(cell)])[:SHOWN_PAIRS]
        if len(places):
            pairs = [
                [(row["text_a"], row["text_b"]), number(row["meaning"], 1),
                 number(row["wording"], 1)]
                for row in rows[places].to_pylist()
            ]  # fmt: skip
            lists.append((cell.words.capitalize(), pairs))
    return lists
