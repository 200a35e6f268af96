"""tilth train: encoders from graded pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilth.classifiers.settings import Adaptation, Finetuning
from tilth.cli import options
from tilth.cli.checks import App
from tilth.cli.screen import print_json, print_table, say
from tilth.encoders.settings import Training, TripletTraining

if TYPE_CHECKING:
    from tilth.workflows.train_classifier import TrainedClassifier

_DEFAULT = Training()
app = App(no_args_is_help=True, help="Train encoders with generated or own data.")


@app.command("encoder")
def encoder(
    pairs: Annotated[
        str,
        typer.Argument(
            help="A curated set, the generate run that holds one, a labelled file (text_a, "
            "text_b, label 0 to 1) or a hub data set."
        ),
    ],
    out: options.Out,
    base: options.EncoderBase = "starter-encoder",
    epochs: options.PairEpochs = _DEFAULT.epochs,
    batch: Annotated[int, typer.Option(help="Pairs in a step.")] = _DEFAULT.batch,
    learning_rate: options.EncoderRate = _DEFAULT.learning_rate,
    warmup: options.Warmup = _DEFAULT.warmup,
    weight_decay: options.WeightDecay = _DEFAULT.weight_decay,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between checkpoints; the best on the validation part wins.")
    ] = _DEFAULT.evaluate_every,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    sts: Annotated[
        str | None,
        typer.Option(help="STS sets to measure base and result on (see tilth evaluate sts)."),
    ] = None,
    drop_overlap: Annotated[
        bool,
        typer.Option("--drop-overlap", help="Leave out pairs that hold a sentence of these sets."),
    ] = False,
    seed: options.PairSeed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a sentence encoder so that cosines come near the labels of pairs.

    [dim]tilth train encoder runs/pairs --out runs/encoder[/dim]
    """
    from tilth.workflows.train_encoder import EncoderOptions, train_and_measure

    training = Training(
        epochs, batch, learning_rate, warmup, weight_decay, evaluate_every, pooling, max_length,
        precision, seed,
    )  # fmt: skip
    result = train_and_measure(
        pairs, out, EncoderOptions(base, sts, drop_overlap, training),
        device=device, overwrite=overwrite, quiet=quiet,
    )  # fmt: skip
    if json:
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


_TRIPLET = TripletTraining()


def triplet(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Pairs that mean the same: files, folders or hub data sets with two columns of "
            "texts (text_a, text_b; en, de) or one of lists (captions); triples have a third, "
            "negative."
        ),
    ],
    out: options.Out,
    base: options.EncoderBase = "starter-encoder",
    pivot: Annotated[
        str | None,
        typer.Option(
            help="The column that is not trained on: texts beside the same one are paraphrases."
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            help="Graded pairs (a column label or score) mean the same from this score on; "
            "those below are left out."
        ),
    ] = None,
    dimension: Annotated[
        int, typer.Option(help="Numbers of a sentence's vector.")
    ] = _TRIPLET.dimension,
    margin: Annotated[
        float, typer.Option(help="By how much a partner is to be nearer than the negative.")
    ] = _TRIPLET.margin,
    epochs: options.PairEpochs = _TRIPLET.epochs,
    batch: Annotated[
        int, typer.Option(help="Pairs in a step; negatives are looked for among these.")
    ] = _TRIPLET.batch,
    learning_rate: options.EncoderRate = _TRIPLET.learning_rate,
    warmup: options.Warmup = _TRIPLET.warmup,
    weight_decay: options.WeightDecay = _TRIPLET.weight_decay,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between checkpoints; the best on held-out pairs wins.")
    ] = _TRIPLET.evaluate_every,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    seed: options.PairSeed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a sentence encoder so that texts that mean the same are near: SentAugment's way.

    [dim]tilth train triplet paraphrases.jsonl --out runs/triplet[/dim]
    """
    from tilth.encoders.triplet import read_triplet_curve, train_triplet
    from tilth.runs import refuse_inside

    refuse_inside(out, *sources, named=[base])
    train_triplet(
        sources,
        base,
        out,
        pivot=pivot,
        min_score=min_score,
        device=device,
        overwrite=overwrite,
        quiet=quiet,
        dimension=dimension,
        margin=margin,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        evaluate_every=evaluate_every,
        pooling=pooling,
        max_length=max_length,
        precision=precision,
        seed=seed,
    )
    found = read_triplet_curve(out)
    if json:
        print_json(found.to_dict())
        return
    say(
        f"encoder: {out / 'model'} (step {found.best}, reciprocal rank "
        f"{found.reciprocal_rank[found.step.index(found.best)]:.1f})"
    )
    say(f"measure it: tilth evaluate sts {out} --data FOLDER")


def print_trained(results: Mapping[str, Any]) -> None:
    """Print a training's results.json for a reader."""
    from tilth.report.systems import gain_lines, tested_on, validation_words

    head, lines = gain_lines(results)
    if lines:  # an interval stands under its figure: narrow screens hold all
        print_table(
            f"x 100 (95% interval over rows; one training), {tested_on(results)}",
            ["", *head[1::2]],
            [
                [line[0], *map("\n".join, zip(line[1::2], line[2::2], strict=True))]
                for line in lines
            ],
        )
    for line in (*results.get("warnings", []), *results.get("notes", [])):
        say(line)
    best = results["best"]
    score = "no validation rows" if best["score"] is None else f"{best['score']:.1f}"
    seed = f"seed {best['seed']}, " if len(results["seeds"]) > 1 else ""
    say(f"kept: {seed}step {best['step']}, {validation_words(results)} {score}")


STARTER = "starter-encoder"
_CLASSIFIER, _ADAPTED = Finetuning(), Adaptation()

Source = Annotated[
    str,
    typer.Argument(
        help="A run of tilth augment; or a labelled set: a file, a folder, a hub data set. A "
        "column probabilities holds a teacher's, which are learned then."
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o",
        help="The run folder. The same command goes on in it. Default: RUN/classifier of an "
        "augment run.",
        show_default=False,
    ),
]  # fmt: skip
Base = Annotated[
    str,
    typer.Option(
        "--base", "-b",
        help="starter-encoder, starter-mlm, starter-small (two layers: a fast student that costs "
        "points of accuracy), an encoder's folder, or a hub id.",
    ),
]  # fmt: skip
Test = Annotated[
    str | None,
    typer.Option("--test", help="Labelled rows to measure on; default: those of an augment run."),
]
WithLabelled = Annotated[
    bool,
    typer.Option(
        "--with-labelled/--retrieved-only",
        help="Whether to train on the labelled rows of an augment run too.",
    ),
]
LabelledShare = Annotated[
    float | None,
    typer.Option(
        help="The part of all rows that labelled rows are: each is repeated to make it up, 16 "
        "times at most. Default: a quarter for an augment run, else each row once.",
        show_default=False,
    ),
]
NoBaseline = Annotated[
    bool,
    typer.Option(
        "--no-baseline",
        help="Measure no simple baselines beside, and of an augment run do not train on the "
        "labelled rows alone.",
    ),
]
Labelled = Annotated[
    str | None, typer.Option(help="More labelled rows to train on, beside a teacher's.")
]
ValidationFile = Annotated[
    str | None,
    typer.Option(
        "--validation",
        help="Labelled rows to choose the best weights with; default: those of an augment run, "
        "else a tenth of each label.",
    ),
]
Loss = Annotated[
    str,
    typer.Option(help="Of probabilities: kl takes them as they are, hard the likeliest label."),
]
Seeds = Annotated[
    int, typer.Option(help="Trainings, each with its seed, of which the best is kept.")
]
Batch = Annotated[int, typer.Option(help="Rows in a step.")]
LearningRate = Annotated[
    float | None,
    typer.Option(
        help="Highest learning rate; default: 1e-5, for starter-mlm 3e-4, starter-encoder 1e-4, "
        "starter-small 5e-4."
    ),
]
Dropout = Annotated[float, typer.Option(help="Of every part of the model.")]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(
        help="Steps between measurements and checkpoints; default: ten in all, one an epoch at "
        "least."
    ),
]
LabelSmoothing = Annotated[
    float, typer.Option(help="Share of each label that is spread over all of them.")
]
FirstSeed = Annotated[
    int, typer.Option("--seed", help="Same rows, settings and seed, same weights.")
]


def _command(described: str, *, tags: bool) -> Callable[..., None]:
    """Return `tilth train classifier` or `tagger`: other models, the same options."""

    def command(
        source: Source,
        out: OutFolder = None,
        base: Base = STARTER,
        test: Test = None,
        labelled: Labelled = None,
        with_labelled: WithLabelled = True,
        labelled_share: LabelledShare = None,
        no_baseline: NoBaseline = False,
        validation: ValidationFile = None,
        text: options.Text = None,
        label: options.Label = None,
        loss: Loss = "kl",
        seeds: Seeds = 1,
        epochs: options.Epochs = _CLASSIFIER.epochs,
        batch: Batch = _CLASSIFIER.batch,
        learning_rate: LearningRate = _CLASSIFIER.learning_rate,
        warmup: options.Warmup = _CLASSIFIER.warmup,
        weight_decay: options.WeightDecay = _CLASSIFIER.weight_decay,
        dropout: Dropout = _CLASSIFIER.dropout or 0.0,
        evaluate_every: EvaluateEvery = _CLASSIFIER.evaluate_every,
        label_smoothing: LabelSmoothing = _CLASSIFIER.label_smoothing,
        max_length: options.MaxLength = _CLASSIFIER.max_length,
        bootstrap: options.Bootstrap = 2000,
        seed: FirstSeed = 0,
        device: options.Device = "auto",
        precision: options.TrainingPrecision = "auto",
        overwrite: options.Overwrite = False,
        quiet: options.Quiet = False,
        json: options.Json = False,
    ) -> None:
        from tilth.workflows.train_classifier import ClassifierOptions, train_and_test

        training = Finetuning(
            epochs=epochs, batch=batch, learning_rate=learning_rate, warmup=warmup,
            weight_decay=weight_decay, dropout=dropout, evaluate_every=evaluate_every,
            label_smoothing=label_smoothing, max_length=max_length, precision=precision, seed=seed,
        )  # fmt: skip
        chosen = ClassifierOptions(
            base, test, validation, labelled, with_labelled, labelled_share, not no_baseline,
            options.columns(text), label, loss, seeds, bootstrap, training,
        )  # fmt: skip
        trained = train_and_test(
            source, out, chosen, tags=tags, device=device, overwrite=overwrite, quiet=quiet
        )
        _show("tagger" if tags else "classifier", trained, as_json=json)

    command.__doc__ = described
    return command


classifier = _command(
    """Train a classifier of texts, or of pairs, from labels or a teacher's probabilities.

    Measured beside logistic regression on embeddings and on words, and a teacher where one was.

    [dim]tilth train classifier runs/more[/dim]
    [dim]tilth train classifier reviews.csv --test test.csv --out runs/classifier[/dim]
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


def adapt(
    texts: Annotated[str, typer.Argument(help="Texts: a file, a folder, a run or a hub data set.")],
    out: options.Out,
    base: Annotated[
        str,
        typer.Option(
            "--base", "-b", help="starter-mlm, a masked language model's folder, or a hub id."
        ),
    ] = "starter-mlm",
    column: options.Column = None,
    epochs: Annotated[float, typer.Option(help="Passes over the texts.")] = _ADAPTED.epochs,
    batch: Annotated[int, typer.Option(help="Texts in a step.")] = _ADAPTED.batch,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Highest learning rate; default: 1e-4, for the starters 5e-4."),
    ] = _ADAPTED.learning_rate,
    warmup: options.Warmup = _ADAPTED.warmup,
    weight_decay: options.WeightDecay = _ADAPTED.weight_decay,
    masked: Annotated[
        float, typer.Option(help="Share of the tokens that are to be guessed.")
    ] = _ADAPTED.masked,
    max_length: Annotated[int, typer.Option(help="Tokens read of a text.")] = _ADAPTED.max_length,
    save_every: Annotated[
        int, typer.Option(help="Steps between checkpoints.")
    ] = _ADAPTED.save_every,
    seed: FirstSeed = 0,
    device: options.Device = "auto",
    precision: options.TrainingPrecision = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a base on texts of a domain before it is given labels: it guesses hidden tokens.

    [dim]tilth train adapt sentences.txt --out runs/base[/dim]
    """
    from tilth.classifiers import mlm as adapting

    adapting.adapt(
        texts, base, out, column=column, device=device, overwrite=overwrite, quiet=quiet,
        epochs=epochs, batch=batch, learning_rate=learning_rate, warmup=warmup,
        weight_decay=weight_decay, masked=masked, max_length=max_length, save_every=save_every,
        precision=precision, seed=seed,
    )  # fmt: skip
    found = adapting.losses_of(out)
    if json:
        print_json({"model": str(out / "model"), **found})
        return
    say(f"base: {out / 'model'} (loss {found['first']:.2f} at first, {found['last']:.2f} at last)")
    say(f"train with it: tilth train classifier FILE --base {out} --out RUN")


def _show(what: str, trained: TrainedClassifier, *, as_json: bool) -> None:
    model = trained.out / "model"
    if as_json:
        print_json({"model": str(model), **trained.results})
        return
    print_trained(trained.results)
    say(f"{what}: {model}")
    say(f"report: {trained.out / 'report.html'}")


app.command("triplet")(triplet)
app.command("classifier")(classifier)
app.command("tagger")(tagger)
app.command("adapt")(adapt)
