"""How good a classifier is beside what is at hand, as lines of a table: from results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilth.report.figures import number

# What systems are called in results.json and where people read it.
STUDENT, BOTH, ALONE = "retrieved", "labelled and retrieved", "labelled rows alone"
TEACHER, TRAINED = "teacher", "trained"
ENCODER = "starter-encoder + logistic regression"
TFIDF, MAJORITY = "TF-IDF + logistic regression", "majority"
WORDS, FREQUENT = "words + logistic regression", "each word's commonest tag"
BASELINES = (ENCODER, TFIDF, MAJORITY, WORDS, FREQUENT)
_FIGURES = {
    "tags": {"f1": "span F1", "precision": "precision", "recall": "recall"},
    "multi": {"macro_f1": "macro F1", "micro_f1": "micro F1", "accuracy": "all labels right"},
    "class": {"accuracy": "accuracy", "macro_f1": "macro F1"},
}
_ORDER = (TRAINED, STUDENT, BOTH, ALONE, TEACHER, *BASELINES)


def figures_of(scores: Mapping[str, Any]) -> dict[str, str]:
    """Return the figures of scores, the main one first, and what they are called."""
    kind = "tags" if "f1" in scores else "multi" if "micro_f1" in scores else "class"
    return _FIGURES[kind]


def systems_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was measured, in the order people read it: what was trained first."""
    systems = list((results.get("tested") or {}).get("systems", ()))
    return sorted(systems, key=lambda one: _ORDER.index(one["name"]))


def gains_of(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how far the model is above others: named as a gain or as a loss, by main figure.

    The others are the labelled rows alone, the teacher and the best of the baselines.
    """
    systems = systems_of(results)
    if not systems:
        return {}
    key = next(iter(figures_of(systems[0]["scores"])))
    others = [one["name"] for one in systems[1:] if one["name"] not in BASELINES]
    simple = [one for one in systems[1:] if one["name"] in BASELINES]
    if simple:
        others.append(max(simple, key=lambda one: one["scores"][key]["value"] or 0.0)["name"])
    differences = results["tested"].get("differences", {})
    return {
        f"{'loss to' if (differences[name][key]['value'] or 0) < 0 else 'gain over'} {name}":
        differences[name]
        for name in others if name in differences
    }  # fmt: skip


def generated_words(counts: Mapping[str, Any] | None) -> str:
    """Return in words how many of some rows a model wrote; empty: none.

    Args:
        counts: `rows` and `generated`.
    """
    if not counts or not counts.get("generated"):
        return ""
    if counts["generated"] == counts["rows"]:
        return " (generated rows)"
    return f" ({counts['generated']:,} of {counts['rows']:,} rows generated)"


def validation_words(results: Mapping[str, Any]) -> str:
    """Return what the validation figure is called: of which rows, and which measure."""
    return f"validation{generated_words(results.get('validation'))} {results['measure']}"


def gain_lines(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of the table that says what was gained.

    Args:
        results: what results.json holds.

    Returns:
        Head, and a line for each system: its name and each figure with its interval; and last
        how far the trained model is above or below what is at hand, see `gains_of`.
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
    for name, gain in gains_of(results).items():
        lines.append([name, *_cells([gain[key] for key in figures], sign="+")])
    return head, lines


def tested_on(results: Mapping[str, Any]) -> str:
    """Return in words what was measured on, and of which base; empty: nothing was."""
    tested = results.get("tested")
    if not tested:
        return ""
    where = tested["data"] if tested["on"] == "test" else "the validation rows"
    words = f"on {where}, {tested['n']:,} rows"
    words += generated_words({"rows": tested["n"], "generated": tested.get("generated")})
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
