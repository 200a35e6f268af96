"""The page of a run of `tilth augment`: what was added, class by class, and what it gained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilth.files import atomic_write
from tilth.report.augment_rows import BINS, Gathered, Group, gather_augmented
from tilth.report.charts import ChartRow, axis, balance_rows, bar, count_of, drop_rows, histogram
from tilth.report.figures import percent
from tilth.report.generation import flat_settings
from tilth.report.html import SHOWN_LABELS, template
from tilth.report.systems import (
    figure,
    figures_of,
    gain_lines,
    gains_of,
    interval,
    sureness,
    tested_on,
)

OPEN_GROUPS = 6  # with more classes, the sentences of each unfold
_UNIT_AXIS = axis([(0.0, "0"), (0.25, "0.25"), (0.5, "0.5"), (0.75, "0.75"), (1.0, "1")])
# What a cell of the table of classes holds: number, share of the column, bar; or nothing.
_Cell = tuple[str, str, Any] | None


def write_augment_report(run_folder: str | Path, *, out: str | Path | None = None) -> Path:
    """Write the page of a finished run of `tilth augment` and return where it lies.

    What trainings inside the run's folder gained stands at its top.

    Args:
        run_folder: of the run.
        out: the file to write; RUN/report.html when None.

    Raises:
        InputError: the folder holds no such run, or it is not finished.
        TilthError: the file cannot be written.
    """
    page = render_augmented(gather_augmented(run_folder), str(run_folder))
    target = Path(out) if out is not None else Path(run_folder) / "report.html"
    data = page.encode("utf-8", errors="replace")
    atomic_write(target, lambda file: file.write(data))
    return target


def render_augmented(gathered: Gathered, folder: str) -> str:
    """Return the page of a run."""
    settings = gathered.asked["settings"]
    page = template("augment.html.jinja").render(
        title=f"{gathered.kept:,} sentences added",
        claim=_claim(gathered, settings),
        notices=gathered.notices,
        figures=_figures(gathered),
        gains=[
            (
                f"{name}: {tested_on(found)}",
                *gain_lines(found),
                [*found.get("warnings", []), *found["notes"]],
            )
            for name, found in gathered.students.items()
        ],
        classes=_classes(gathered),
        confidence=_confidence_rows(gathered.groups),
        similarity=_similarity_rows(gathered),
        drops=drop_rows(gathered.drops, gathered.retrieved, means={}),
        sources=balance_rows(gathered.sources),
        left_out=[
            (reason, f"{count:,}")
            for reason, count in (gathered.results.get("left_out") or {}).items()
            if count
        ],
        shortfall=_shortfall(gathered.results),
        groups=[group for group in gathered.groups if group.said],
        open_groups=OPEN_GROUPS,
        queries=gathered.queries,
        more_queries=gathered.queries_in_all - len(gathered.queries),
        teacher=_teacher(gathered.results),
        made=_made(gathered),
        folder=folder,
        tagged=gathered.tagged,
        plain=gathered.plain,
        label_width="auto",
        shown=SHOWN_LABELS,
    )
    return page.lstrip()


def augment_lines(gathered: Gathered) -> list[list[str]]:
    """Return a table to print: of each class the rows it has in each step."""
    return [
        [
            group.name,
            f"{group.labelled:,}",
            "" if group.retrieved is None else f"{group.retrieved:,}",
            f"{group.said:,}",
            f"{group.kept:,}",
        ]
        for group in gathered.groups
    ]


def _claim(gathered: Gathered, settings: dict[str, Any]) -> str:
    return (
        f"{count_of(gathered.labelled, 'labelled row')} of {settings.get('train', 'a set')} "
        f"asked the bank {settings.get('bank', '')} for sentences like them; the teacher "
        f"{settings.get('teacher', '')} labelled what was found, and nobody has read it."
    )


def _figures(gathered: Gathered) -> list[tuple[str, str, str]]:
    """Return name, value and note of the numbers at the top."""
    share = percent(gathered.kept / gathered.retrieved) if gathered.retrieved else ""
    rows = [
        ("labelled rows", f"{gathered.labelled:,}", ""),
        (
            "queries",
            f"{gathered.queries_in_all:,}",
            str(gathered.asked["settings"].get("query", "")),
        ),
        ("retrieved", f"{gathered.retrieved:,}", "distinct sentences"),
        ("kept", f"{gathered.kept:,}", f"{share} of the retrieved" if share else ""),
    ]
    for name, found in gathered.students.items():
        for label, gain in gains_of(found).items():
            key, words = next(iter(figures_of(found["tested"]["systems"][0]["scores"]).items()))
            note = f"{words} of {name}"
            rows.append((label, figure(gain[key], "+"), ", ".join([note, *sureness(gain[key])])))
    return rows


def _classes(gathered: Gathered) -> list[tuple[str, list[_Cell]]]:
    """Return of each class the cells of its steps."""
    groups = gathered.groups
    steps: list[list[int | None]] = [
        [group.labelled for group in groups], [group.retrieved for group in groups],
        [group.said for group in groups], [group.kept for group in groups],
    ]  # fmt: skip
    columns = [_cells(step) for step in steps]
    return [(group.name, [column[row] for column in columns]) for row, group in enumerate(groups)]


def _cells(counts: Sequence[int | None]) -> list[_Cell]:
    held = [count or 0 for count in counts]
    total, most = sum(held), max(held, default=0)
    return [
        None if count is None else (
            f"{count:,}", percent(count / total) if total else "",
            bar(count / most if most else 0.0),
        )
        for count in counts
    ]  # fmt: skip


def _confidence_rows(groups: Sequence[Group]) -> list[ChartRow]:
    """Return a histogram of each class, of its kept sentences."""
    rows = []
    for group in groups:
        if not group.kept:
            continue
        sure = int(group.confidence[int(0.9 * BINS) :].sum())
        share = percent(sure / group.kept)
        rows.append(
            ChartRow(
                name=group.name,
                value=share,
                note="are 0.9 or more",
                chart=histogram(
                    group.confidence.tolist(),
                    text=f"{group.name}: kept sentences by the teacher's confidence, from 0 to 1; "
                    f"{share} are 0.9 or more.",
                ),
                axis=_UNIT_AXIS,
            )
        )
    return rows


def _similarity_rows(gathered: Gathered) -> list[ChartRow]:
    kept, every = gathered.similarity
    return [
        ChartRow(
            name=name,
            value=f"{_middle(counts):.2f}",
            note="in the middle",
            chart=histogram(
                counts.tolist(),
                text=f"{name}: sentences by their cosine with the query, from 0 to 1; half are "
                f"above {_middle(counts):.2f}.",
            ),
            axis=_UNIT_AXIS,
        )
        for name, counts in (("retrieved", every), ("kept", kept))
        if counts.sum()
    ]


def _middle(counts: NDArray[np.int64]) -> float:
    """Return the middle of the bin that holds the median."""
    place = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return (place + 0.5) / len(counts)


def _shortfall(results: dict[str, Any]) -> str:
    """Say which classes have fewer sentences than were wanted; empty: none."""
    missing = sorted((results.get("shortfall") or {}).items(), key=lambda one: (-one[1], one[0]))
    if not missing:
        return ""
    named = ", ".join(f"{name} {count:,}" for name, count in missing[:SHOWN_LABELS])
    more = f" and {len(missing) - SHOWN_LABELS:,} more classes" * (len(missing) > SHOWN_LABELS)
    return (
        f"{sum(count for _, count in missing):,} rows fewer than were wanted, for the teacher gave "
        f"these classes to too few sentences: {named}{more}. Other classes were not filled up in "
        "their place."
    )


def _teacher(results: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return where the teacher was measured, a figure's name, and the figure."""
    found = []
    teacher = results.get("teacher")
    for where, scores in (teacher if isinstance(teacher, dict) else {}).items():
        if not isinstance(scores, dict) or "classes" not in scores:
            continue
        for key, name in figures_of(scores).items():
            ends = interval(scores[key])
            words = figure(scores[key]) + (f", 95%: {ends}" if ends else "")
            found.append((where, name, words))
    return found


def _made(gathered: Gathered) -> list[tuple[str, str]]:
    asked = gathered.asked
    versions = ", ".join(f"{name} {v}" for name, v in (asked.get("versions") or {}).items())
    facts = [*flat_settings(asked["settings"]), ("versions", versions)]
    return [("begun", str(asked.get("created", ""))), *facts]
