"""tilth generate: a labelled data set from instructions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError
from tilth.generation.settings import GenerateSettings
from tilth.generation.task import load_task, shipped_tasks

if TYPE_CHECKING:
    from tilth.generation.generate import GenerateRequest

# The report shows all; this much fits a terminal of 80 columns.
_SHOWN = ("label", "tries", "closed", "kept", "copies", "distinct-2", "words")
_MEASURED = {"fits": "fit_share", "similarity": "similarity"}
_PAPER, _DRAW, _RUN = "Paper's settings", "Sampling", "Running"


def generate(
    task: Annotated[
        str, typer.Argument(help=f"A task: {', '.join(shipped_tasks())}, or a spec file.")
    ],
    out: options.Out,
    inputs: options.Inputs = None,
    column: options.Column = None,
    split: Annotated[str, typer.Option(help="The split of a hub data set.")] = "train",
    count: Annotated[
        int | None, typer.Option(help="For single-text tasks: texts for each label.")
    ] = None,
    from_x1: Annotated[
        int | None,
        typer.Option("--from-x1", help="Write this many first texts from nothing before."),
    ] = None,
    model: options.Model = "starter",
    per_input: Annotated[
        int, typer.Option(help="Texts for each (input, label).", rich_help_panel=_PAPER)
    ] = 2,
    max_tries: Annotated[
        int, typer.Option(help="Attempts made to get them.", rich_help_panel=_PAPER)
    ] = 5,
    decay: Annotated[
        float,
        typer.Option(help="Lambda of self-debiasing; 0 turns it off.", rich_help_panel=_PAPER),
    ] = 100.0,
    floor: Annotated[
        float, typer.Option(help="Smallest factor of self-debiasing.", rich_help_panel=_PAPER)
    ] = 0.01,
    temperature: Annotated[float, typer.Option(rich_help_panel=_DRAW)] = 1.0,
    top_k: Annotated[
        int, typer.Option(help="Keep the k likeliest tokens; 0: all.", rich_help_panel=_DRAW)
    ] = 5,
    top_p: Annotated[
        float,
        typer.Option(help="Then the likeliest with this probability.", rich_help_panel=_DRAW),
    ] = 0.9,
    max_new_tokens: Annotated[
        int, typer.Option(help="A text not closed by then is dropped.", rich_help_panel=_DRAW)
    ] = 40,
    multiline: Annotated[
        bool,
        typer.Option(
            "--multiline",
            help="At an endpoint: keep texts of several lines.",
            rich_help_panel=_DRAW,
        ),
    ] = False,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    rows: Annotated[
        int | None,
        typer.Option(
            help="Sequences decoded side by side (at an endpoint: requests at once, 8); default: "
            "what fits into memory.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    part_size: Annotated[
        int, typer.Option(help="Inputs written as one part.", rich_help_panel=_RUN)
    ] = 256,
    plan: Annotated[
        bool, typer.Option("--plan", help="Try some inputs and say what the run will take.")
    ] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Write a labelled data set with a language model, from a task's instructions.

    [dim]tilth generate sts-x2 --inputs sentences.txt --out runs/pairs[/dim]

    [dim]tilth generate review-sentiment --count 500 --out runs/reviews[/dim]
    """
    settings = GenerateSettings(
        decay, floor, temperature, top_k, top_p, max_new_tokens, multiline, per_input, max_tries,
        seed, part_size,
    )  # fmt: skip
    spec = load_task(task)
    if spec.is_pair and inputs is None and from_x1 is None:
        raise InputError(f"task {task!r} writes pairs: give --inputs or --from-x1")
    if not spec.is_pair and count is None and inputs is None:
        raise InputError(f"task {task!r} writes single texts: say how many with --count")

    if inputs is None and column is not None:
        raise InputError("--column goes with --inputs: leave it out, or name --inputs")

    from tilth.data import read_texts
    from tilth.generation.generate import GenerateRequest, run_generate
    from tilth.models import load_lm
    from tilth.runs import refuse_inside

    refuse_inside(out, inputs)
    texts = None
    if inputs is not None:
        texts = list(read_texts(inputs, column=column, split=split)["text"])
    lm = load_lm(model, device=device, precision=precision)
    request = GenerateRequest(spec, lm, settings, inputs=texts, count=count, from_x1=from_x1)
    if plan:
        _print_plan(request, rows, as_json=json)
        return
    run_generate(request, out, overwrite=overwrite, rows=rows, quiet=quiet)

    from tilth.report import write_report

    write_report(out)
    print_health(out, as_json=json)


def _print_plan(request: GenerateRequest, rows: int | None, *, as_json: bool) -> None:
    from tilth.generation.estimate import estimate_run

    plan = estimate_run(request, rows=rows)
    if as_json:
        print_json(asdict(plan))
        return
    print_table("What the run will take", ("", "about"), plan.lines())


def print_health(out: Path, *, as_json: bool) -> None:
    """Print the health table of a finished run and where its results lie."""
    from tilth.report import health_of_run, health_table

    health = health_of_run(out)
    if as_json:
        print_json(health.to_dict())
        return
    head, *lines = health_table(health)
    known = [
        name
        for name, figure in _MEASURED.items()
        if any(getattr(label, figure) is not None for label in health.labels)
    ]
    chosen = [place for place, name in enumerate(head) if name in (*_SHOWN, *known)]
    print_table(
        "Health per label",
        [head[place] for place in chosen],
        [[line[place] for place in chosen] for line in lines],
    )
    for warning in health.warnings:
        say(f"warning: {warning}")
    if health.summary:
        say(health.summary)
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")
