"""Write the pages of a rewriter's corpus and of its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilth.data import load_folder
from tilth.errors import InputError
from tilth.paraphrase.tags import CELLS, MEANINGS, MOST_MEANING, MOST_WORDING, WORDINGS, Cell
from tilth.report.charts import count_rows, curve_charts, heat_map
from tilth.report.html import number, write_page
from tilth.report.run_reader import read_run, settings_facts
from tilth.runs import read_results

SHOWN_PAIRS = 3  # of each corner cell
_KEPT = (MEANINGS[0], MOST_MEANING, 0, MOST_WORDING)  # what the filter keeps
_CORNERS = tuple(
    Cell(meaning, wording)
    for meaning in (MEANINGS[-1], MEANINGS[0])
    for wording in (WORDINGS[0], WORDINGS[-1])
)


def write_corpus_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished `tilth paraphrase corpus`; return its path."""
    folder = Path(run_folder)
    run, found = _read(folder, "paraphrase corpus")
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
        examples=_examples(folder),
    )


def write_rewriter_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished `tilth paraphrase train`; return its path."""
    folder = Path(run_folder)
    run, found = _read(folder, "paraphrase train")
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
        notices=[],
        figures=[
            ("pairs", f"{found['pairs']['train']:,}", "to train on"),
            ("epochs", f"{found['epochs']:,}", f"the best: {best['epoch']}"),
            ("validation loss", f"{best['validation_loss']:.3f}", "of the weights kept"),
        ],
        made=settings_facts(run),
        all_curves=drawing,
        curves=rows,
    )


def _read(folder: Path, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    run = read_run(folder, command)
    found = read_results(folder)
    if found is None:
        raise InputError(f"{folder}: no readable results.json: run `tilth {command}` to its end")
    return run, found


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


def _examples(folder: Path) -> list[tuple[str, list[list[Any]]]]:
    """Return the first pairs of each corner cell; the set's order is a seeded draw."""
    rows = load_folder(folder, "train").with_format("arrow")
    tags = np.array([cell.tags for cell in CELLS])
    found = np.array(rows.select_columns(["tags"])[:]["tags"].to_pylist())
    lists = []
    for cell in _CORNERS:
        places = np.flatnonzero(found == tags[CELLS.index(cell)])[:SHOWN_PAIRS]
        if len(places):
            title = (
                f"Meaning {cell.meaning} to {cell.meaning_end}, wording {cell.wording} to "
                f"{cell.wording_end}"
            )
            pairs = [
                [(row["text_a"], row["text_b"]), number(row["meaning"], 1),
                 number(row["wording"], 1)]
                for row in rows[places].to_pylist()
            ]  # fmt: skip
            lists.append((title, pairs))
    return lists
