"""tilth paraphrase corpus: what a rewriter learns from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilth.cli import options
from tilth.cli.screen import print_json, print_table, say


def corpus(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATES...",
            help="Runs of tilth paraphrase candidates, or any sets with text_a, text_b and, where "
            "known, meaning and wording.",
        ),
    ],
    out: options.Out,
    size: Annotated[
        int | None,
        typer.Option(
            help="Pairs to train on (paper: 5000000); default: as many as leave at most a quarter "
            "of the 48 cells short."
        ),
    ] = None,
    validation: Annotated[int, typer.Option(help="Pairs to stop training with.")] = 2_700,
    test: Annotated[int, typer.Option(help="Pairs to measure with.")] = 2_700,
    scorer: options.Scorer = "starter",
    metric: Annotated[
        str, typer.Option(help="Measures wording where it is not known: bleu or chrf.")
    ] = "bleu",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Make the corpus of a rewriter: filtered, drawn evenly over 48 cells, split by sentences.

    [dim]tilth paraphrase corpus runs/candidates --out runs/corpus[/dim]
    """
    from tilth.paraphrase.corpus import make_corpus
    from tilth.report.corpus import write_corpus_report
    from tilth.report.parts import refuse_edited

    make_corpus(
        list(sources),
        out,
        size=size,
        validation=validation,
        test=test,
        scorer=scorer,
        metric=metric,
        device=device,
        precision=precision,
        seed=seed,
        overwrite=overwrite,
        quiet=quiet,
    )
    with refuse_edited(out):
        write_corpus_report(out)
        _show(out, as_json=json)


def _show(out: Path, *, as_json: bool) -> None:
    from tilth.runs.asked import read_results

    found = read_results(out)
    assert found is not None  # it was just written
    if as_json:
        print_json(found)
        return
    rows = [("read", found["candidates"]), *found["left_out"].items(), ("kept", found["kept"])]
    rows += [(f"drawn: {name}", count) for name, count in found["drawn"].items()]
    print_table("Pairs", ("", "pairs"), [(name, f"{count:,}") for name, count in rows])
    for line in found["notes"]:
        say(line)
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")
