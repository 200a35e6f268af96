"""What a training of a classifier gained, as lines of a table: from its results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilth.report.figures import number

# What systems are called in results.json and where people read it.
STUDENT, BOTH, ALONE = "retrieved", "labelled and retrieved", "labelled rows alone"
TEACHER, TRAINED = "teacher", "trained"
GAIN = "gain"
_FIGURES = {
    "tags": {"f1": "span F1", "precision": "precision", "recall": "recall"},
    "multi": {"macro_f1": "macro F1", "micro_f1": "micro F1", "accuracy": "all labels right"},
    "class": {"accuracy": "accuracy", "macro_f1": "macro F1"},
}
_ORDER = (ALONE, STUDENT, BOTH, TRAINED, TEACHER)


def figures_of(scores: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of scores, the main one first, and what they are called."""
    kind = "tags" if "f1" in scores else "multi" if "micro_f1" in scores else "class"
    return _FIGURES[kind]


def systems_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was measured, in the order people read it: the labelled rows alone first."""
    systems = list((results.get("tested") or {}).get("systems", ()))
    return sorted(systems, key=lambda one: _ORDER.index(one["name"]))


def gain_of(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how far the student is above the labelled rows alone; None: not measured."""
    differences = (results.get("tested") or {}).get("differences", {})
    found: dict[str, Any] | None = differences.get(ALONE)
    return found


def gain_lines(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of the table that says what was gained.

    Args:
        results: what results.json holds.

    Returns:
        Head, and a line for each system: its name and each figure with its interval; and last
        what the retrieved sentences gained over the labelled rows alone.
    """
    systems = systems_of(results)
    if not systems:
        return [], []
    figures = figures_of(systems[0]["scores"])
    head = ["", *(cell for name in figures.values() for cell in (name, "95% interval"))]
    lines = [
        [str(system["name"]), *_cells([system["scores"][key] for key in figures])]
        for system in systems
    ]
    gain = gain_of(results)
    if gain is not None:
        lines.append([GAIN, *_cells([gain[key] for key in figures], sign="+")])
    return head, lines


def tested_on(results: Mapping[str, Any]) -> str:
    """Return in words what was measured on, and of which base; empty: nothing was."""
    tested = results.get("tested")
    if not tested:
        return ""
    where = tested["data"] if tested["on"] == "test" else "the validation rows"
    words = f"on {where}, {tested['n']:,} rows"
    systems = tested["systems"]
    bases = [f"base {systems[0]['base']}"] if systems[0].get("base") else []
    bases += [f"teacher {one['base']}" for one in systems if one["name"] == TEACHER]
    return "; ".join([words, ", ".join(bases)]) if bases else words


def interval(found: Mapping[str, Any], sign: str = "") -> str:
    """Return the ends of a figure's interval, or nothing when there are none."""
    low, high = found.get("low"), found.get("high")
    if low is None or high is None:
        return ""
    return f"{low:{sign}.1f} to {high:{sign}.1f}"


def sureness(difference: Mapping[str, Any]) -> list[str]:
    """Return in words how sure a difference is; nothing where there were no resamples."""
    ends, p = interval(difference, "+"), difference.get("p")
    if not ends:
        return []
    return [f"95%: {ends}", *([] if p is None else [f"p {p:.4f}" if p >= 1e-4 else "p < 0.0001"])]


def figure(found: Mapping[str, Any], sign: str = "") -> str:
    """Return a figure, or a dash where it is undefined."""
    value = found["value"]
    return number(None, 1) if value is None else f"{value:{sign}.1f}"


def _cells(figures: Sequence[Mapping[str, Any]], sign: str = "") -> list[str]:
    return [cell for one in figures for cell in (figure(one, sign), interval(one, sign))]
