"""tilth train: train encoders, classifiers, taggers and bases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tilth.classifiers.settings import Adaptation, ClassifierTraining
from tilth.cli.app import App, Fields
from tilth.cli.options import CLASSIFIER, DATA, ENCODER, PATH, RUN_FOLDER, Common, Out
from tilth.cli.screen import command_line, print_json, print_table, say
from tilth.encoders.settings import ENCODER_BASES, SimcseTraining, TripletTraining
from tilth.limits import TextColumn
from tilth.workflows.settings import ClassifierOptions, EncoderOptions, ScorerOptions

if TYPE_CHECKING:
    from tilth.workflows.train_and_test import TrainedClassifier

_TRAINING = "Training"
app = App(no_args_is_help=True, help="Train encoders, classifiers, taggers and scorers.")


@app.command("encoder")
def encoder(
    pairs: Annotated[
        str,
        DATA,
        "A curated set, the generate run that holds one, a labelled file (text_a, "
        "text_b, label 0 to 1 or 0 to 5) or a hub data set.",
    ],
    out: Out,
    settings: Annotated[EncoderOptions, Fields(reads={"base": ENCODER, "sts": PATH})],
    common: Common,
) -> None:
    """Train a sentence encoder so that cosines come near the labels of pairs.

    [dim]tilth train encoder runs/pairs --out runs/encoder[/dim]
    """
    from tilth.models.distributed import every_process

    with every_process() as leads:
        if not leads:
            return
        from tilth.workflows.train_encoder import train_and_measure

        result = train_and_measure(pairs, out, settings, **common.job)
    if common.json:
        print_json(asdict(result))
        return
    head, lines = result.table
    if lines:
        print_table("Spearman x 100 on STS", head, lines)
    for line in (*result.warnings, *result.notes):
        say(line)
    kept = f"step {result.best}, {result.validation_words} {result.validation:.1f}"
    say(f"encoder: {out / 'model'} ({kept})")
    say(f"report: {out / 'report.html'}")


@app.command("triplet")
def triplet(
    sources: Annotated[
        list[str],
        DATA,
        "Pairs that mean the same: files, folders or hub data sets with two columns of "
        "texts (text_a, text_b; en, de) or one of lists (captions); triples have a third, "
        "negative.",
    ],
    out: Out,
    training: Annotated[TripletTraining, Fields(_TRAINING)],
    base: Annotated[str, ENCODER, "--base -b", ENCODER_BASES] = "starter-encoder",
    pivot: Annotated[
        str | None, "The column that is not trained on: texts beside the same one are paraphrases."
    ] = None,
    *,
    common: Common,
) -> None:
    """Train a sentence encoder so that texts that mean the same are near: SentAugment's way.

    [dim]tilth train triplet paraphrases.jsonl --out runs/triplet[/dim]
    """
    from tilth.encoders.train import read_curve
    from tilth.encoders.triplet import train_triplet

    train_triplet(sources, base, out, pivot=pivot, **common.job, **asdict(training))
    found = read_curve(out)
    if common.json:
        print_json(found)
        return
    say(
        f"encoder: {out / 'model'} (step {found['best']}, reciprocal rank "
        f"{max(found['reciprocal_rank']):.1f})"
    )
    say(f"measure it: {command_line('evaluate', 'sts', out, '--data', 'FOLDER')}")


@app.command("simcse")
def simcse(
    sources: Annotated[
        list[str],
        DATA,
        "Single texts; rewrites of tilth paraphrase; pairs that mean the same; triples with a "
        "column negative; or NLI (premise, hypothesis, label).",
    ],
    out: Out,
    training: Annotated[SimcseTraining, Fields(_TRAINING)],
    validation: Annotated[
        str | None,
        DATA,
        "Graded pairs that choose the checkpoint, such as STS Benchmark's dev part. Default: the "
        "last checkpoint is kept.",
    ] = None,
    base: Annotated[str, ENCODER, "--base -b", ENCODER_BASES] = "starter-mlm",
    *,
    common: Common,
) -> None:
    """Train a sentence encoder by contrast: a text's positive against the batch's other texts.

    [dim]tilth train simcse sentences.txt --validation stsb-dev.jsonl --out runs/simcse[/dim]

    [dim]tilth train simcse nli.jsonl rewritten --validation stsb-dev.jsonl --out runs/sup[/dim]
    """
    from tilth.encoders.simcse import score_untrained, train_simcse
    from tilth.encoders.train import read_curve

    train_simcse(sources, base, out, validation=validation, **common.job, **asdict(training))
    found = read_curve(out)
    untrained = {} if validation is None else score_untrained(validation, base, common.device)
    if common.json:
        print_json({**found, "untrained": untrained})
        return
    measured = "not measured" if validation is None else f"validation {max(found['spearman']):.1f}"
    say(f"encoder: {out / 'model'} (step {found['best']}, {measured})")
    for name, score in untrained.items():
        say(f"{name} as it is: validation {score:.1f}")
    say(f"measure it: {command_line('evaluate', 'sts', out, '--data', 'FOLDER')}")


@app.command("scorer")
def scorer(
    pairs: Annotated[
        str, DATA, "Graded pairs: a file, folder or hub data set with text_a, text_b, label."
    ],
    out: Out,
    settings: Annotated[
        ScorerOptions,
        Fields(reads={"base": CLASSIFIER, "validation": DATA, "test": DATA, "first": DATA}),
    ],
    common: Common,
) -> None:
    """Train a scorer of meaning: a cross-encoder that reads both texts at once.

    [dim]tilth train scorer stsb-train.jsonl --validation stsb-dev.jsonl --out runs/scorer[/dim]

    [dim]tilth paraphrase data.jsonl --scorer runs/scorer --out runs/other[/dim]
    """
    from tilth.workflows.train_scorer import train_scorer

    results = train_scorer(pairs, out, settings, **common.job)
    if common.json:
        print_json({"model": str(out / "model"), **results})
        return
    if results["tested"]:
        head = ["", "Pearson", "Spearman", "95% interval", "pairs"]
        lines = [
            [name, f"{one['pearson']:.1f}", f"{one['spearman']:.1f}",
             f"{one['low']:.1f} to {one['high']:.1f}", f"{one['pairs']:,}"]
            for name, one in results["tested"].items()
        ]  # fmt: skip
        print_table("x 100, on the test pairs", head, lines)
    for line in results["warnings"]:
        say(line)
    best = results["best"]
    say(f"scorer: {out / 'model'} (seed {best['seed']}, step {best['step']}, "
        f"{results['measure']} {best['score']:.1f})")  # fmt: skip


def print_trained(results: Mapping[str, Any]) -> None:
    """Print the results.json of a training as a table."""
    from tilth.report.systems import comparison, tested_on, validation_words

    head, lines, _ = comparison(results)
    has_intervals = any(interval for line in lines for _, interval in line[1:])
    intervals = "95% interval over rows; " if has_intervals else ""
    if lines:  # an interval stands under its figure: narrow screens hold all
        print_table(
            f"x 100 ({intervals}one training), {tested_on(results)}",
            ["", *head[1:]],
            [[line[0], *map("\n".join, line[1:])] for line in lines],
        )
    for line in (*results.get("warnings", []), *results.get("notes", [])):
        say(line)
    best = results["best"]
    seed = f"seed {best['seed']}, " if len(results["seeds"]) > 1 else ""
    words = "the last: there are no validation rows"
    if best["score"] is not None:
        words = f"{validation_words(results)} {best['score']:.1f}"
    say(f"kept: {seed}step {best['step']}, {words}")


def _command(described: str, *, tags: bool) -> Callable[..., None]:
    """Return `tilth train classifier` or `tagger`: other models, the same options."""

    def command(
        source: Annotated[
            str,
            DATA,
            "A run of tilth augment; or a labelled set: a file, a folder, a hub data set. "
            "A column probabilities holds a teacher's, which are learned then.",
        ],
        settings: Annotated[
            ClassifierOptions,
            Fields(
                reads={
                    "base": CLASSIFIER,
                    "test": DATA,
                    "validation": DATA,
                    "labelled": DATA,
                    "first": DATA,
                }
            ),
        ],
        out: Annotated[
            Path | None,
            RUN_FOLDER,
            "--out -o",
            "The run folder. The same command goes on in it. Default: RUN/classifier of "
            "an augment run.",
        ] = None,
        *,
        common: Common,
    ) -> None:
        from tilth.classifiers.load import TaskSources
        from tilth.models.distributed import every_process

        sources = TaskSources(
            source, settings.validation, settings.test, settings.labelled, settings.text,
            settings.label,
        )  # fmt: skip
        training = ClassifierTraining(
            settings.base, settings.training, settings.loss, settings.labelled_share,
            settings.seeds, settings.keep, **common.job,
        )  # fmt: skip
        with every_process() as leads:
            if not leads:
                return
            from tilth.workflows.train_and_test import train_and_test

            trained = train_and_test(
                sources, training, out, tags=tags, with_labelled=settings.with_labelled,
                baseline=settings.baseline, bootstrap=settings.bootstrap, first=settings.first,
            )  # fmt: skip
        _show("tagger" if tags else "classifier", trained, as_json=common.json)

    command.__doc__ = described
    return command


classifier = _command(
    """Train a classifier of texts, or of pairs, from labels or a teacher's probabilities.

    Measured beside SetFit and logistic regressions (unless --no-baseline) and a teacher, if any.

    [dim]tilth train classifier runs/more[/dim]
    [dim]tilth train classifier reviews.csv --test test.csv --out runs/classifier[/dim]

    [dim]tilth train classifier rte.jsonl --first nli.jsonl --out runs/stilts[/dim]
    """,
    tags=False,
)
tagger = _command(
    """Train a tagger of tokens, such as of names, from IOB2 tags or a teacher's probabilities.

    Of a run of tilth augment as tilth train classifier.

    [dim]tilth train tagger names.jsonl --test test.jsonl --out runs/tagger[/dim]
    """,
    tags=True,
)


@app.command("adapt")
def adapt(
    texts: Annotated[str, DATA, "Texts: a file, a folder, a run or a hub data set."],
    out: Out,
    training: Annotated[Adaptation, Fields(_TRAINING)],
    base: Annotated[
        str, CLASSIFIER, "--base -b", "starter-mlm, a masked language model's folder, or a hub id."
    ] = "starter-mlm",
    column: TextColumn = None,
    *,
    common: Common,
) -> None:
    """Train a base on texts of a domain before it is given labels: it predicts masked tokens.

    [dim]tilth train adapt sentences.txt --out runs/base[/dim]
    """
    from tilth.classifiers import mlm as adapting

    adapting.adapt(texts, base, out, column=column, **common.job, **asdict(training))
    found = adapting.losses_of(out)
    if common.json:
        print_json({"model": str(out / "model"), **found})
        return
    say(f"base: {out / 'model'} (loss {found['first']:.2f} at first, {found['last']:.2f} at last)")
    again = command_line("train", "classifier", "FILE", "--base", out, "--out", "RUN")
    say(f"train with it: {again}")


def _show(what: str, trained: TrainedClassifier, *, as_json: bool) -> None:
    model = trained.out / "model"
    if as_json:
        print_json({"model": str(model), **trained.results})
        return
    print_trained(trained.results)
    say(f"{what}: {model}")
    say(f"report: {trained.out / 'report.html'}")


app.command("classifier")(classifier)
app.command("tagger")(tagger)
