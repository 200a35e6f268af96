"""tilth fewshot: what a few labelled rows are worth, alone and with sentences of a bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilth.classifiers.settings import Finetuning
from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say
from tilth.selftrain.few_shot_settings import QUICK, FewShot, both_ways

if TYPE_CHECKING:
    from tilth.selftrain.few_shot import Outcome

_PAPER = FewShot()


def fewshot(
    train: Annotated[
        str,
        typer.Argument(
            help="Labelled texts, or tokens with tags, that draws are taken from: a file, a "
            "folder, or a hub data set."
        ),
    ],
    bank: Annotated[Path, typer.Option("--bank", help="The bank's folder (tilth bank build).")],
    test: Annotated[str, typer.Option("--test", help="A labelled set to measure on.")],
    out: options.Out,
    validation: Annotated[
        str | None,
        typer.Option(help="A labelled set to choose with; default: a tenth of TRAIN."),
    ] = None,
    base: Annotated[
        str,
        typer.Option("--base", "-b", help="What is fine-tuned: a starter, a folder or a hub id."),
    ] = _PAPER.base,
    draws: Annotated[int, typer.Option(help="Draws of TRAIN.")] = _PAPER.draws,
    per_class: Annotated[int, typer.Option(help="Rows of each class in a draw.")] = 20,
    sentences: Annotated[
        int, typer.Option(help="Sentences in a draw, where tokens have tags.")
    ] = _PAPER.sentences,
    all_rows: Annotated[
        bool, typer.Option("--all-rows", help="All rows of TRAIN are the one draw.")
    ] = False,
    validation_rows: Annotated[
        int, typer.Option(help="Rows to choose weights and teachers with, at most.")
    ] = _PAPER.validation,
    seeds: Annotated[int, typer.Option(help="Trainings of each draw; 10 in the paper.")] = QUICK[
        "seeds"
    ],
    best: Annotated[
        int, typer.Option(help="Of these, by validation, that count; 3 in the paper.")
    ] = QUICK["best"],
    epochs: Annotated[float, typer.Option(help="Passes over a draw; 50 in the paper.")] = QUICK[
        "epochs"
    ],
    student_epochs: Annotated[
        float, typer.Option(help="Passes of students over theirs; 50 in the paper.")
    ] = QUICK["student_epochs"],
    labelled: Annotated[
        int,
        typer.Option(help="Of 1,000 sentences for each row, so many are labelled the paper's way."),
    ] = QUICK["labelled"],
    max_length: options.MaxLength = None,
    text: Annotated[str | None, typer.Option(help="The column of texts or tokens.")] = None,
    label: options.Label = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Measure few-shot learning on your own set: fine-tuned, and self-trained in two ways.

    The protocol of SentAugment (section 3.3): small draws, several trainings of each, the best by
    validation count; the best teaches. Intervals are over the draws.

    [dim]tilth fewshot train.jsonl --test test.jsonl --bank runs/bank --out runs/few[/dim]
    [dim]tilth fewshot mine.csv --all-rows --test test.csv --bank runs/bank --out runs/mine[/dim]
    """
    from tilth.classifiers.load import Columns, read_task
    from tilth.selftrain.few_shot import few_shot
    from tilth.workflows.open_bank import open_named

    settings = FewShot(
        base, 1 if all_rows else draws, None if all_rows else per_class, sentences,
        validation_rows, seeds, best, seed,
        Finetuning(epochs=epochs, max_length=max_length),
        both_ways(student_epochs, labelled),
    )  # fmt: skip
    task = read_task(train, test, validation, Columns(text, label), labels=None, seed=seed)
    found = few_shot(
        task, open_named(bank, device=device), out, settings, device=device, quiet=quiet,
        overwrite=overwrite,
    )  # fmt: skip
    if json:
        from dataclasses import asdict

        print_json(asdict(found))
        return
    _show(found, settings.draws)
    say(f"results of every training: {out / 'results.json'}")


def _show(found: Outcome, draws: int) -> None:
    def line(name: str) -> tuple[str, ...]:
        score, gain = found.scores[name], found.gains.get(name)
        deviation = "" if score.deviation is None else f"{score.deviation:.1f}"
        gained = "" if gain is None else f"{gain.mean:+.1f}{_interval(gain.low, gain.high)}"
        return name, f"{found.rows[name]:.0f}", f"{score.mean:.1f}", deviation, gained

    print_table(
        f"{found.measure} on the test set x 100, {draws} draw{'s' if draws > 1 else ''}",
        ("", "rows", "mean", "deviation", "gain, draw by draw (95%)"),
        [line(name) for name in found.scores],
    )
    if draws == 1:
        say("one draw: no interval is known")


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None else f" [{low:+.1f}, {high:+.1f}]"
