"""tilth paraphrase: rewrite a set; make and train rewriters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from tilth import limits
from tilth.cli.app import App, Fields
from tilth.cli.options import DATA, REWRITE, SCORER, SEQ2SEQ, Common, Out
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError
from tilth.paraphrase.settings import (
    TRIES,
    CandidateSettings,
    CorpusSettings,
    RewriterTraining,
    RewriteSettings,
)
from tilth.runs import finished_results
from tilth.runs.cluster import Cluster

if TYPE_CHECKING:
    from tilth.paraphrase.rewriter import Rewriter
    from tilth.paraphrase.round_trip import RoundTripRewriter

_CORPUS = ("size", "validation", "test", "scorer", "metric", "seed")
_REWRITES = (
    "meaning", "wording", "min_meaning", "n", "steer", "beams", "seed", "originals", "round_trip",
    "forward", "backward", "part_size",
)  # fmt: skip


def candidates(
    sentences: Annotated[
        str,
        DATA,
        "Single sentences: a txt, jsonl, json, csv, tsv or parquet file (plain or gz), a folder "
        "of them, or a hub data set.",
    ],
    out: Out,
    settings: Annotated[
        CandidateSettings, Fields(reads={"forward": SEQ2SEQ, "backward": SEQ2SEQ, "scorer": SCORER})
    ],
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    column: limits.TextColumn = None,
    split: limits.SourceSplit = "train",
    *,
    common: Common,
) -> None:
    """Translate sentences and translate them back: candidates a rewriter can learn from.

    [dim]tilth paraphrase candidates sentences.txt --out runs/candidates[/dim]

    [dim]tilth paraphrase candidates wiki.txt --forward facebook/wmt19-en-de
    --backward facebook/wmt19-de-en --out runs/wmt19[/dim]
    """
    cluster.check_head()
    from tilth.paraphrase.make_candidates import make_candidates

    make_candidates(
        sentences, out, settings, column=column, split=split, cluster=cluster, **common.job
    )
    found = finished_results(out)
    if common.json:
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
        DATA,
        "CANDIDATES...",
        "Runs of tilth paraphrase candidates, or any sets with text_a, text_b and, where "
        "known, meaning and wording.",
    ],
    out: Out,
    settings: Annotated[CorpusSettings, Fields(only=_CORPUS, reads={"scorer": SCORER})],
    precision: limits.ModelPrecision = "auto",
    *,
    common: Common,
) -> None:
    """Make the corpus of a rewriter: filtered, drawn evenly over 48 cells, split by sentences.

    [dim]tilth paraphrase corpus runs/candidates --out runs/corpus[/dim]
    """
    from tilth.paraphrase.corpus import make_corpus
    from tilth.report.paraphrase import write_corpus_report
    from tilth.report.run_reader import refuse_edited

    make_corpus(list(sources), out, settings, precision=precision, **common.job)
    with refuse_edited(out):
        write_corpus_report(out)
        _show_corpus(finished_results(out), out, as_json=common.json)


def _show_corpus(found: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [("read", found["candidates"]), *found["left_out"].items(), ("kept", found["kept"])]
    rows += [(f"drawn: {name}", count) for name, count in found["drawn"].items()]
    print_table("Pairs", ("", "pairs"), [(name, f"{count:,}") for name, count in rows])
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")


def train(
    corpus: Annotated[
        str,
        DATA,
        "A run of tilth paraphrase corpus, or a set with splits train and validation and "
        "columns text_a, text_b, tags.",
    ],
    out: Out,
    training: RewriterTraining,
    base: Annotated[
        str, SEQ2SEQ, "--base -b", "An encoder-decoder: starter, a folder, or a hub id."
    ] = "starter",
    *,
    common: Common,
) -> None:
    """Train a rewriter on a corpus; it stops when the validation loss no longer falls.

    [dim]tilth paraphrase train runs/corpus --base starter --out runs/rewriter[/dim]
    """
    from tilth.paraphrase.train import train_rewriter
    from tilth.report.paraphrase import write_rewriter_report

    train_rewriter(corpus, base, out, **common.job, **asdict(training))
    write_rewriter_report(out)
    found = finished_results(out)
    if common.json:
        print_json(found)
        return
    best = found["best"]
    say(
        f"rewriter: {out / 'model'} (epoch {best['epoch']} of {found['epochs']}, validation loss "
        f"{best['validation_loss']:.3f})"
    )
    say(f"report:   {out / 'report.html'}")


class _Default(typer.core.TyperGroup):
    """Runs `tilth paraphrase FILE ...` as `tilth paraphrase rewrite FILE ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [REWRITE, *args]
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


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """What is rewritten, by which model, and what of it is left out."""

    column: Annotated[
        tuple[str, ...],
        "A column to rewrite; may be repeated. Default: all texts of triples or pairs, "
        "else the text.",
    ] = ()
    split: limits.SourceSplit = "train"
    polarity: Annotated[
        bool | None,
        "--polarity/--no-polarity",
        "Leave out rewrites that say the opposite (a negation, an antonym); English. "
        "Default: where tilth-starter, which holds the check, is installed.",
    ] = None
    check: Annotated[
        bool,
        "Search again while no rewrite lies in the asked cell and the last search came "
        "nearer. Takes 2.8 times as long; few more land.",
    ] = False
    tries: Annotated[int | None, limits.TRIES, "Searches at most, with --check; default 3."] = None
    model: Annotated[
        str,
        SEQ2SEQ,
        "--model -m",
        "starter, a run of tilth paraphrase train, a model folder or a hub id.",
    ] = "starter"
    scorer: Annotated[
        str,
        SCORER,
        "What measures meaning: starter, a cross-encoder's folder or hub id, or cosine:ENCODER.",
    ] = "starter"
    precision: limits.ModelPrecision = "auto"


@app.command(REWRITE)
def rewrite(
    source: Annotated[
        str,
        DATA,
        "FILE",
        "The set: a txt, jsonl, json, csv, tsv or parquet file (plain or gz), a folder of them, "
        "a run's data set or a hub data set.",
    ],
    out: Out,
    settings: Annotated[
        RewriteSettings,
        Fields("Rewrites", _REWRITES, reads={"forward": SEQ2SEQ, "backward": SEQ2SEQ}),
    ],
    how: _Rewriting,
    cluster: Annotated[Cluster, Fields("Beyond this process")],
    common: Common,
) -> None:
    """Rewrite the texts of a set at an asked meaning and wording; labels are copied.

    [dim]tilth paraphrase data.jsonl --column text --originals --out runs/doubled[/dim]

    [dim]tilth paraphrase pairs.csv --meaning 95 --wording 40 --min-meaning 85 --out runs/near[/dim]
    """
    cluster.check_head()
    from tilth.paraphrase.paraphrase_set import run_paraphrase

    if how.tries is not None and not how.check:
        raise InputError("--tries counts with --check only: give both, or neither")
    if settings.round_trip and (how.check or how.polarity or how.model != "starter"):
        raise InputError(
            "--round-trip translates and checks nothing: leave --check, --polarity and --model out"
        )
    settings = replace(settings, tries=(how.tries or TRIES) if how.check else 1)

    def load() -> Rewriter | RoundTripRewriter:
        from tilth.paraphrase.rewriter import load_paraphraser  # not above: torch
        from tilth.paraphrase.round_trip import load_round_trip

        loading = {"scorer": how.scorer, "device": common.device, "precision": how.precision}
        if settings.round_trip:
            return load_round_trip(settings.forward, settings.backward, **loading)
        return load_paraphraser(how.model, polarity=how.polarity, **loading)

    run_paraphrase(
        source, load, settings, out, columns=list(how.column) or None, split=how.split,
        cluster=cluster, overwrite=common.overwrite, quiet=common.quiet,
    )  # fmt: skip
    from tilth.report.paraphrase import write_rewrite_report

    write_rewrite_report(out)
    print_rewrites(out, as_json=common.json)
    if common.json:
        return
    say(f"data set: {out / 'dataset'}")
    say(f"report:   {out / 'report.html'}")


def print_rewrites(out: Path, *, as_json: bool) -> None:
    """Print what was asked of a run and what was obtained."""
    from tilth.report.rewrites import read_rewrites

    summary = read_rewrites(out).summary
    if as_json:
        print_json(summary.to_dict())
    else:
        print_table("Meaning and wording", ("", "asked", "obtained"), summary.lines())


app.command("candidates")(candidates)
app.command("corpus")(corpus)
app.command("train")(train)
