"""tilth paraphrase: a set in other words; and the making of rewriters."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import typer.core

from tilth.cli import options, paraphrase_candidates, paraphrase_corpus, paraphrase_train
from tilth.cli.checks import App
from tilth.cli.screen import print_json, print_table, say

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
    from tilth.paraphrase.dataset import run_paraphrase
    from tilth.paraphrase.rewrite import load_paraphraser
    from tilth.paraphrase.settings import TRIES, Asked
    from tilth.report.paraphrase import rewrite_summary, write_rewrite_report

    if tries is not None and not check:
        raise InputError("--tries counts with --check only: give both, or neither")
    tried = (tries or TRIES) if check else 1
    asked = Asked(
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


app.command("candidates")(paraphrase_candidates.candidates)
app.command("corpus")(paraphrase_corpus.corpus)
app.command("train")(paraphrase_train.train)
