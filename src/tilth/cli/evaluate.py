"""tilth evaluate: how good an encoder, a classifier or a tagger is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilth.cli import evaluate_classify, options
from tilth.cli.checks import App
from tilth.cli.screen import print_json, print_table, say

app = App(no_args_is_help=True, help="Measure encoders, classifiers and taggers.")
app.command("classify")(evaluate_classify.classify)
app.command("tag")(evaluate_classify.tag)


@app.command("sts")
def sts(
    encoder: Annotated[
        str,
        typer.Argument(
            help="starter-encoder, a folder, a hub id, the run of a training, or word vectors: "
            "words:FILE, words-idf:FILE, words-sif:FILE, usif:FILE."
        ),
    ],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            help="A folder with STS sets (sts12.jsonl.gz ..., SentEval's or SemEval's layout), "
            "one file of scored pairs, a hub data set, or 'hub' for the usual ones.",
        ),
    ],
    protocol: Annotated[
        str,
        typer.Option(help="all: subsets joined, as in most papers; mean: averaged over subsets."),
    ] = "all",
    sets: Annotated[
        str | None,
        typer.Option(help="Names with commas, such as stsb,sick; default: the usual seven."),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="The pairs it was trained with (a run knows them), to tell what they share."
        ),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option("--drop-overlap", help="Leave out scored pairs with a sentence of --train."),
    ] = False,
    pooling: options.Pooling = None,
    bootstrap: Annotated[int, typer.Option(help="Resamples of the 95% interval; 0: none.")] = 1000,
    wrong: Annotated[int, typer.Option(help="Print so many of the most wrong pairs.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A run folder for results.json and report.html."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Compare an encoder's cosines with people's scores: Spearman and Pearson x 100.

    [dim]tilth evaluate sts starter-encoder --data data/sts[/dim]
    """
    from tilth.recipes.measuring import remarks, run_evaluation

    found = run_evaluation(
        encoder,
        data,
        out=out,
        protocol=protocol,
        sets=[name.strip() for name in sets.split(",")] if sets is not None else None,
        training=train,
        drop_overlap=drop_overlap,
        pooling=pooling,
        device=device,
        bootstrap=bootstrap,
        seed=seed,
        wrong=wrong,
        overwrite=overwrite,
    )
    if json:
        print_json(found.scores)
        return
    head = ("set", "Spearman", "95% interval", "Pearson", "pairs")
    print_table(encoder, head, [_line(key, score) for key, score in found.scores.items()])
    if wrong:
        print_table(
            "Most wrong pairs",
            ("pair", "set", "score", "cosine"),
            [
                (
                    f"{pair['text_a']}\n{pair['text_b']}",
                    pair["set"],
                    f"{pair['gold']:g}",
                    f"{pair['cosine']:.2f}",
                )
                for pair in found.wrong[:wrong]
            ],
        )
    for line in remarks(found.scores):
        say(line)
    if out is not None:
        say(f"report: {out / 'report.html'}")


def _line(name: str, score: dict[str, Any]) -> tuple[str, ...]:
    interval = "" if score["low"] is None else f"{score['low']:.1f} to {score['high']:.1f}"
    pairs = f"{score['n']:,}" if "n" in score else _count(len(score["sets"]))
    return name, f"{score['spearman']:.1f}", interval, f"{score['pearson']:.1f}", pairs


def _count(sets: int) -> str:
    return "1 set" if sets == 1 else f"{sets} sets"
