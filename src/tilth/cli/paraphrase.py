"""tilth paraphrase: a set in other words; and the making of rewriters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from tilth.cli import options
from tilth.cli.checks import App
from tilth.cli.screen import print_json, print_table, say
from tilth.paraphrase.settings import (
    TRIES,
    CandidateSettings,
    CorpusSettings,
    RewriterTraining,
    RewriteSettings,
)

_TRANSLATORS = "Translators and search"


def candidates(
    sentences: Annotated[
        str,
        typer.Argument(
            help="Single sentences: a txt, jsonl, csv, tsv or parquet file (plain or gz), a folder "
            "of them, or a hub data set."
        ),
    ],
    out: options.Out,
    forward: Annotated[
        str,
        typer.Option(
            help="Translates into another language: starter (English to German), a folder or a "
            "hub id.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = "starter",
    backward: Annotated[
        str, typer.Option(help="Translates back.", rich_help_panel=_TRANSLATORS)
    ] = "starter",
    forward_prefix: Annotated[
        str | None,
        typer.Option(
            help="Written before every text, for a model of several languages, such as '>>de<< '.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = None,
    backward_prefix: Annotated[
        str | None, typer.Option(help="The same, on the way back.", rich_help_panel=_TRANSLATORS)
    ] = None,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy",
            help="One candidate a sentence, the likeliest word at every step, instead of four by "
            "sampling.",
            rich_help_panel=_TRANSLATORS,
        ),
    ] = False,
    beams: Annotated[
        int, typer.Option(help="Width of the search.", rich_help_panel=_TRANSLATORS)
    ] = 5,
    scorer: options.Scorer = "starter",
    column: options.Column = None,
    split: options.Split = "train",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    part_size: Annotated[int, typer.Option(help="Sentences written as one part.")] = 256,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Translate sentences and translate them back: candidates a rewriter can learn from.

    [dim]tilth paraphrase candidates sentences.txt --out runs/candidates[/dim]

    [dim]tilth paraphrase candidates wiki.txt --forward facebook/wmt19-en-de
    --backward facebook/wmt19-de-en --out runs/wmt19[/dim]
    """
    from tilth.paraphrase.make_candidates import make_candidates
    from tilth.runs import read_results

    settings = CandidateSettings(
        forward, backward, forward_prefix, backward_prefix, scorer, greedy, beams, precision, seed,
        part_size,
    )  # fmt: skip
    make_candidates(
        sentences, out, settings, column=column, split=split, device=device, overwrite=overwrite,
        quiet=quiet,
    )  # fmt: skip
    found = read_results(out)
    assert found is not None  # it was just written
    if json:
        print_json({**found, "dataset": str(out / "dataset")})
        return
    share = 100 / max(found["rows"], 1)
    rows = [
        ("candidates", f"{found['rows']:,}"),
        ("meaning above 70 and wording at most 45", f"{found['good'] * share:.1f}%"),
        ("equal to their source", f"{found['same'] * share:.1f}%"),
        ("mean meaning", f"{found['meaning'] or 0:.1f}"),
        ("mean wording", f"{found['wording'] or 0:.1f}"),
        *((f"dropped: {reason}", f"{count:,}") for reason, count in found["drops"].items()),
    ]
    print_table("Round trips", ("", "value"), rows)
    say(f"data set: {out / 'dataset'}")


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
    from tilth.report.run_reader import refuse_edited

    settings = CorpusSettings(size, validation, test, seed, scorer, metric)
    make_corpus(
        list(sources), out, settings, device=device, precision=precision, overwrite=overwrite,
        quiet=quiet,
    )  # fmt: skip
    with refuse_edited(out):
        write_corpus_report(out)
        _show(out, as_json=json)


def _show(out: Path, *, as_json: bool) -> None:
    from tilth.runs import read_results

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
    from tilth.runs import read_results

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


_REWRITE = "rewrite"
_ASKED, _SEARCH, _RUN = "What is asked for", "Search", "Running"


class _Default(typer.core.TyperGroup):
    """Takes `tilth paraphrase FILE ...` for `tilth paraphrase rewrite FILE ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_REWRITE, *args]
        return super().parse_args(ctx, args)


app = App(
    cls=_Default,
    no_args_is_help=True,
    help=(
        "Rewrite texts at a chosen similarity of meaning and wording, or train such a rewriter.\n\n"
        "[dim]tilth paraphrase data.jsonl --meaning 95 --wording 20 --out runs/other[/dim]\n\n"
        "A file's name instead of a command stands for `rewrite`, whose --help has the options."
    ),
)


@app.command(_REWRITE)
def rewrite(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The set: a txt, jsonl, csv, tsv or parquet file (plain or gz), a folder of them, "
            "a run's data set or a hub data set.",
        ),
    ],
    out: options.Out,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column to rewrite; may be repeated. Default: all texts of triples or pairs, "
            "else the text."
        ),
    ] = None,
    split: options.Split = "train",
    meaning: Annotated[
        float, typer.Option(help="Similarity of meaning, 70 to 100.", rich_help_panel=_ASKED)
    ] = 95.0,
    wording: Annotated[
        float, typer.Option(help="Similarity of wording, 0 to 45.", rich_help_panel=_ASKED)
    ] = 20.0,
    min_meaning: Annotated[
        float,
        typer.Option(
            help="Leave out rewrites whose measured meaning is below; 0: none.",
            rich_help_panel=_ASKED,
        ),
    ] = 80.0,
    polarity: Annotated[
        bool | None,
        typer.Option(
            "--polarity/--no-polarity",
            help="Leave out rewrites that say the opposite (a negation, an antonym); English. "
            "Default: where tilth-starter, which holds the check, is installed.",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    number: Annotated[
        int, typer.Option("-n", "--number", help="Rewrites of each row.", rich_help_panel=_ASKED)
    ] = 1,
    originals: Annotated[
        bool,
        typer.Option(
            "--originals", help="Keep the rows as they were, too.", rich_help_panel=_ASKED
        ),
    ] = False,
    steer: Annotated[
        bool,
        typer.Option(
            help="Search at several costs of copying and take the nearest to what is asked; "
            "without it the best of the paper's plain beam search.",
            rich_help_panel=_SEARCH,
        ),
    ] = True,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Search again while nothing that came out lies in the asked cell and the last "
            "search came nearer. Takes 2.8 times as long; few more land.",
            rich_help_panel=_SEARCH,
        ),
    ] = False,
    tries: Annotated[
        int | None,
        typer.Option(help="Searches at most, with --check; default 3.", rich_help_panel=_SEARCH),
    ] = None,
    beams: Annotated[
        int,
        typer.Option(help="Width of the search; the paper's is 20.", rich_help_panel=_SEARCH),
    ] = 5,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="starter, a run of tilth paraphrase train, a model folder or a hub id.",
        ),
    ] = "starter",
    scorer: options.Scorer = "starter",
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    part_size: Annotated[
        int | None,
        typer.Option(
            help="Rows written as one part; default: a sixteenth of the set, 32 to 256.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Rewrite the texts of a set at an asked meaning and wording; labels are copied.

    [dim]tilth paraphrase data.jsonl --column text --originals --out runs/doubled[/dim]

    [dim]tilth paraphrase pairs.csv --meaning 95 --wording 40 --min-meaning 85 --out runs/near[/dim]
    """
    from tilth.errors import InputError
    from tilth.paraphrase.paraphrase_set import run_paraphrase
    from tilth.paraphrase.rewriter import load_paraphraser
    from tilth.report.paraphrase import rewrite_summary, write_rewrite_report

    if tries is not None and not check:
        raise InputError("--tries counts with --check only: give both, or neither")
    tried = (tries or TRIES) if check else 1
    asked = RewriteSettings(
        meaning, wording, min_meaning, number, steer, tried, beams, seed, originals, part_size
    )
    rewriter = load_paraphraser(
        model, scorer=scorer, polarity=polarity, device=device, precision=precision
    )
    run_paraphrase(
        source, rewriter, asked, out, columns=column or None, split=split, overwrite=overwrite,
        quiet=quiet,
    )  # fmt: skip
    write_rewrite_report(out)
    summary = rewrite_summary(out)
    if json:
        print_json(summary.to_dict())
        return
    print_table("Asked and obtained", ("", "asked", "obtained"), summary.lines())
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")


app.command("candidates")(candidates)
app.command("corpus")(corpus)
app.command("train")(train)
