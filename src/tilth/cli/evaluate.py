"""tilth evaluate: measure encoders, classifiers and taggers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tilth.cli.app import App, Fields
from tilth.cli.options import CLASSIFIER, DATA, ENCODER, MEASURED, PATH, Common, ResultFolder
from tilth.cli.screen import print_json, print_table, say
from tilth.generation.task import is_task, load_classes
from tilth.limits import SHOWN, ModelPrecision
from tilth.workflows.settings import EvaluateSettings, StsSettings

if TYPE_CHECKING:
    from tilth.workflows.evaluate_classifier import Evaluated

SHOWN_CLASSES = 30
_SUMMED = ("score", "rows")  # of a GLUE task, beside its metrics

Measured = Literal["classify", "tag"]


_MODEL = "The run of a training, a folder or a hub id."
_MODEL_OR_TASK = (
    "The run of a training, a folder or a hub id; or a task file, whose labels' descriptions are "
    "compared with the texts."
)


def _command(described: str, *, measured: Measured) -> Callable[..., None]:
    """Return `tilth evaluate classify` or `tag`: other figures, the same options."""

    def command(
        model: Annotated[str, CLASSIFIER, _MODEL],
        data: Annotated[
            str,
            DATA,
            "--data -d",
            "Labelled rows: a jsonl, json, csv, tsv, conll or parquet file (plain or gz), a "
            "folder of them, or a hub data set.",
        ],
        settings: Annotated[EvaluateSettings, Fields(reads={"against": MEASURED})],
        out: ResultFolder = None,
        *,
        common: Common,
    ) -> None:
        if measured == "classify" and is_task(model):
            load_classes(model)  # what is wrong in it is told before torch is imported
        from tilth.workflows.evaluate_classifier import evaluate_to_run

        tested = evaluate_to_run(measured, model, data, settings, out=out, **common.job)
        _show(measured, model, tested, out, json=common.json)

    command.__doc__ = described
    if measured == "classify":
        command.__annotations__["model"] = Annotated[str, MEASURED, _MODEL_OR_TASK]
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
    measured: Measured, model: str, tested: Evaluated, out: Path | None, *, json: bool
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
        names = ("missed", "invented") if measured == "tag" else ("right", "answered")
        rows = [
            (row["text"], row["right"], row["answered"], f"{row['probability']:.2f}")
            for row in tested.wrong
        ]
        print_table("Most confidently wrong", ("text", *names, "probability"), rows, texts=3)
    say(f"calibration error {scores['calibration']['error']:.3f}: how far probabilities are off")
    if out is not None:
        say(f"results: {out / 'results.json'}")


def _print_figures(model: str, tested: Evaluated) -> None:
    from tilth.report.systems import figure_cell, figures_of, p_value

    scores = tested.scores
    names = dict(figures_of(scores))
    names.setdefault("accuracy", "accuracy")  # of a tagger's tags
    measured = f"x 100, {scores['n']:,} rows"
    against = scores.get("against")
    if against is None:
        lines = [[name, *figure_cell(scores[key])] for key, name in names.items()]
        head = ["", measured, "95% interval"] if any(line[2] for line in lines) else ["", measured]
        print_table(model, head, [line[: len(head)] for line in lines])
        return
    # Intervals go under figures and names above the table, to fit narrow terminals.
    lines = []
    for key, name in names.items():
        difference = against["difference"][key]
        ends = (scores[key], against["scores"][key], difference)
        cells = map("\n".join, map(figure_cell, ends, ("", "", "+")))
        lines.append([name, *cells, p_value(difference["p"])])
    title = f"first: {model}\nsecond: {against['name']}\n{measured}, 95% intervals"
    print_table(title, ["", "first", "second", "first less second", "p"], lines)


def _class_line(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    from tilth.report.html import number

    figures = (number(found[key], 1) for key in ("precision", "recall", "f1"))
    return name, *figures, f"{found['n']:,}", f"{found['predicted']:,}"


app = App(no_args_is_help=True, help="Measure encoders, classifiers and taggers.")
app.command("classify")(classify)
app.command("tag")(tag)


@app.command("glue")
def glue(
    models: Annotated[
        list[str],
        "TASK=MODEL...",
        "Tasks (cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli), each with a classifier's run, "
        "folder or hub id; stsb with a scorer's.",
    ],
    data: Annotated[
        str,
        PATH,
        "--data -d",
        "A folder with a folder for each task, files dev and test in it; or 'hub'.",
    ],
    out: ResultFolder = None,
    precision: ModelPrecision = "auto",
    *,
    common: Annotated[Common, Fields(only=("device", "overwrite", "json"))],
) -> None:
    """Measure models on GLUE's tasks, by its metrics; write the files for its server.

    [dim]tilth evaluate glue rte=runs/rte cola=runs/cola --data glue --out runs/glue[/dim]
    """
    from tilth.workflows.evaluate_glue import evaluate_glue, parse_models

    found = evaluate_glue(
        parse_models(models), data, out, device=common.device, precision=precision,
        overwrite=common.overwrite,
    )  # fmt: skip
    if common.json:
        print_json(asdict(found))
        return
    lines = [
        [
            f"{name} {split.removeprefix('validation').lstrip('_')}".strip(),
            ", ".join(f"{key} {scores[key]:.1f}" for key in scores if key not in _SUMMED),
            f"{scores['score']:.1f}",
            f"{int(scores['rows']):,}",
        ]
        for name, splits in found.tasks.items()
        for split, scores in splits.items()
    ]
    print_table("GLUE, development rows, x 100", ["task", "metrics", "score", "rows"], lines)
    for note in found.notes:
        say(note)
    if out is not None:
        say(f"submission: {out / 'submission'} ({len(found.missing)} files are missing)")


@app.command("sts")
def sts(
    encoder: Annotated[
        str,
        ENCODER,
        "starter-encoder, a folder, a hub id, the run of a training, or word vectors: "
        "words:FILE, words-idf:FILE, words-sif:FILE, usif:FILE.",
    ],
    data: Annotated[
        str,
        PATH,
        "--data -d",
        "A folder with STS sets (sts12.jsonl.gz ..., SentEval's or SemEval's layout), "
        "one file of scored pairs, a hub data set, or 'hub' for the usual ones.",
    ],
    settings: Annotated[StsSettings, Fields(reads={"training": DATA})],
    wrong: Annotated[int, SHOWN, "Number of the most wrong pairs to print."] = 0,
    out: ResultFolder = None,
    *,
    common: Annotated[Common, Fields(only=("device", "overwrite", "json"))],
) -> None:
    """Compare an encoder's cosines with people's scores: Spearman and Pearson x 100.

    [dim]tilth evaluate sts starter-encoder --data data/sts[/dim]
    """
    from tilth.workflows.evaluate_sts import evaluate_sts_to_run, remarks

    scores, pairs = evaluate_sts_to_run(
        encoder, data, settings, out=out, wrong=wrong, device=common.device,
        overwrite=common.overwrite,
    )  # fmt: skip
    if common.json:
        print_json(scores)
        return
    head = ("set", "Spearman", "95% interval", "Pearson", "pairs")
    print_table(encoder, head, [_line(key, score) for key, score in scores.items()])
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
                for pair in pairs[:wrong]
            ],
        )
    for line in remarks(scores):
        say(line)
    if out is not None:
        say(f"report: {out / 'report.html'}")


def _line(name: str, score: dict[str, Any]) -> tuple[str, ...]:
    from tilth.report.systems import interval

    pairs = f"{score['n']:,}" if "n" in score else _count(len(score["sets"]))
    return name, f"{score['spearman']:.1f}", interval(score), f"{score['pearson']:.1f}", pairs


def _count(sets: int) -> str:
    return "1 set" if sets == 1 else f"{sets} sets"
