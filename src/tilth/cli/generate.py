"""tilth generate: write a labelled data set from instructions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tilth import limits
from tilth.cli.app import Fields
from tilth.cli.options import DATA, LM, Common, Out
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError
from tilth.generation.settings import GenerateSettings, check_amounts
from tilth.generation.task import load_task, refuse_untrained, shipped_tasks
from tilth.models.names import ENDPOINTS, known_instructions
from tilth.runs import refuse_other_settings
from tilth.runs.cluster import Cluster

if TYPE_CHECKING:
    from tilth.generation.generate import GenerateRequest

# Columns that fit a terminal of 80; the report shows all.
_SHOWN = ("label", "tries", "closed", "kept", "copies", "distinct-2", "words")
_MEASURED = {"fits": "fit_share", "similarity": "similarity"}


@dataclass(frozen=True, slots=True)
class _Texts:
    """What is written for, and how much."""

    inputs: Annotated[
        str | None,
        DATA,
        "--inputs -i",
        "First texts of a pair task: a txt, jsonl, json, csv, tsv or parquet file (plain or "
        "gz), a folder of them, or a hub data set.",
    ] = None
    column: limits.TextColumn = None
    split: limits.SourceSplit = "train"
    count: Annotated[int | None, limits.TEXTS, "For single-text tasks: texts for each label."] = (
        None
    )
    from_x1: Annotated[
        int | None, limits.TEXTS, "Write this many first texts from nothing before."
    ] = None


@dataclass(frozen=True, slots=True)
class _Model:
    """What writes."""

    model: Annotated[
        str,
        LM,
        "--model -m",
        "starter, a model folder, a hub id, or an endpoint: "
        "openai:http://host:port/v1#model (openai-chat:... for chat).",
    ] = "starter"
    any_task: Annotated[bool, "Let the starter write for a task that it was not trained on."] = (
        False
    )
    precision: limits.ModelPrecision = "auto"
    rows: Annotated[
        int | None,
        limits.BATCH,
        "Sequences decoded side by side (at an endpoint: requests at once, 8); default: "
        "what fits into memory.",
    ] = None


def generate(
    task: Annotated[str, f"A task: {', '.join(shipped_tasks())}, or a spec file."],
    out: Out,
    settings: Annotated[GenerateSettings, Fields("The method and its sampling")],
    asked: _Texts,
    by: _Model,
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    plan: Annotated[bool, "Try some inputs and say what the run will take."] = False,
    *,
    common: Common,
) -> None:
    """Write a labelled data set with a language model, from a task's instructions.

    [dim]tilth generate sts-x2 --inputs sentences.txt --out runs/pairs[/dim]

    [dim]tilth generate review-sentiment --count 500 --out runs/reviews[/dim]
    """
    spec = load_task(task)
    check_amounts(
        spec, settings, has_inputs=asked.inputs is not None, count=asked.count,
        from_x1=asked.from_x1,
    )  # fmt: skip
    if settings.multiline and not by.model.startswith(ENDPOINTS):
        raise InputError("--multiline counts at endpoints only: a local model writes one line")
    if asked.inputs is None and asked.column is not None:
        raise InputError("--column goes with --inputs: leave it out, or name --inputs")
    if asked.inputs is None and asked.split != "train":
        raise InputError("--split goes with --inputs: leave it out, or name --inputs")

    if not by.any_task:
        refuse_untrained(spec, by.model, known_instructions(by.model))
    cluster.check_head()
    if not common.overwrite and not plan:
        known = {**asdict(settings), "task": spec.to_dict()}
        for name in ("chat", "decay", "part_size"):  # the model may have its own
            del known[name]
        refuse_other_settings(out, known, "generate")

    from tilth.data import read_texts
    from tilth.data.sources import refuse_split
    from tilth.generation.generate import GenerateRequest, run_generate
    from tilth.models import load_lm
    from tilth.report.generation import write_report

    texts = None
    if asked.inputs is not None:
        refuse_split(asked.inputs, asked.split)
        texts = list(read_texts(asked.inputs, column=asked.column, split=asked.split)["text"])
    request = GenerateRequest(
        spec, load_lm(by.model, device=common.device, precision=by.precision), settings,
        inputs=texts, count=asked.count, from_x1=asked.from_x1, any_task=by.any_task,
    )  # fmt: skip
    if plan:
        _print_plan(request, by.rows, as_json=common.json)
        return
    run_generate(
        request, out, overwrite=common.overwrite, rows=by.rows, cluster=cluster, quiet=common.quiet
    )
    write_report(out)
    print_quality(out, as_json=common.json)


def _print_plan(request: GenerateRequest, rows: int | None, *, as_json: bool) -> None:
    from tilth.generation.estimate import estimate_run

    plan = estimate_run(request, rows=rows)
    if as_json:
        print_json(asdict(plan))
        return
    print_table("What the run will take", ("", "about"), plan.lines())


def print_quality(out: Path, *, as_json: bool) -> None:
    """Print the quality of each label of a finished run and the paths of its results."""
    from tilth.report.tries import quality_of_run

    quality = quality_of_run(out)
    if as_json:
        print_json(quality.to_dict())
        return
    head, *lines = quality.table()
    known = [
        name
        for name, figure in _MEASURED.items()
        if any(getattr(label, figure) is not None for label in quality.labels)
    ]
    chosen = [place for place, name in enumerate(head) if name in (*_SHOWN, *known)]
    print_table(
        "Quality per label",
        [head[place] for place in chosen],
        [[line[place] for place in chosen] for line in lines],
    )
    for warning in quality.warnings:
        say(f"warning: {warning.text}")
    if quality.summary:
        say(quality.summary)
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")
