"""The page of a training of a classifier or tagger: how good it is, and what was gained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from markupsafe import Markup

from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.report.charts import (
    ChartRow,
    Column,
    all_curves,
    bar_chart,
    count_of,
    curve_chart,
    scale_over,
)
from tilth.report.figures import number, percent
from tilth.report.generation import flat_settings
from tilth.report.html import SHOWN_LABELS, template
from tilth.report.run_reader import command_of, part_files, read_run_json
from tilth.report.systems import (
    BASELINES,
    figure,
    figures_of,
    gain_lines,
    gains_of,
    interval,
    sureness,
    systems_of,
    tested_on,
    validation_words,
)
from tilth.runs import read_results

COMMANDS = ("train classifier", "train tagger")
MOST_CONFUSED = 20  # classes; more make no table that can be read
SCALE_WIDTH = 28  # pixels


def write_classifier_report(run_folder: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the page of a training of a classifier or tagger and return where it lies.

    Args:
        run_folder: of `tilth train classifier` or `tilth train tagger`.
        out: the file to write; RUN/report.html when None.

    Raises:
        InputError: the folder holds no such run, or it is not finished.
        TilthError: the file cannot be written.
    """
    folder = Path(run_folder)
    command = command_of(folder)
    asked = read_run_json(folder, command=command if command in COMMANDS else COMMANDS[0])
    page = _render(folder, asked, training_results(folder))
    target = Path(out) if out is not None else folder / "report.html"
    data = page.encode("utf-8", errors="replace")
    atomic_write(target, lambda file: file.write(data))
    return target


def training_results(folder: Path) -> dict[str, Any]:
    """Return the results.json of a training.

    Raises:
        InputError: it is not there, or damaged.
    """
    found = read_results(folder, {"measure": str, "best": dict, "seeds": list})
    if found is None:
        raise InputError(
            f"{folder}: the training is not finished, or its results.json is damaged: the same "
            "command goes on where it stopped"
        )
    return found


def _render(folder: Path, asked: dict[str, Any], results: dict[str, Any]) -> str:
    settings, tested = asked["settings"], results.get("tested")
    systems = systems_of(results)
    trained = [system for system in systems if system["name"] not in BASELINES]
    head, lines = gain_lines(results)
    behind, curves = _curves(folder, results)
    own = tested["systems"][0]["scores"] if tested else {}
    page = template("classifier.html.jinja").render(
        title=_title(folder, asked, results),
        claim=_claim(asked, results),
        figures=_figures(results),
        caption=tested_on(results),
        head=head,
        lines=lines,
        notes=[*results.get("warnings", []), *results.get("notes", [])],
        charts=_charts(systems),
        systems=len(systems),
        class_head=[system["name"] for system in trained],
        classes=_classes(trained),
        confusion=_confusion(own),
        calibration=_calibration(own),
        changed=(tested or {}).get("changed") or {},
        wrong=(tested or {}).get("wrong") or [],
        own=tested["systems"][0]["name"] if tested else "",
        other=tested["systems"][1]["name"] if tested and len(systems) > 1 else "",
        wrong_head=("missed", "invented") if "f1" in own else ("right", "answered"),
        behind=behind,
        curves=curves,
        validation=validation_words(results),
        made=_made(asked, settings, results),
        label_width="auto",
        scale_width=SCALE_WIDTH,
        colours=1,
        shown=SHOWN_LABELS,
    )
    return page.lstrip()


def _title(folder: Path, asked: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    what = "Tagger" if asked["command"] == "train tagger" else "Classifier"
    return f"{what} trained on {results.get('source', folder)}"


def _claim(asked: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    settings, rows = asked["settings"], results.get("rows")
    classes = [name for name in settings["labels"] if name != "O"]
    words = f"The base {settings['base']} with {count_of(len(classes), 'output')}"
    if rows is None:
        return f"{words}, trained on labelled rows."
    more = ""
    if results["with_labelled"]:
        more = f" and {count_of(rows['labelled'], 'labelled row')}"
        more += f", {rows['times']} times each" * (rows["times"] > 1)
    left = f"; {rows['left out']:,} that stand in the test set were left out" * (
        rows["left out"] > 0
    )
    return f"{words}, trained on {count_of(rows['retrieved'], 'retrieved sentence')}{more}{left}."


def _figures(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers at the top."""
    rows: list[tuple[str, str, str]] = []
    tested, best = results.get("tested"), results["best"]
    if tested:
        scores = tested["systems"][0]["scores"]
        for key, name in figures_of(scores).items():
            ends = interval(scores[key])
            rows.append((name, figure(scores[key]), f"95%: {ends}" if ends else ""))
        key = next(iter(figures_of(scores)))
        for name, gain in gains_of(results).items():
            rows.append((name, figure(gain[key], "+"), ", ".join(sureness(gain[key]))))
    note = f"step {best['step']:,}" + (f" of seed {best['seed']}" if _several(results) else "")
    rows.append((validation_words(results), number(best["score"], 1), note))
    return rows


def _several(results: Mapping[str, Any]) -> bool:
    return len(results["seeds"]) > 1


def _charts(systems: Sequence[Mapping[str, Any]]) -> list[tuple[str, Markup]]:
    """Return a chart of each figure, a bar for each system."""
    if len(systems) < 2:
        return []
    charts = []
    for key, name in figures_of(systems[0]["scores"]).items():
        columns = []
        for place, system in enumerate(systems, start=1):
            found = system["scores"][key]
            ends = interval(found)
            text = f"{system['name']}: {figure(found)}" + (f", {ends}" if ends else "")
            columns.append(
                Column(str(place), text, found["value"], found["low"], found["high"], "colour-0")
            )
        scale = scale_over(
            (value for one in columns for value in (one.value, one.low, one.high)), zero=True
        )
        text = "; ".join(column.text for column in columns)
        charts.append((name, bar_chart(columns, scale, title=name, text=text)))
    return charts


def _classes(systems: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Return each class, the rows that have it, and its F1 by each system."""
    if not systems:
        return []
    by_system = [system["scores"]["classes"] for system in systems]
    names = dict.fromkeys(name for found in by_system for name in found)
    return [
        (
            name,
            f"{max(found[name]['n'] for found in by_system if name in found):,}",
            [number((found.get(name) or {}).get("f1"), 1) for found in by_system],
        )
        for name in names
    ]


def _confusion(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the names, and of each right class how often each answer was given."""
    counts = scores.get("confusion")
    if counts is None or len(counts) > MOST_CONFUSED:
        return None
    rows = []
    for name, row in zip(scores["classes"], counts, strict=True):
        total = sum(row)
        rows.append((name, [(count, count / total if total else 0.0) for count in row]))
    return {"names": list(scores["classes"]), "rows": rows}


def _calibration(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how far probabilities are off, and of each bin what was said and what held."""
    found = scores.get("calibration")
    if found is None:
        return None
    rows = [
        (
            f"{one['low']:.2f} to {one['high']:.2f}", f"{one['n']:,}", percent(one["probability"]),
            percent(one["right"]),
        )
        for one in found["bins"]
    ]  # fmt: skip
    return {"error": f"{found['error']:.3f}", "rows": rows}


def _curves(folder: Path, results: Mapping[str, Any]) -> tuple[Markup, list[ChartRow]]:
    """Return the drawing of all trainings, and one row for each that shows it before them."""
    tables = [pq.read_table(part).to_pydict() for part in part_files(folder)]
    scale = scale_over((score for one in tables for score in one["score"]), zero=False)
    last = max((step for one in tables for step in one["step"]), default=1)
    drawing = all_curves(((one["step"], one["score"]) for one in tables), scale, last=last,
                         name="all")  # fmt: skip
    rows = []
    for one, seed in zip(tables, results["seeds"], strict=False):
        text = f"kept: step {seed['step']:,} with {number(seed['score'], 1)}"
        name = f"seed {seed['seed']}"
        chart = curve_chart(
            one["step"], one["score"], scale, last=last, best=seed["step"], behind="all",
            title=f"{name}: {validation_words(results)} by step", text=text,
        )  # fmt: skip
        rows.append(ChartRow(name, number(seed["score"], 1), f"step {seed['step']:,}", chart))
    return drawing, rows


def _made(
    asked: Mapping[str, Any], settings: Mapping[str, Any], results: Mapping[str, Any]
) -> list[tuple[str, str]]:
    versions = ", ".join(f"{name} {v}" for name, v in (asked.get("versions") or {}).items())
    alone = results.get("baseline")
    facts = [("begun", str(asked.get("created", ""))), *flat_settings(settings)]
    if alone:
        facts.append(
            ("labelled rows alone", f"{alone['epochs']:g} epochs, the steps of the other, or 50")
        )
    return [*facts, ("versions", versions)]
