"""The pages of a rewriter's corpus, what there was and what was drawn, and of its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tilth.data import load_folder
from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.paraphrase.tags import (
    CELLS,
    MEANINGS,
    MOST_MEANING,
    MOST_WORDING,
    WORDINGS,
    Cell,
)
from tilth.report.charts import ChartRow, all_curves, curve_chart, drop_rows, heat_map, scale_over
from tilth.report.figures import number
from tilth.report.generation import flat_settings
from tilth.report.html import SHOWN_LABELS, template
from tilth.runs import read_results, read_run_json

SHOWN_PAIRS = 3  # of each corner cell
_CORNERS = tuple(
    Cell(meaning, wording)
    for meaning in (MEANINGS[-1], MEANINGS[0])
    for wording in (WORDINGS[0], WORDINGS[-1])
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The part of the plane that the filter keeps."""

    meaning: int = MEANINGS[0]
    meaning_end: int = MOST_MEANING
    wording: int = 0
    wording_end: int = MOST_WORDING


def write_corpus_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished run of `tilth paraphrase corpus`; return where it lies.

    Raises:
        InputError: the folder holds no such run.
        TilthError: the file cannot be written.
    """
    folder = Path(run_folder)
    asked, found = _read(folder, "paraphrase corpus")
    kept, read = found["kept"], found["candidates"]
    drawn = found["drawn"]
    figures = [
        ("pairs read", f"{read:,}", ""),
        ("kept", f"{kept:,}", "meaning above 70, wording up to 45"),
        ("to train on", f"{drawn['train']:,}", f"of {found['size']:,} wanted"),
        ("validation", f"{drawn['validation']:,}", "to stop training with"),
        ("test", f"{drawn['test']:,}", "to measure with"),
    ]
    left_out = found["left_out"]
    return _write(
        folder,
        title="Corpus of a rewriter",
        claim=(
            "Pairs of a sentence and its rewrite, drawn evenly over 48 cells of meaning and "
            "wording: as many from each, twice as many where wording is below 10."
        ),
        figures=figures,
        notes=found["notes"],
        maps=[
            heat_map(
                np.array(found["plane"]),
                title="What there was",
                text=f"{kept:,} of {read:,} pairs lie in the frame and are kept.",
                outline=_Kept(),
            ),
            heat_map(
                np.array(found["plane_drawn"]),
                title="What was drawn to train on",
                text=f"{drawn['train']:,} pairs, drawn evenly over the cells in the frame.",
                outline=_Kept(),
            ),
        ],
        drops=drop_rows(left_out, read),
        grid=_grid(found["cells"]),
        examples=_examples(folder),
        curves=[],
        behind=Markup(""),
        asked=asked,
    )


def write_rewriter_report(run_folder: str | Path) -> Path:
    """Write RUN/report.html of a finished `tilth paraphrase train`; return where it lies.

    Raises:
        InputError: the folder holds no such run.
        TilthError: the file cannot be written.
    """
    folder = Path(run_folder)
    asked, found = _read(folder, "paraphrase train")
    best, curve = found["best"], found["curve"]
    losses = [("validation", curve["validation_loss"]), ("training", curve["loss"])]
    scale = scale_over((value for _, values in losses for value in values), zero=False)
    epochs = curve["step"]
    last = max(epochs)
    rows = []
    for name, values in losses:
        at_best = dict(zip(epochs, values, strict=True))[best["step"]]
        rows.append(
            ChartRow(
                name=name,
                value=number(at_best, 3),
                note=f"kept, epoch {best['epoch']}",
                chart=curve_chart(
                    epochs,
                    values,
                    scale,
                    last=last,
                    best=best["step"],
                    behind="all",
                    title=f"Loss on the {name} pairs by step",
                    text=f"{len(values)} epochs, from {values[0]:.3f} to {values[-1]:.3f}; kept: "
                    f"epoch {best['epoch']} with {at_best:.3f}",
                ),
            )
        )
    return _write(
        folder,
        title=f"Rewriter trained from {found['base']}",
        claim="It reads two tags, of meaning and of wording, and a sentence; it writes a rewrite.",
        figures=[
            ("pairs", f"{found['pairs']['train']:,}", "to train on"),
            ("epochs", f"{found['epochs']:,}", f"the best: {best['epoch']}"),
            ("validation loss", f"{best['validation_loss']:.3f}", "of the weights kept"),
        ],
        notes=[],
        maps=[],
        drops=[],
        grid=[],
        examples=[],
        curves=rows,
        behind=all_curves(((epochs, v) for _, v in losses), scale, last=last, name="all"),
        asked=asked,
    )


def _read(folder: Path, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = read_run_json(folder)
    if asked["command"] != command:
        raise InputError(f"{folder}: holds a run of `tilth {asked['command']}`, not of {command}")
    found = read_results(folder)
    if found is None:
        raise InputError(f"{folder}: no readable results.json: run `tilth {command}` to its end")
    return asked, found


def _grid(cells: Sequence[dict[str, Any]]) -> list[tuple[str, list[tuple[str, str, str, bool]]]]:
    """Return for each wording, highest first: its name, and of each meaning name, counts, short."""
    held = {(cell["meaning"], cell["wording"]): cell for cell in cells}
    lines = []
    for wording in reversed(WORDINGS):
        end = Cell(MEANINGS[0], wording).wording_end
        entries = []
        for meaning in MEANINGS:
            cell = held[meaning, wording]
            entries.append(
                (
                    f"meaning {meaning} to {meaning + 5}",
                    f"{cell['train']:,}",
                    f"of {cell['had']:,}",
                    cell["train"] < cell["wanted"],
                )
            )
        lines.append((f"{wording} to {end}", entries))
    return lines


def _examples(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
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
            lists.append((title, rows[places].to_pylist()))
    return lists


def _write(folder: Path, *, asked: dict[str, Any], **parts: Any) -> Path:
    versions = ", ".join(f"{name} {v}" for name, v in (asked.get("versions") or {}).items())
    page = template("corpus.html.jinja").render(
        **parts,
        meanings=[f"{meaning} to {meaning + 5}" for meaning in MEANINGS],
        command=f"tilth {asked['command']}",
        made=[
            ("begun", str(asked.get("created", ""))),
            *flat_settings(asked["settings"]),
            ("versions", versions),
        ],
        shown=SHOWN_LABELS,
        label_width="auto",
    )
    data = page.lstrip().encode("utf-8", errors="replace")
    atomic_write(folder / "report.html", lambda out: out.write(data))
    return folder / "report.html"
