"""Write the page of a classifier or tagger training: scores, gains, confusion, curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from markupsafe import Markup

from tilth.metrics.scores import are_tags
from tilth.report.charts import ChartBar, ChartRow, bar_chart, curve_charts, scale_over
from tilth.report.html import count_of, number, percent, write_page
from tilth.report.run_reader import part_files, read_run, settings_facts
from tilth.report.systems import (
    BASELINES,
    comparison,
    figure,
    figure_cell,
    figures_of,
    gain_figures,
    interval,
    systems_of,
    tested_on,
    validation_words,
)
from tilth.runs import finished_results

COMMANDS = ("train classifier", "train tagger")
MOST_CONFUSED = 20  # classes; a larger table cannot be read


def write_classifier_report(folder: Path) -> Path:
    """Write RUN/report.html of a finished classifier or tagger training; return its path."""
    run = read_run(folder, *COMMANDS)
    results = training_results(folder)
    tested, systems = results.get("tested"), systems_of(results)
    trained = [system for system in systems if system["name"] not in BASELINES]
    own = tested["systems"][0]["scores"] if tested else {}
    head, lines, marks = comparison(results)
    drawing, curves = _curves(folder, results)
    what = "Tagger" if run["command"] == "train tagger" else "Classifier"
    return write_page(
        folder / "report.html",
        "classifier",
        title=f"{what} trained on {results.get('source', folder)}",
        kind="report of a training",
        claim=_claim(run["settings"], results),
        figures=list(_figures(results)),
        made=[*settings_facts(run), *_baseline_facts(results)],
        caption=tested_on(results),
        head=head,
        lines=lines,
        marks=marks,
        notes=[*results.get("warnings", []), *results.get("notes", [])],
        charts=_charts(systems),
        systems=f"{numbered(one['name'] for one in systems)}.",
        class_head=["class", "rows", *(system["name"] for system in trained)],
        classes=class_lines([system["scores"]["classes"] for system in trained]),
        confusion=confusion_counts(own),
        calibration=calibration_lines(own),
        own=systems[0]["name"] if systems else "",
        texts=list(error_texts(tested, own)) if tested else [],
        all_curves=drawing,
        curves=curves,
        validation=validation_words(results),
        validated=results["best"]["score"] is not None,
    )


def training_results(folder: Path) -> dict[str, Any]:
    """Return the results.json of a training."""
    return finished_results(folder, {"measure": str, "best": dict, "seeds": list})


def _claim(settings: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    names = settings["labels"]
    classes = [name for name in names if name != "O" or not are_tags(names)]
    words = f"The base {settings['base']} with {count_of(len(classes), 'output')}"
    rows = results.get("rows")
    if rows is None:
        return f"{words}, trained on labelled rows."
    words += f", trained on {count_of(rows['retrieved'], 'retrieved sentence')}"
    if results["with_labelled"]:
        words += f" and {count_of(rows['labelled'], 'labelled row')}"
        words += f", {rows['times']} times each" * (rows["times"] > 1)
    if rows["left out"]:
        words += f"; {rows['left out']:,} that stand in the test or validation set were left out"
    return f"{words}."


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each headline figure."""
    tested, best = results.get("tested"), results["best"]
    if tested:
        scores = tested["systems"][0]["scores"]
        for key, name in figures_of(scores).items():
            ends = interval(scores[key])
            yield name, figure(scores[key]), f"95%: {ends}" if ends else ""
        for name, value, note, _ in gain_figures(results):
            yield name, value, note
    seed = f" of seed {best['seed']}" if len(results["seeds"]) > 1 else ""
    yield validation_words(results), number(best["score"], 1), f"step {best['step']:,}{seed}"


def _baseline_facts(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    alone = results.get("baseline")
    words = "{:g} epochs: as many steps as the other training, at most 50 epochs"
    return [("labelled rows alone", words.format(alone["epochs"]))] if alone else []


def _charts(systems: Sequence[Mapping[str, Any]]) -> list[tuple[str, Markup]]:
    """Return a chart of each figure, a bar per system."""
    if len(systems) < 2:
        return []
    return [
        (name, figure_chart(name, [(one["name"], one["scores"][key]) for one in systems]))
        for key, name in figures_of(systems[0]["scores"]).items()
    ]


def figure_chart(
    title: str, named: Sequence[tuple[str, Mapping[str, Any]]], sign: str = ""
) -> Markup:
    """Return a bar for each named figure, with its interval, numbered as `numbered` says."""
    bars = []
    for place, (name, found) in enumerate(named, start=1):
        text = f"{name}: {', '.join(filter(None, figure_cell(found, sign)))}"
        bars.append(ChartBar(str(place), text, found["value"], found["low"], found["high"]))
    scale = scale_over((v for one in bars for v in (one.value, one.low, one.high)), zero=True)
    return bar_chart(bars, scale, title=title, text="; ".join(one.text for one in bars))


def numbered(names: Iterable[str]) -> str:
    """Return names with the numbers that they have under a chart."""
    return "; ".join(f"{place} {name}" for place, name in enumerate(names, start=1))


def class_lines(by_system: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return each class, its number of rows, and its F1 by each system."""
    lines = []
    for name in dict.fromkeys(name for found in by_system for name in found):
        rows = max(found[name]["n"] for found in by_system if name in found)
        scores = [number((found.get(name) or {}).get("f1"), 1) for found in by_system]
        lines.append([name, f"{rows:,}", *scores])
    return lines


def confusion_counts(scores: Mapping[str, Any]) -> list[tuple[str, list[int]]]:
    """Return the predicted counts of each gold class."""
    counts = scores.get("confusion")
    if counts is None or len(counts) > MOST_CONFUSED:
        return []
    return list(zip(scores["classes"], counts, strict=True))


def calibration_lines(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the calibration error, and mean probability and accuracy of each bin."""
    found = scores.get("calibration")
    if found is None:
        return None
    lines = [
        [f"{one['low']:.2f} to {one['high']:.2f}", f"{one['n']:,}", percent(one["probability"]),
         percent(one["right"])]
        for one in found["bins"]
    ]  # fmt: skip
    return {"error": found["error"], "lines": lines}


def error_texts(
    tested: Mapping[str, Any], scores: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, str], list[list[str]]]]:
    """Yield title, columns and rows of each table of examples."""
    changed = tested.get("changed") or {}
    own, *others = [system["name"] for system in tested.get("systems", ())] or [""]
    if others:  # none in results without a test set
        titles = {"mended": "Right by {0}, wrong by {1}", "spoilt": "Wrong by {0}, right by {1}"}
        columns = {"text": "wide", "right": "side", others[0]: "side", own: "side"}
        for key, title in titles.items():
            rows = [[row[name] for name in ("text", "right", "before", "now")]
                    for row in changed.get(key, ())]  # fmt: skip
            if rows:
                yield title.format(own, others[0]), columns, rows
    names = ("missed", "invented") if "f1" in scores else ("right", "answered")
    columns = {"text": "wide", names[0]: "side", names[1]: "side", "probability": "score"}
    wrong = [
        [row["text"], row["right"], row["answered"], number(row["probability"], 2)]
        for row in tested.get("wrong") or ()
    ]
    if wrong:
        yield "Most confidently wrong", columns, wrong


def _curves(folder: Path, results: Mapping[str, Any]) -> tuple[Markup, list[ChartRow]]:
    """Return the drawing of all trainings, and a row per training that highlights it."""
    tables = [pq.read_table(part).to_pydict() for part in part_files(folder)]
    curves = [
        (f"seed {seed['seed']}", one["step"], one["score"], seed["step"])
        for one, seed in zip(tables, results["seeds"], strict=False)
    ]
    return curve_charts(curves, title=f"{validation_words(results)} by step")
