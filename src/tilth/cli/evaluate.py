"""tilth evaluate: measure encoders, classifiers and taggers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tilth import limits
from tilth.cli import options
from tilth.cli.app import App
from tilth.cli.checks import CLASSIFIER, DATA, ENCODER, PATH
from tilth.cli.screen import print_json, print_table, say

if TYPE_CHECKING:
    from tilth.workflows.evaluate_classifier import Evaluated

SHOWN_CLASSES = 30

Measured = Literal["classify", "tag"]

Classifier = Annotated[
    str, CLASSIFIER, typer.Argument(help="The run of a training, a folder or a hub id.")
]
Data = Annotated[
    str,
    DATA,
    typer.Option(
        "--data", "-d", help="Labelled rows: a jsonl, csv, tsv, conll or parquet file (plain or "
        "gz), a folder of them, or a hub data set.",
    ),
]  # fmt: skip
Against = Annotated[
    str | None,
    CLASSIFIER,
    typer.Option("--against", help="Another model, measured on the same rows."),
]
Wrong = Annotated[
    int,
    limits.SHOWN,
    typer.Option("--wrong", help="Print so many of the most confidently wrong rows."),
]


def _command(described: str, *, measured: Measured) -> Callable[..., None]:
    """Return `tilth evaluate classify` or `tag`: other figures, the same options."""

    def command(
        model: Classifier,
        data: Data,
        against: Against = None,
        text: options.Text = None,
        label: options.Label = None,
        split: options.Split = "test",
        bootstrap: options.Bootstrap = 2000,
        wrong: Wrong = 0,
        out: options.ResultFolder = None,
        seed: options.BootstrapSeed = 0,
        device: options.Device = "auto",
        precision: options.Precision = "auto",
        overwrite: options.Overwrite = False,
        quiet: options.Quiet = False,
        json: options.Json = False,
    ) -> None:
        from tilth.workflows.evaluate_classifier import EvaluateSettings, evaluate_to_run

        settings = EvaluateSettings(
            against, options.columns(text), label, split, bootstrap, seed, precision, wrong
        )
        tested = evaluate_to_run(
            measured, model, data, settings, out=out, device=device, overwrite=overwrite,
            quiet=quiet,
        )  # fmt: skip
        _show(measured, model, tested, out, json=json)

    command.__doc__ = described
    return command


classify = _command(
    """Measure a classifier: accuracy, F1, each class, the confusion (--json), calibration.

    [dim]tilth evaluate classify runs/student --data test.jsonl --against runs/teacher[/dim]
    """,
    measured="classify",
)
tag = _command(
    """Measure a tagger: F1 of whole entities as conlleval counts them, of each type, calibration.

    [dim]tilth evaluate tag runs/tagger --data test.jsonl[/dim]
    """,
    measured="tag",
)


def _show(
    measured: Measured,
    model: str,
    tested: Evaluated,
    out: Path | None,
    *,
    json: bool,
) -> None:
    scores = tested.scores
    if json:
        print_json(scores)
        return
    _print_figures(model, tested)
    by_class = scores["classes"]
    kind, held = ("class", "rows") if measured == "classify" else ("type", "entities")
    worst = sorted(by_class, key=lambda name: by_class[name]["f1"] or 0.0)[:SHOWN_CLASSES]
    print_table(
        "Classes" if measured == "classify" else "Types of entity",
        (kind, "precision", "recall", "F1", held, "answered"),
        [_class_line(name, by_class[name]) for name in by_class if name in set(worst)],
    )
    if len(by_class) > len(worst):
        say(f"{len(worst)} of {len(by_class)} are shown, the lowest F1: --json has all")
    if tested.wrong:
        _print_wrong(measured, tested.wrong)
    say(f"calibration error {scores['calibration']['error']:.3f}: how far probabilities are off")
    if out is not None:
        say(f"results: {out / 'results.json'}")


def _print_figures(model: str, tested: Evaluated) -> None:
    from tilth.workflows.evaluate_classifier import NAMES

    scores = tested.scores
    measured = f"x 100, {scores['n']:,} rows"
    against = scores.get("against")
    if against is None:
        lines = [[NAMES[name], *_ends(scores[name])] for name in tested.figures]
        print_table(model, ["", measured, "95% interval"], lines)
        return
    # Intervals go under figures and names above the table, to fit narrow terminals.
    lines = []
    for name in tested.figures:
        difference = against["difference"][name]
        ends = (scores[name], against["scores"][name], difference)
        cells = ["\n".join(_ends(one, sign)) for one, sign in zip(ends, ("", "", "+"), strict=True)]
        lines.append([NAMES[name], *cells, _p(difference["p"])])
    title = f"first: {model}\nsecond: {against['name']}\n{measured}, 95% intervals"
    print_table(title, ["", "first", "second", "first less second", "p"], lines)


def _print_wrong(measured: str, wrong: list[dict[str, Any]]) -> None:
    if measured == "classify":
        rows = [
            ("\n".join(row["texts"]), _names(row["gold"]), _names(row["predicted"]),
             f"{row['probability']:.2f}")
            for row in wrong
        ]  # fmt: skip
        head: tuple[str, ...] = ("text", "right", "answered", "probability")
    else:
        rows = [
            (row["text"], "\n".join(row["missed"]), "\n".join(row["invented"]),
             f"{row['probability']:.2f}")
            for row in wrong
        ]  # fmt: skip
        head = ("text", "missed", "invented", "probability")
    print_table("Most confidently wrong", head, rows, texts=3)


def _names(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer) or "none"


def _class_line(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    figures = (_figure(found[key]) for key in ("precision", "recall", "f1"))
    return name, *figures, f"{found['n']:,}", f"{found['predicted']:,}"


def _ends(found: dict[str, Any], sign: str = "") -> list[str]:
    """Return a figure and its interval."""
    if found["low"] is None:
        return [_figure(found["value"], sign), ""]
    return [
        _figure(found["value"], sign),
        f"{found['low']:{sign}.1f} to {found['high']:{sign}.1f}",
    ]


def _figure(value: float | None, sign: str = "") -> str:
    return "undefined" if value is None else f"{value:{sign}.1f}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


app = App(no_args_is_help=True, help="Measure encoders, classifiers and taggers.")
app.command("classify")(classify)
app.command("tag")(tag)


@app.command("sts")
def sts(
    encoder: Annotated[
        str,
        ENCODER,
        typer.Argument(
            help="starter-encoder, a folder, a hub id, the run of a training, or word vectors: "
            "words:FILE, words-idf:FILE, words-sif:FILE, usif:FILE."
        ),
    ],
    data: Annotated[
        str,
        PATH,
        typer.Option(
            "--data",
            "-d",
            help="A folder with STS sets (sts12.jsonl.gz ..., SentEval's or SemEval's layout), "
            "one file of scored pairs, a hub data set, or 'hub' for the usual ones.",
        ),
    ],
    protocol: Annotated[
        str,
        limits.PROTOCOL,
        typer.Option(help="all: subsets joined, as in most papers; mean: averaged over subsets."),
    ] = "all",
    sets: Annotated[
        str | None,
        typer.Option(help="Names with commas, such as stsb,sick; default: the usual seven."),
    ] = None,
    train: Annotated[
        str | None,
        DATA,
        typer.Option(
            help="The pairs it was trained with (a run knows them), to tell what they share."
        ),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option("--drop-overlap", help="Leave out scored pairs with a sentence of --train."),
    ] = False,
    pooling: Annotated[
        str | None,
        limits.POOLING,
        typer.Option(
            help="How tokens become one vector: mean, cls or max; default: as saved, else mean."
        ),
    ] = None,
    bootstrap: options.Bootstrap = 1000,
    wrong: Annotated[
        int, limits.SHOWN, typer.Option(help="Print so many of the most wrong pairs.")
    ] = 0,
    out: options.ResultFolder = None,
    seed: options.BootstrapSeed = 0,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Compare an encoder's cosines with people's scores: Spearman and Pearson x 100.

    [dim]tilth evaluate sts starter-encoder --data data/sts[/dim]
    """
    from tilth.workflows.evaluate_sts import StsSettings, evaluate_sts_to_run, remarks

    names = [name.strip() for name in sets.split(",")] if sets is not None else None
    settings = StsSettings(protocol, names, train, drop_overlap, pooling, bootstrap, seed)
    found = evaluate_sts_to_run(
        encoder, data, settings, out=out, wrong=wrong, device=device, overwrite=overwrite
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
