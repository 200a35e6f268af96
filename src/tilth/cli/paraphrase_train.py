"""tilth paraphrase train: a rewriter from a corpus."""

from __future__ import annotations

from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, say
from tilth.paraphrase.training import RewriterTraining

_DEFAULT = RewriterTraining()


def train(
    corpus: Annotated[
        str,
        typer.Argument(
            help="A run of tilth paraphrase corpus, or a set with splits train and validation and "
            "columns text_a, text_b, tags."
        ),
    ],
    out: options.Out,
    base: Annotated[
        str,
        typer.Option("--base", "-b", help="An encoder-decoder: starter, a folder, or a hub id."),
    ] = "starter",
    max_epochs: Annotated[
        int, typer.Option(help="Passes over the pairs, at most.")
    ] = _DEFAULT.max_epochs,
    patience: Annotated[
        int, typer.Option(help="Epochs without a lower validation loss before training stops.")
    ] = _DEFAULT.patience,
    batch: Annotated[int, typer.Option(help="Pairs in a step.")] = _DEFAULT.batch,
    rows: Annotated[
        int | None,
        typer.Option(help="Pairs in a pass; default: a whole batch, or what fits into memory."),
    ] = _DEFAULT.rows,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of AdamW; default: 1e-5, for the starter 3e-4.")
    ] = _DEFAULT.learning_rate,
    schedule: Annotated[
        str, typer.Option(help="constant, or linear: falling to 0 over max-epochs.")
    ] = _DEFAULT.schedule,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens of a text; longer pairs are left out.")
    ] = _DEFAULT.max_length,
    save_every: Annotated[
        int, typer.Option(help="Steps between checkpoints, beside that of each epoch.")
    ] = _DEFAULT.save_every,
    seed: Annotated[int, typer.Option(help="Same corpus, settings and seed, same weights.")] = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a rewriter on a corpus; it stops when the validation loss no longer falls.

    [dim]tilth paraphrase train runs/corpus --base starter --out runs/rewriter[/dim]
    """
    from tilth.paraphrase.train import train_rewriter
    from tilth.report.corpus import write_rewriter_report
    from tilth.runs.asked import read_results

    train_rewriter(
        corpus,
        base,
        out,
        device=device,
        overwrite=overwrite,
        quiet=quiet,
        max_epochs=max_epochs,
        patience=patience,
        batch=batch,
        rows=rows,
        learning_rate=learning_rate,
        schedule=schedule,
        max_length=max_length,
        save_every=save_every,
        precision=precision,
        seed=seed,
    )
    write_rewriter_report(out)
    found = read_results(out)
    assert found is not None  # it was just written
    if json:
        print_json(found)
        return
    best = found["best"]
    say(
        f"rewriter: {out / 'model'} (epoch {best['epoch']} of {found['epochs']}, validation loss "
        f"{best['validation_loss']:.3f})"
    )
    say(f"report:   {out / 'report.html'}")
