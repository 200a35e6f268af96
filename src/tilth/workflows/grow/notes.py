"""Says what a search found: notes on its result, and lines to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilth.metrics.significance import Interval
from tilth.report.systems import figure, figure_cell, figures_of, gain_name, signed_words
from tilth.runs import read_run_json
from tilth.runs.progress import duration_words
from tilth.workflows.grow.arms import Arm
from tilth.workflows.grow.search import Search

_FEW = 2  # rows of a label, below which a model cannot know it
_FEW_MEASURED = 30  # rows, below which a choice among ways hangs on chance
_LONG_MEASURING = 0.1  # of the budget, from which on it is said
_FOREIGN = 0.5  # of raw sentences, from which on their language is warned of


def shown(found: Interval) -> str:
    """Return a gain with its interval."""
    return signed_words(asdict(found))


def _least_gain(search: Search, best: Arm, over: Sequence[Arm]) -> tuple[str, Interval] | None:
    """Return which of some arms the best one gains least over, and that gain."""
    gains = [(arm.name, one) for arm in over if (one := search.gain(best, arm)) is not None]
    return min(gains, key=lambda named: named[1].value, default=None)


def simpler_ways(search: Search, best: Arm, tested: Mapping[str, Any] | None = None) -> list[str]:
    """Return a note where a simpler arm may do, or was better; by the test set where there is one.

    Args:
        tested: the differences to other systems on the test set.
    """
    if best.is_simple and best.is_saved:
        others = [arm for arm in search.arms if arm.is_simple and not arm.is_saved]
    else:
        others = [arm for arm in search.arms if arm.is_simple]
    names = {arm.name for arm in others}
    leads = [(f"{name} (on the test set)", one)
             for name, one in _leads(tested or {"differences": {}}).items()
             if name in names and one.low is not None]  # fmt: skip
    least = min(leads, key=lambda named: named[1].value, default=None)
    if least is None and (least := _least_gain(search, best, others)) is None:
        return []
    name, gain = least
    if gain.value <= 0:
        return [f"A simpler way is as good or better: {name}. The gain over it: {shown(gain)}."]
    if gain.low is None or gain.low <= 0:
        return [f"A simpler way may do: {name}. The gain over it may be chance: {shown(gain)}."]
    if best.is_simple:
        return []
    return [f"The gain over the best simple way, {name}, is unlikely to be chance: {shown(gain)}."]


def lucky_ways(search: Search, best: Arm) -> list[str]:
    """Return a note where a way with rows of sources leads what is kept, maybe by chance."""
    default = search.default
    gains = [
        (arm.name, gain)
        for arm in search.arms
        if arm.sources and (gain := search.gain(arm, default)) is not None
        and gain.value > 0 and not search.may_be_kept(gain, default)
    ]  # fmt: skip
    if best != default or not gains:
        return []
    name, gain = max(gains, key=lambda named: named[1].value)
    return [
        f"Ahead of what is kept by so little that it may be chance: {name}. Its gain: "
        f"{shown(gain)}. More labelled rows would tell."
    ]


def kept_by_default(search: Search, best: Arm) -> list[str]:
    """Return a note where a way is kept that need not lead the reference."""
    gain = search.gain(best, search.reference)
    if best != search.default or best == search.reference or gain is None:
        return []
    return [
        f"The raw text is like the task's: {best.name} is kept there unless another way surely "
        f"leads it. Its gain over {search.reference.name}: {shown(gain)}."
    ]


def encoder_notes(search: Search, best: Arm, base: str) -> list[str]:
    """Return whether anything lifts an encoder, and whether a mixture was worth it."""
    if best == search.reference:
        gains = [
            (arm.name, gain) for arm in search.arms
            if arm != best and (gain := search.gain(arm, best)) is not None
        ]  # fmt: skip
        if not gains:
            return []
        name, gain = max(gains, key=lambda named: named[1].value)
        return [
            f"Nothing surely lifts {base}: it is kept as it is. The largest gain, of {name}, is "
            f"{shown(gain)}."
        ]
    found = simpler_ways(search, best)
    parts = [arm for arm in search.arms if len(arm.sources) == 1 < len(best.sources)]
    parts = [arm for arm in parts if arm.sources[0] in best.sources]
    if (least := _least_gain(search, best, parts)) is not None:
        name, gain = least
        chance = " It may be chance." if gain.low is None or gain.low <= 0 else ""
        found.append(f"The mixture's gain over {name} alone: {shown(gain)}.{chance}")
    return found


def better_on_test(tested: Mapping[str, Any]) -> list[str]:
    """Return a note on each system that is surely better than the kept one on the test set."""
    return [
        f"On the test set {name} is better than what was kept, by {-one.value:.1f} "
        f"({-one.high:.1f} to {-(one.low or 0):.1f})."
        for name, one in _leads(tested).items() if one.high is not None and one.high < 0
    ]  # fmt: skip


def _leads(tested: Mapping[str, Any]) -> dict[str, Interval]:
    """Return how far the kept system is above each other one on the test set."""
    found = {name: one[next(iter(figures_of(one)))] for name, one in tested["differences"].items()}
    return {name: Interval(one["value"], one["low"], one["high"]) for name, one in found.items()}


def more_labels(search: Search) -> list[str]:
    """Return what the learning curve says of more labelled rows."""
    curve = [arm for arm in search.arms if arm.is_curve and search.done(arm)]
    if not curve:
        return []
    half = curve[-1]
    gain = search.gain(search.reference, half)
    if gain is None:
        return []
    said = f"All labelled rows gain {shown(gain)} over {half.share:.0%} of them: "
    if gain.low is not None and gain.low > 0:
        return [said + "more labels are likely to help."]
    return [said + "whether more labels would help is not sure."]


def few_rows(labels: Mapping[str, int] | None) -> list[str]:
    """Return which labels a classifier has no or few training rows of."""
    few = {label: count for label, count in (labels or {}).items() if count < _FEW}
    if not few:
        return []
    said = ", ".join(f"{label!r} {count or 'none'}" for label, count in few.items())
    return [
        f"Few training rows of a label: {said}. The model hardly knows such labels: give labelled "
        "rows or raw text that hold them."
    ]


def few_measured(search: Search, best: Arm) -> list[str]:
    """Return a note where the ways were compared on very few of the rows that there are."""
    measured, rows = (
        len(set().union(*(fold.held.tolist() for fold in folds)))
        for folds in (search.done(best), search.folds)
    )
    if not 0 < measured < min(_FEW_MEASURED, rows):
        return []
    return [
        f"The choice rests on {measured} labelled rows alone, as the budget allowed no more: a "
        "larger --budget goes on from here."
    ]


def raw_warnings(near: Mapping[str, Any] | None) -> list[str]:
    """Return what is wrong with raw text, with the figures that show it."""
    found = []
    if near is not None and near["foreign"] > _FOREIGN:
        found.append(
            f"{near['foreign']:.0%} of the raw sentences are of another language than the bank's, "
            "and were left out: give raw text of that language, or a bank that was built with "
            "--language"
        )
    if near is not None and near["far"]:
        found.append(
            "The raw text may be of another language or domain: the labelled texts have a median "
            f"similarity of {near['raw']:.2f} to their nearest raw sentence, and of "
            f"{near['own']:.2f} to one another. If most of it is not like them, give other text."
        )
    return found


def asked_of_endpoint(folder: Path) -> list[str]:
    """Return a note on what the texts of a nested run took, if an endpoint wrote them."""
    if not (folder / "dataset").is_dir():
        return []
    usage = read_run_json(folder)["resolved"].get("usage")
    if usage is None:
        return []
    return [
        f"The endpoint that wrote texts was asked {usage['requests']:,} times: "
        f"{usage['prompt_tokens']:,} prompt tokens and {usage['completion_tokens']:,} completion "
        "tokens, as it counts them (0 where it does not)."
    ]


def summary_lines(results: Mapping[str, Any]) -> list[str]:
    """Return what a run found, to print."""
    spent, budget = duration_words(results["spent"]), duration_words(results["budget"])
    rows = ", ".join(f"{count:,} {name}" for name, count in (results["origins"] or {}).items())
    measuring = results.get("measuring", 0.0)
    if measuring > _LONG_MEASURING * results["budget"]:
        budget += f", {duration_words(measuring)} of them to measure how fast this machine trains"
    ended = results["ended"] or "not finished, the same command goes on"
    return [
        f"kept: {results['arm']}, base {results['base']}",
        f"its rows: {rows or 'none'}",
        *(
            f"leaving out {one['origin']} ({one['share']:.0%} in training) costs "
            f"{signed_words(one['cost'])}"
            for one in results["shares"]
            if one["cost"] is not None
        ),
        f"search: {ended}; {spent} of {budget}",
        *results["notes"],
    ]


def arm_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return each arm's name, trainings, score, gain with its interval, and seconds of one."""
    return [
        (one["name"], f"{one['trainings']:,}", figure(one["score"]),
         *figure_cell(one["gain"], "+"), f"{one['seconds']:.0f}")
        for one in results["arms"]
    ]  # fmt: skip


def test_lines(results: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return each system's test accuracy with its interval, and the gains over the others."""
    tested = results["tested"]
    lines = [(one["name"], one["scores"], "") for one in tested["systems"]]
    key = next(iter(figures_of(lines[0][1])))
    lines += [
        (gain_name(name, gain[key]["value"]), gain, "+")
        for name, gain in tested["differences"].items()
    ]
    return [(name, *figure_cell(found[key], sign)) for name, found, sign in lines]
