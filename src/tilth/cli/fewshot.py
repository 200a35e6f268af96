"""tilth fewshot: measure few-shot learning with and without sentences of a bank."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated

from tilth.classifiers.settings import Finetuning
from tilth.cli.app import Fields
from tilth.cli.options import CLASSIFIER, DATA, Common, LabelledSet, Out, SearchedBank, Validation
from tilth.cli.screen import print_json, print_table, say
from tilth.errors import InputError
from tilth.limits import EPOCHS, ROWS, LabelColumn
from tilth.selftrain.settings import QUICK, FewShot, both_ways

if TYPE_CHECKING:
    from tilth.selftrain.few_shot import FewShotResults

_QUICK = FewShot(
    seeds=QUICK["seeds"], best=QUICK["best"], training=Finetuning(epochs=QUICK["epochs"])
)
_SHOWN = (
    "draws", "per_class", "sentences", "validation", "seeds", "best", "seed", "epochs",
    "max_length",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The base, the sets' columns, and what differs from the paper."""

    validation: Validation = None
    base: Annotated[
        str, CLASSIFIER, "--base -b", "Model to fine-tune: a starter, a folder or a hub id."
    ] = _QUICK.base
    all_rows: Annotated[bool, "All rows of TRAIN are the one draw."] = False
    student_epochs: Annotated[float, EPOCHS, "Passes of students over theirs; 50 in the paper."] = (
        QUICK["student_epochs"]
    )
    labelled_per_row: Annotated[
        int, ROWS, "Sentences that are labelled for each row the paper's way, of 1,000 retrieved."
    ] = QUICK["labelled_per_row"]
    text: Annotated[str | None, "The column of texts or of tokens; default: a usual name."] = None
    label: LabelColumn = None


def fewshot(
    train: LabelledSet,
    bank: SearchedBank,
    test: Annotated[str, DATA, "--test", "A labelled set to measure on."],
    out: Out,
    how: Annotated[FewShot, Fields(only=_SHOWN, defaults=_QUICK)],
    chosen: _Chosen,
    common: Common,
) -> None:
    """Measure few-shot learning on your own set: fine-tuned, and self-trained in two ways.

    The protocol of SentAugment (section 3.3): small draws, several trainings of each, the best by
    validation count; the best teaches. Intervals are over the draws.

    [dim]tilth fewshot train.jsonl --test test.jsonl --bank runs/bank --out runs/few[/dim]
    [dim]tilth fewshot mine.csv --all-rows --test test.csv --bank runs/bank --out runs/mine[/dim]
    """
    from tilth.classifiers.load import TaskSources, read_task
    from tilth.selftrain.few_shot import few_shot
    from tilth.workflows.open_bank import open_named

    systems = both_ways(chosen.student_epochs, chosen.labelled_per_row)
    settings = replace(how, base=chosen.base, systems=systems)
    if chosen.all_rows:
        if how.draws not in (1, _QUICK.draws) or how.per_class != _QUICK.per_class:
            raise InputError("--all-rows is one draw: leave --draws and --per-class out")
        settings = replace(settings, draws=1, per_class=None)
    sources = TaskSources(train, chosen.validation, test, text=chosen.text, label=chosen.label)
    task = read_task(sources, seed=settings.seed)
    found = few_shot(task, open_named(bank, device=common.device), out, settings, **common.job)
    if common.json:
        print_json(asdict(found))
        return
    _show(found, settings.draws)
    say(f"results of every training: {out / 'results.json'}")


def _show(found: FewShotResults, draws: int) -> None:
    def line(name: str) -> tuple[str, ...]:
        score, gain = found.scores[name], found.gains.get(name)
        deviation = "" if score.deviation is None else f"{score.deviation:.1f}"
        gained = "" if gain is None else gain.signed
        return name, f"{found.rows[name]:.0f}", f"{score.mean:.1f}", deviation, gained

    print_table(
        f"{found.measure} on the test set x 100, {draws} draw{'s' if draws > 1 else ''}",
        ("", "rows", "mean", "deviation", "gain, draw by draw (95%)"),
        [line(name) for name in found.scores],
    )
    if draws == 1:
        say("one draw: no interval is known")
