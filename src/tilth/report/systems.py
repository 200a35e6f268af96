"""Compare a trained classifier with other systems, from results.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilth.report.html import number

# Names of systems in results.json and on pages.
STUDENT, BOTH, ALONE = "retrieved", "labelled and retrieved", "labelled rows alone"
TEACHER, TRAINED, WITHOUT_FIRST = "teacher", "trained", "without the first set"
ENCODER = "encoder + logistic regression"
SETFIT = "SetFit"
CONTRAST = "contrastive encoder"
AVERAGE = f"{CONTRAST} and {SETFIT}, averaged"
TFIDF, MAJORITY = "TF-IDF + logistic regression", "majority"
WORDS, FREQUENT = "words + logistic regression", "each word's commonest tag"
BASELINES = (SETFIT, ENCODER, TFIDF, MAJORITY, WORDS, FREQUENT)
_FIGURES = {
    "tags": {"f1": "span F1", "precision": "precision", "recall": "recall"},
    "multi": {"macro_f1": "macro F1", "micro_f1": "micro F1", "accuracy": "all labels right"},
    "class": {"accuracy": "accuracy", "macro_f1": "macro F1"},
    "pairs": {"spearman": "Spearman", "pearson": "Pearson"},
}
METRICS = {"classification": "accuracy", "similarity": "Spearman"}  # of tasks of `tilth grow`
_STARTER = "starter-encoder"
_CHANCE = "may be chance, as the interval holds 0: prefer the simpler model"
_ORDER = (TRAINED, STUDENT, BOTH, ALONE, WITHOUT_FIRST, TEACHER, *BASELINES)


def figures_of(scores: Mapping[str, Any]) -> dict[str, str]:
    """Return key -> name of each figure, the main one first."""
    if "spearman" in scores:
        return _FIGURES["pairs"]
    kind = "tags" if "f1" in scores else "multi" if "micro_f1" in scores else "class"
    return _FIGURES[kind]


def systems_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the measured systems, the trained one first."""
    systems = list((results.get("tested") or {}).get("systems", ()))
    order = {name: place for place, name in enumerate(_ORDER)}
    return sorted(systems, key=lambda one: order.get(one["name"], len(order)))


def gains_of(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the differences from other systems, named a gain or a loss by the main figure.

    The other systems are the labelled rows alone, the teacher and the best baseline.
    """
    systems = systems_of(results)
    if not systems:
        return {}
    key = next(iter(figures_of(systems[0]["scores"])))
    others = [one["name"] for one in systems[1:] if one["name"] not in BASELINES]
    simple = [one for one in systems[1:] if one["name"] in BASELINES]
    if simple:
        others.append(max(simple, key=lambda one: one["scores"][key]["value"] or 0.0)["name"])
    found = {}
    for name in others:
        gain = results["tested"].get("differences", {}).get(name)
        if gain is not None:
            found[gain_name(name, gain[key]["value"])] = gain
    return found


def gain_name(other: str, difference: float | None) -> str:
    """Return what a difference from another system is called: a gain or a loss."""
    return f"{'loss to' if round(difference or 0.0, 1) < 0 else 'gain over'} {other}"


def gain_figures(results: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return name, main figure, significance and figure name of each gain or loss."""
    found = []
    for label, gain in gains_of(results).items():
        key, metric = next(iter(figures_of(gain).items()))
        ends, p = interval(gain[key], "+"), gain[key].get("p")
        notes = [f"95%: {ends}"] if ends else []
        if ends and p is not None:
            notes.append(f"p {p_value(p)}")
        found.append((label, figure(gain[key], "+"), ", ".join(notes), metric))
    return found


def comparison(results: Mapping[str, Any]) -> tuple[list[str], list[list[Any]], dict[str, str]]:
    """Return head, rows and row classes of a comparison for `figures_table`."""
    systems = systems_of(results)
    if not systems:
        return [], [], {}
    figures, gains = figures_of(systems[0]["scores"]), gains_of(results)
    lines = [system_line(system["name"], system["scores"], figures) for system in systems]
    lines += [system_line(name, gain, figures, sign="+") for name, gain in gains.items()]
    return ["x 100", *figures.values()], lines, dict.fromkeys(gains, "gain")


def system_line(
    name: str, found: Mapping[str, Any], keys: Iterable[str], sign: str = ""
) -> list[Any]:
    """Return the line of a system or gain for `figures_table`."""
    return [name, *(figure_cell(found[key], sign) for key in keys)]


def generated_words(counts: Mapping[str, Any] | None) -> str:
    """Describe how many of `rows` are `generated`; empty for none."""
    if not counts or not counts.get("generated"):
        return ""
    if counts["generated"] == counts["rows"]:
        return " (generated rows)"
    return f" ({counts['generated']:,} of {counts['rows']:,} rows generated)"


def validation_words(results: Mapping[str, Any]) -> str:
    """Return the name of the validation figure: its rows and its measure."""
    return f"validation{generated_words(results.get('validation'))} {results['measure']}"


def tested_on(results: Mapping[str, Any]) -> str:
    """Describe the test set and the base; empty where nothing was measured."""
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


def figure_cell(found: Mapping[str, Any] | None, sign: str = "") -> tuple[str, str]:
    """Return a figure and its interval, both empty where nothing was measured."""
    return ("", "") if found is None else (figure(found, sign), interval(found, sign))


def signed_words(found: Mapping[str, Any]) -> str:
    """Return a difference with its interval in brackets."""
    value, ends = figure_cell(found, "+")
    return f"{value} ({ends})" if ends else value


def interval(found: Mapping[str, Any], sign: str = "") -> str:
    """Return the ends of a figure's interval, or an empty string without them."""
    low, high = found.get("low"), found.get("high")
    if low is None or high is None:
        return ""
    return f"{_rounded(low):{sign}.1f} to {_rounded(high):{sign}.1f}"


def p_value(p: float | None) -> str:
    """Format the significance of a difference; empty where it was not computed."""
    return "" if p is None else f"{p:.4f}" if p >= 1e-4 else "< 0.0001"


def figure(found: Mapping[str, Any], sign: str = "") -> str:
    """Format a figure, with a dash where it is undefined."""
    value = found["value"]
    return number(None, 1) if value is None else f"{_rounded(value):{sign}.1f}"


def _rounded(value: float) -> float:
    """Return a value with one digit; a small negative one is no -0.0."""
    return round(value, 1) + 0.0


def warnings_of(results: Mapping[str, Any]) -> list[str]:
    """Return whether the model answers one label alone, which system is better, and the remedy."""
    systems = systems_of(results)
    if not systems:
        return []
    key, figure = next(iter(figures_of(systems[0]["scores"]).items()))
    own = systems[0]["scores"][key]["value"]
    above = [
        one for one in systems[1:]
        if own is not None and (one["scores"][key]["value"] or 0.0) > own
    ]  # fmt: skip
    lines = []
    if (label := _only_answer(systems[0]["scores"])) is not None:
        lines.append(
            f"Warning: this model answers {label!r} for all {systems[0]['scores']['n']:,} rows: "
            f"train longer (--epochs), or {_remedy('', results)}"
        )
    elif key in ("f1", "macro_f1") and own == 0:
        lines.append(
            f"Warning: this model has {figure} 0 on {systems[0]['scores']['n']:,} rows: "
            f"train longer (--epochs), or {_remedy('', results)}"
        )
    for group in (BASELINES, (TEACHER,), (ALONE,), (WITHOUT_FIRST,)):
        some = [one for one in above if one["name"] in group]
        if some:
            best = max(some, key=lambda one: one["scores"][key]["value"])
            ends = interval(results["tested"]["differences"][best["name"]][key], "+")
            lines.append(
                f"Warning: {best['name']} has {figure} {best['scores'][key]['value']:.1f}, this "
                f"model {own:.1f}{f' (difference 95%: {ends})' if ends else ''}: "
                f"{_remedy(best['name'], results)}"
            )
    return lines


def _only_answer(scores: Mapping[str, Any]) -> str | None:
    """Return the one label that is answered where rows have several, of one label a row."""
    classes = scores["classes"] if "confusion" in scores else {}
    answers = [name for name, one in classes.items() if one["predicted"]]
    is_varied = sum(one["n"] > 0 for one in classes.values()) > 1
    return answers[0] if len(answers) == 1 and is_varied else None


def unsure_gains(results: Mapping[str, Any]) -> list[str]:
    """Return a note on each gain that may be chance: its interval holds 0."""
    lines = []
    for name, figures in gains_of(results).items():
        found = figures[next(iter(figures_of(figures)))]
        low = found.get("low")
        if name.startswith("gain") and low is not None and low <= 0:
            lines.append(f"The {name} ({interval(found, '+')}) {_CHANCE}.")
    return lines


def _remedy(name: str, results: Mapping[str, Any]) -> str:
    source, base = results["source"], results["base"]
    if name == TEACHER:
        teacher = results.get("teacher", f"{source}/teacher")
        return f"take the teacher, {teacher}, or train with its base (--base)"
    if name == ALONE:
        return (
            "take the labelled rows alone (baseline/model), or try tilth augment with --query "
            "per-sentence, a better --teacher, or a bank nearer to the task"
        )
    if name == WITHOUT_FIRST:
        return "leave --first out (baseline/model), or give a set nearer to the task"
    if base not in (_STARTER, "starter"):
        return f"train with --base {_STARTER}"
    return "train with more labelled rows, or a larger --base such as a hub id"
