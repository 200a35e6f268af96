"""tilth grow: find out what labelled rows, raw text and descriptions are worth; keep the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from tilth.cli.app import Fields
from tilth.cli.options import DATA, LM, PATH, TASK, Common, Out
from tilth.cli.screen import command_line, print_json, print_table, say
from tilth.limits import Resamples
from tilth.workflows.grow.settings import CLASSIFICATION, GrowSources, Growth, check_growth

if TYPE_CHECKING:
    from tilth.workflows.grow.plan import Plan


def grow(
    out: Out,
    sources: Annotated[
        GrowSources,
        Fields(
            "What there is",
            reads={
                "train": DATA,
                "raw": PATH,
                "labels": TASK,
                "validation": DATA,
                "test": DATA,
            },
        ),
    ],
    settings: Annotated[Growth, Fields("The search", reads={"model": LM})],
    plan: Annotated[bool, "Say what is tried and how long it takes; try nothing."] = False,
    bootstrap: Resamples = 2000,
    *,
    common: Common,
) -> None:
    """Try what labelled rows, raw text, descriptions and a language model are worth; keep the best.

    [dim]tilth grow --train few.jsonl --raw corpus/ --test test.jsonl --out runs/grown[/dim]

    [dim]tilth grow --labels tickets.yaml --raw corpus/ --budget 20m --out runs/grown[/dim]

    [dim]tilth grow --task similarity --raw corpus/ --train pairs.jsonl --out runs/encoder[/dim]
    """
    check_growth(sources, settings, out)
    if settings.task == CLASSIFICATION:
        from tilth.workflows.grow.task import read_grow_task

        read_grow_task(sources)  # what is wrong in a set is told before torch is imported
    from tilth.workflows.grow import grow as work

    if plan:
        made = work.plan(sources, settings, device=common.device)
        _print_plan(made, settings, as_json=common.json)
        return
    results = work.grow_to_run(sources, out, settings, bootstrap=bootstrap, **common.job)
    if common.json:
        print_json(results)
        return
    print_grown(results)
    say(f"model: {out / 'model'}")
    say(f"report: {out / 'report.html'}")
    say(f"next: {command_line('predict', out, 'FILE', '--out', 'OUT')}")


def print_grown(results: Mapping[str, Any]) -> None:
    """Print the results.json of a run: each way, the test set, and what was found."""
    from tilth.report.systems import METRICS
    from tilth.workflows.grow.notes import arm_lines, summary_lines, test_lines

    metric = METRICS[results["task"]]
    if lines := arm_lines(results):
        print_table(
            f"{metric.capitalize()} x 100 on held-out rows, gains over {results['reference']}",
            ("way", "trainings", metric, "gain", "95%", "seconds"), lines,
        )  # fmt: skip
        if len({one["trainings"] for one in results["arms"]}) > 1:
            say("ways of fewer trainings met fewer rows: compare their gains, not their figures")
    if results.get("tested"):
        print_table(
            f"Test, {results['tested']['n']:,} rows, measured once", ("", metric, "95%"),
            test_lines(results),
        )  # fmt: skip
    for line in summary_lines(results):
        say(line)


def _print_plan(plan: Plan, settings: Growth, *, as_json: bool) -> None:
    from tilth.runs.progress import duration_words
    from tilth.workflows.grow.plan import too_short

    short = too_short(plan, settings)
    if as_json:
        print_json({**asdict(plan), "seconds": plan.seconds, "too_short": short})
        return
    print_table(
        "Ways to try", ("way", "one training"),
        [(name, duration_words(seconds)) for name, seconds in plan.arms],
    )  # fmt: skip
    ends = accumulate((one[-1] for one in plan.rungs), initial=sum(plan.sources.values()))
    print_table(
        f"Rounds, until the budget ({settings.budget}) is spent",
        ("", "ways", "trainings", "about", "ends after"),
        [(name, str(arms), str(count), duration_words(seconds), duration_words(end))
         for (name, arms, count, seconds), end in zip(plan.rungs, [*ends][1:], strict=True)],
    )  # fmt: skip
    for name, seconds in plan.sources.items():
        say(f"made before the search: {name}, about {duration_words(seconds)}")
    for name in plan.dropped:
        say(f"left out, as it would take too much of the budget: {name}")
    say(f"base of fine-tuning: {plan.base} ({plan.why})")
    say(
        f"shortest search: {duration_words(plan.least)}; everything: {duration_words(plan.seconds)}"
    )
    if plan.testing:
        say(
            f"then, beyond the budget: about {duration_words(plan.testing)} to train the simple "
            "ways for the test set"
        )
    if short is not None:
        say(short)
