"""tilth evaluate classify and tag: how good a classifier or a tagger is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tilth.cli import options
from tilth.cli.screen import note, print_json, print_table

if TYPE_CHECKING:
    from tilth.recipes.testing import Tested

SHOWN_CLASSES = 30

Classifier = Annotated[str, typer.Argument(help="The run of a training, a folder or a hub id.")]
Data = Annotated[
    str,
    typer.Option(
        "--data", "-d", help="Labelled rows: a jsonl, csv, tsv or parquet file (plain or gz), a "
        "folder of them, or a hub data set.",
    ),
]  # fmt: skip
Split = Annotated[str, typer.Option("--split", help="The split of a data set that has several.")]
Against = Annotated[
    str | None, typer.Option("--against", help="Another model, measured on the same rows.")
]
Bootstrap = Annotated[
    int, typer.Option("--bootstrap", help="Resamples of the 95% intervals and tests; 0: neither.")
]
Wrong = Annotated[
    int, typer.Option("--wrong", min=0, help="Print so many of the most confidently wrong rows.")
]
Kept = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="A run folder for results.json and the answer to each row."),
]
Seed = Annotated[int, typer.Option("--seed", help="Of the resamples.")]


def classify(
    model: Classifier,
    data: Data,
    against: Against = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="The column of texts, or the two of pairs with a comma."),
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column of labels.")] = None,
    split: Split = "test",
    bootstrap: Bootstrap = 2000,
    wrong: Wrong = 0,
    out: Kept = None,
    seed: Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Measure a classifier: accuracy, F1, each class, the confusion (--json), calibration.

    [dim]tilth evaluate classify runs/student --data test.jsonl --against runs/teacher[/dim]
    """
    from tilth.recipes.testing import run_test

    columns = [name.strip() for name in text.split(",")] if text is not None else None
    tested = run_test(
        "classify", model, data, against=against, out=out, text=columns, label=label, split=split,
        bootstrap=bootstrap, seed=seed, wrong=wrong, device=device, precision=precision,
        overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    _show("classify", model, tested, out, json=json)


def tag(
    model: Classifier,
    data: Data,
    against: Against = None,
    text: Annotated[str | None, typer.Option("--text", help="The column of tokens.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The column of tags.")] = None,
    split: Split = "test",
    bootstrap: Bootstrap = 2000,
    wrong: Wrong = 0,
    out: Kept = None,
    seed: Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Measure a tagger: F1 of whole entities as conlleval counts them, of each type, calibration.

    [dim]tilth evaluate tag runs/tagger --data test.jsonl[/dim]
    """
    from tilth.recipes.testing import run_test

    tested = run_test(
        "tag", model, data, against=against, out=out, text=text, label=label, split=split,
        bootstrap=bootstrap, seed=seed, wrong=wrong, device=device, precision=precision,
        overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    _show("tag", model, tested, out, json=json)


def _show(
    measured: Literal["classify", "tag"],
    model: str,
    tested: Tested,
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
        note(f"{len(worst)} of {len(by_class)} are shown, the lowest F1: --json has all")
    if tested.wrong:
        _print_wrong(measured, tested.wrong)
    note(f"calibration error {scores['calibration']['error']:.3f}: how far probabilities are off")
    if out is not None:
        note(f"results: {out / 'results.json'}")


def _print_figures(model: str, tested: Tested) -> None:
    from tilth.recipes.testing import NAMES

    scores = tested.scores
    head = ["", f"x 100, {scores['n']:,} rows", "95% interval"]
    lines = [[NAMES[name], *_ends(scores[name])] for name in tested.figures]
    against = scores.get("against")
    if against is not None:
        head += [against["name"], "difference", "95% interval", "p"]
        for name, line in zip(tested.figures, lines, strict=True):
            difference = against["difference"][name]
            line += [_figure(against["scores"][name]["value"]), *_ends(difference, sign="+")]
            line += [_p(difference["p"])]
    print_table(model, head, lines)


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
