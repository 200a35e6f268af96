"""Write the page of a `tilth augment` run: added sentences by class, and gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tilth.report.charts import ChartRow, bar, count_rows, histogram
from tilth.report.html import SHOWN, count_of, number, percent, write_page
from tilth.report.retrieved import BINS, AugmentReport, ClassCounts, read_augmentation
from tilth.report.run_reader import settings_facts
from tilth.report.systems import comparison, figure, figures_of, gain_figures, interval, tested_on

OPEN_CLASSES = 6  # with more classes, the sentences of each unfold
_TICKS = ("0", "0.25", "0.5", "0.75", "1")


def write_augment_report(folder: Path) -> Path:
    """Write RUN/report.html of a finished `tilth augment` run and return its path.

    Gains of trainings inside the run folder are shown first.
    """
    page = augment_page(read_augmentation(folder), str(folder))
    return write_page(folder / "report.html", "augment", **page)


def augment_page(run: AugmentReport, folder: str) -> dict[str, Any]:
    """Return the template values of a run's page."""
    settings, results = run.run["settings"], run.results
    side = "found by" if run.has_one_label else "teacher's label"
    more = run.query_count - len(run.queries)
    return {
        "run": run,
        "folder": folder,
        "title": f"{run.kept:,} sentences added",
        "kind": "report of an augmented set",
        "claim": f"{count_of(run.labelled, 'labelled row')} of {settings.get('train', 'a set')} "
        f"asked the bank {settings.get('bank', '')} for sentences like them; the teacher "
        f"{settings.get('teacher', '')} labelled what was found, and nobody has read it.",
        "notices": run.notices,
        "figures": list(_figures(run)),
        "made": settings_facts(run.run),
        "gains": [
            (f"{name}: {tested_on(found)}", *comparison(found),
             [*found.get("warnings", []), *found["notes"]])
            for name, found in run.students.items()
        ],
        "teacher": list(_teacher(results)),
        "classes": _class_lines(run.classes),
        "shortfall": list(_shortfall(results)),
        "confidence": _confidence_rows(run.classes),
        "similarity": _similarity_rows(run),
        "side": f"{side}, or why dropped",
        "sentences": [_sentences(one, run) for one in run.classes if one.predicted],
        "open_classes": OPEN_CLASSES,
        "drops": count_rows(run.drops, run.retrieved, kind="bar drop"),
        "sources": count_rows(run.sources),
        "left_out": [(why, f"{n:,}") for why, n in (results.get("left_out") or {}).items() if n],
        "query_caption": "The nearest sentences of each query, with their cosine"
        + (f"; {more:,} more queries are not shown" if more else ""),
    }  # fmt: skip


def _figures(run: AugmentReport) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and note of each headline figure."""
    share = f"{percent(run.kept / run.retrieved)} of the retrieved" if run.retrieved else ""
    yield "labelled rows", f"{run.labelled:,}", ""
    yield "queries", f"{run.query_count:,}", str(run.run["settings"].get("query", ""))
    yield "retrieved", f"{run.retrieved:,}", "distinct sentences"
    yield "kept", f"{run.kept:,}", share
    for name, found in run.students.items():
        for label, value, note, metric in gain_figures(found):
            yield label, value, ", ".join(filter(None, [f"{metric} of {name}", note]))


def _class_lines(classes: Sequence[ClassCounts]) -> list[list[Any]]:
    """Return each class's name and its rows at each step, with a bar and a share."""
    columns = []
    for step in ("labelled", "retrieved", "predicted", "kept"):
        counts = [getattr(one, step) for one in classes]
        total, most = sum(filter(None, counts)), max(filter(None, counts), default=0)
        columns.append(
            [
                "\u2013" if n is None
                else Markup('{} <span class="quiet">{}</span>{}').format(
                    f"{n:,}", percent(n / total) if total else "", bar(n, most)
                )
                for n in counts
            ]
        )  # fmt: skip
    return [[one.name, *(column[place] for column in columns)] for place, one in enumerate(classes)]


def _confidence_rows(classes: Sequence[ClassCounts]) -> list[ChartRow]:
    rows = []
    for one in classes:
        if one.kept:
            share = percent(int(one.confidence[int(0.9 * BINS) :].sum()) / one.kept)
            text = (
                f"{one.name}: kept sentences by the teacher's confidence, from 0 to 1; {share} are "
                "0.9 or more."
            )
            chart = histogram(one.confidence.tolist(), _TICKS, text=text)
            rows.append(ChartRow(one.name, share, "are 0.9 or more", chart))
    return rows


def _similarity_rows(run: AugmentReport) -> list[ChartRow]:
    rows = []
    for name, counts in run.similarity.items():
        if counts.sum():
            median = (np.searchsorted(np.cumsum(counts), counts.sum() / 2) + 0.5) / BINS
            text = (
                f"{name}: sentences by their cosine with the query, from 0 to 1; half are above "
                f"{median:.2f}."
            )
            chart = histogram(counts.tolist(), _TICKS, text=text)
            rows.append(ChartRow(name, f"{median:.2f}", "median", chart))
    return rows


def _sentences(one: ClassCounts, run: AugmentReport) -> tuple[str, list[tuple[str, list[Any]]]]:
    parts: list[tuple[str, list[Any]]] = []
    for title, sentences in one.examples.items():
        lines = [
            [s.text, s.reason or (s.query if run.has_one_label else s.label),
             number(s.confidence, 3), number(s.similarity, 2)]
            for s in sentences
        ]  # fmt: skip
        parts.append((title, lines))
    return f"{one.name}: {one.kept:,} kept of {one.predicted:,}", parts


def _shortfall(results: dict[str, Any]) -> Iterator[str]:
    """Yield a notice about classes with fewer sentences than requested."""
    missing = sorted((results.get("shortfall") or {}).items(), key=lambda one: (-one[1], one[0]))
    if missing:
        named = ", ".join(f"{name} {count:,}" for name, count in missing[:SHOWN])
        more = f" and {len(missing) - SHOWN:,} more classes" * (len(missing) > SHOWN)
        yield (
            f"{sum(count for _, count in missing):,} rows fewer than were wanted, for the teacher "
            f"gave these classes to too few sentences: {named}{more}. Other classes were not "
            "filled up in their place."
        )


def _teacher(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the teacher's figures and the sets they were measured on."""
    teacher = results.get("teacher")
    for where, scores in (teacher if isinstance(teacher, dict) else {}).items():
        if isinstance(scores, dict) and "classes" in scores:
            for key, name in figures_of(scores).items():
                ends = interval(scores[key])
                yield f"{name} on {where}", figure(scores[key]) + (f", 95%: {ends}" if ends else "")
