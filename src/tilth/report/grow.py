"""Write the page of `tilth grow`: what each way was worth, the curve, errors, what to label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilth.data.sources import folder_configs, load_folder
from tilth.report.classifier import (
    calibration_lines,
    class_lines,
    confusion_counts,
    error_texts,
    figure_chart,
    numbered,
)
from tilth.report.html import duration, number, percent, write_page
from tilth.report.run_reader import read_run, settings_facts
from tilth.report.systems import (
    METRICS,
    figure,
    figure_cell,
    figures_of,
    gain_name,
    interval,
    system_line,
)
from tilth.runs import finished_results

_READ = 4  # training rows of each origin


def write_grow_report(folder: Path) -> Path:
    """Write RUN/report.html of a run of `tilth grow`, also of one that goes on; return its path."""
    run = read_run(folder, "grow")
    results = grow_results(folder)
    tested = results.get("tested")
    own = results.get("measured") or {}
    head, lines = _tested_lines(tested)
    arms = [one for one in results["arms"] if not one["curve"]]
    gains = [(one["name"], one["gain"]) for one in arms if one["gain"]]
    return write_page(
        folder / "report.html",
        "grow",
        title=f"Grown from {_given(run['settings'])}",
        kind="report of a search",
        claim=_claim(results),
        notices=[] if results["ended"] else ["The search goes on: this is the best so far."],
        figures=list(_figures(results)),
        made=settings_facts(run),
        notes=results["notes"],
        arms=[_arm_line(one) for one in arms],
        gains=figure_chart("gain", gains, "+") if gains else None,
        names=numbered(name for name, _ in gains),
        origins=[
            [
                one["origin"],
                f"{results['origins'][one['origin']]:,}",
                percent(one["share"]),
                figure_cell(one["cost"], "+"),
            ]
            for one in results["shares"]
        ],
        times=results["times"],
        curve=_curve(results),
        tested=lines,
        test_head=head,
        test_rows="" if tested is None else f"{tested['n']:,} test rows, measured once; x 100",
        classes=class_lines([own["classes"]]) if own else [],
        confusion=confusion_counts(own),
        calibration=calibration_lines(own),
        own=results["arm"],
        to_label=[
            [one["text"], one["predicted"], number(one["confidence"], 2)]
            for one in results.get("to_label", [])
        ],
        texts=list(error_texts(tested or results, own)) if own else [],
        metric=_metric(results).capitalize(),
        reference=results["reference"],
        learnt=_learnt(folder),
    )


def _given(settings: Mapping[str, Any]) -> str:
    names = [settings.get("train"), *(settings.get("raw") or []), settings.get("labels")]
    return ", ".join(str(name) for name in names if name)


def grow_results(folder: Path) -> dict[str, Any]:
    """Return the results.json of a run that has kept a model."""
    return finished_results(folder, {"task": str, "arm": str, "arms": list})


def _claim(results: Mapping[str, Any]) -> str:
    ended = f"The search ended: {results['ended']}. " if results["ended"] else ""
    return f"{ended}Kept: {results['arm']}, base {results['base']}."


def _metric(results: Mapping[str, Any]) -> str:
    return METRICS[results["task"]]


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each headline figure."""
    metric = _metric(results)
    arms = {one["name"]: one for one in results["arms"]}
    best, tested = arms.get(results["arm"]), results.get("tested")
    if best:
        yield metric, figure(best["score"]), f"95%: {interval(best['score'])}"
        if best["gain"]:
            yield (
                gain_name(results["reference"], best["gain"]["value"]), figure(best["gain"], "+"),
                f"95%: {interval(best['gain'], '+')}",
            )  # fmt: skip
    if tested:
        scores = tested["systems"][0]["scores"]
        score = scores[next(iter(figures_of(scores)))]
        yield f"test {metric}", figure(score), f"95%: {interval(score)}"
    yield "time", duration(results["spent"]), f"of {duration(results['budget'])}"
    if (near := results.get("domain")) and "own" in near:
        yield "similarity to raw text", number(near["raw"], 2), f"to one another: {near['own']:.2f}"
        if "apart" in near:
            yield "raw text told from the task's", number(near["apart"], 2), "AUC; 0.5: not at all"


def _arm_line(one: Mapping[str, Any]) -> list[Any]:
    return [
        one["name"], f"{one['trainings']:,}", figure_cell(one["score"]),
        figure_cell(one["gain"], "+"), duration(one["seconds"]),
    ]  # fmt: skip


def _curve(results: Mapping[str, Any]) -> list[list[Any]]:
    """Return the share of the labelled rows, and the accuracy and its gap to all of them."""
    arms = results["arms"]
    return [
        [percent(one["share"]), figure_cell(one["score"]), figure_cell(one["gain"], "+")]
        for one in sorted(arms, key=lambda one: float(one["share"]))
        if one["curve"] or one["name"] == results["reference"]
    ] if any(one["curve"] for one in arms) else []  # fmt: skip


def _tested_lines(tested: Mapping[str, Any] | None) -> tuple[list[str], list[list[Any]]]:
    """Return head and lines of the systems' figures on the test set."""
    if tested is None:
        return [], []
    figures = figures_of(tested["systems"][0]["scores"])
    lines = [system_line(one["name"], one["scores"], figures) for one in tested["systems"]]
    lines += [
        system_line(gain_name(name, gain[next(iter(figures))]["value"]), gain, figures, "+")
        for name, gain in tested["differences"].items()
    ]
    return ["x 100", *figures.values()], lines


def _learnt(folder: Path) -> list[tuple[str, list[list[Any]]]]:
    """Return a few training rows of each origin: text, label, probability; of pairs the label."""
    if not folder_configs(folder / "dataset"):
        return []
    rows, found = load_folder(folder / "dataset"), dict[str, list[list[Any]]]()
    for row in rows:
        some = found.setdefault(row["origin"], [])
        if len(some) < _READ and "text" in row:
            label = rows.features["label"].names[row["label"]]
            some.append([row["text"], label, number(max(row["probabilities"]), 2)])
        elif len(some) < _READ:
            some.append([(row["text_a"], row["text_b"]), "", number(row["label"], 2)])
    return list(found.items())
