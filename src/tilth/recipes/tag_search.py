"""Search for the tag pair whose rewrites of a task's training rows help it most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tilth.errors import InputError
from tilth.recipes.paraphrase_figures import MODELS, REWRITER, SOURCE
from tilth.recipes.paraphrase_simcse import load_rewriter
from tilth.recipes.paraphrase_table5 import TAG_PAIRS
from tilth.recipes.recipe import Recipe, Result, Scale, training_facts
from tilth.recipes.table import Row, Table, TableCell, over_seeds

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.recipes.paraphrase_tasks import TaskParts
    from tilth.recipes.recipe import Steps
    from tilth.selftrain.few_shot import MeanOverDraws

Pair: TypeAlias = "tuple[int, int]"  # meaning and wording
_NONE = "no rewrites"
_GAIN, _LOW, _HIGH, _ROWS = "gain", "low", "high", "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScale(Scale):
    """Models and sizes of the search.

    Attributes:
        rounds: training rows of each round; after each the worse half of the pairs is left out.
        training: settings that differ from `Finetuning`'s.
    """

    scorer: str
    rewriter: str
    beams: int
    base: str
    rounds: Sequence[int]
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        return [
            ("rounds", ", ".join(f"{rows:,} rows" for rows in self.rounds)),
            ("rewriter", f"{self.rewriter}, {self.beams} beams"),
            ("scorer of meaning", self.scorer),
            *training_facts(self.base, self.training),
        ]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A tag pair in the last round that it reached: scores of its trainings and the gain."""

    rows: int
    scores: list[float]
    gain: MeanOverDraws


def run(steps: Steps[SearchScale]) -> Result:
    """Train on rows with their rewrites, round by round with more rows and fewer tag pairs."""
    import numpy as np

    from tilth.classifiers.examples import concatenate
    from tilth.recipes.paraphrase_tasks import asked, rewritten
    from tilth.selftrain.few_shot import gain_over_draws

    task, model = _read_task(steps), load_rewriter(steps)
    sizes = sorted({min(rows, len(task.train)) for rows in steps.scale.rounds})
    alive, tried = list(TAG_PAIRS), dict[Pair, _Tried]()
    made: dict[Pair, LabeledExamples] = {}
    none: list[float] = []
    for number, (start, size) in enumerate(zip((0, *sizes), sizes, strict=False)):
        none = _scores(steps, task, number, size)
        new = task.train.select(np.arange(start, size))
        for pair in alive:
            name = "{}-{}".format(*pair)
            more = rewritten(
                new, model, asked(pair, steps.scale.beams), steps.at(f"rewrites-{name}-{start}"),
                quiet=steps.settings.quiet,
            )  # fmt: skip
            made[pair] = concatenate(made[pair], more) if start else more
            scores = _scores(steps, task, number, size, name, made[pair])
            tried[pair] = _Tried(size, scores, gain_over_draws(none, scores))
        alive.sort(key=lambda pair: -tried[pair].gain.mean)
        if number + 1 < len(sizes):
            alive = alive[: -(-len(alive) // 2)]
    order = sorted(tried, key=lambda pair: (-tried[pair].rows, -tried[pair].gain.mean))
    cells = {_ROWS: TableCell(sizes[-1]), task.metric: over_seeds(none)}
    rows = [Row(_NONE, cells), *(_row(task, pair, tried[pair]) for pair in order)]
    columns = [_ROWS, task.metric, _GAIN, _LOW, _HIGH]
    notes = [
        *_verdict(alive, tried),
        f"{task.metric} x 100 on {len(task.test):,} dev rows of {task.name}; mean and deviation of "
        f"{steps.settings.seeds} trainings. Gain over {_NONE} with the rows twice, so that "
        "steps are equal; low and high: 95%, Student's t over pairs of trainings. The best "
        "of several pairs is chosen on the rows it is measured on: confirm it on others.",
    ]
    return Result(Table(f"Tag pairs for {task.name}", columns, rows, notes))


def _verdict(final: Sequence[Pair], tried: Mapping[Pair, _Tried]) -> list[str]:
    """Return what the last round shows, best pair first."""
    from tilth.selftrain.few_shot import gain_over_draws

    best = final[0]
    gain = tried[best].gain
    name = f"--meaning {best[0]} --wording {best[1]}"
    if gain.low is None and gain.deviation is None:
        return [f"Best: {name}, {gain.signed}. One training tells nothing sure: give --seeds 3."]
    if (gain.mean if gain.low is None else gain.low) <= 0:
        return [f"No tag pair is surely better than {_NONE}: the best, {name}, {gain.signed}."]
    found = [f"Best: {name}, {gain.signed} over {_NONE}."]
    if len(final) > 1:
        second = final[1]
        over = gain_over_draws(tried[second].scores, tried[best].scores)
        sure = "surely" if over.low is not None and over.low > 0 else "not surely"
        found.append(f"It is {sure} better than the next, {second[0]}/{second[1]}: {over.signed}.")
    return found


def _row(task: TaskParts, pair: Pair, one: _Tried) -> Row:
    gain = one.gain
    cells = {
        _ROWS: TableCell(one.rows), task.metric: over_seeds(one.scores),
        _GAIN: TableCell(gain.mean, gain.deviation, gain.low, gain.high),
    }  # fmt: skip
    if gain.low is not None and gain.high is not None:
        cells |= {_LOW: TableCell(gain.low), _HIGH: TableCell(gain.high)}
    return Row(f"rewrites {pair[0]}/{pair[1]}", cells)


def _read_task(steps: Steps[SearchScale]) -> TaskParts:
    from tilth.recipes.paraphrase_tasks import TaskParts, draw_rows, rows_of, without_texts_of
    from tilth.recipes.sentaugment_steps import task_files

    files = task_files(steps.data)
    for part in ("train", "dev"):
        if part not in files:
            raise InputError(
                f"{steps.data}: has no file {part}, such as {part}.jsonl: the search trains on "
                "train and chooses on dev"
            )
    train = draw_rows(rows_of(files["train"]))
    dev = rows_of(files["dev"], train)
    return TaskParts(steps.data.resolve().name, without_texts_of(train, dev), None, dev)


def _scores(
    steps: Steps[SearchScale],
    task: TaskParts,
    number: int,
    size: int,
    name: str = "none",
    rewrites: LabeledExamples | None = None,
) -> list[float]:
    """Train on so many rows and their rewrites, once for each seed; return the dev scores.

    Each round has seeds of its own, so that a lucky training does not count twice.
    """
    import numpy as np

    from tilth.recipes.paraphrase_tasks import recorded_scores, score_of_training, with_rewrites

    rows = with_rewrites(task.train.select(np.arange(size)), rewrites)
    seeds = steps.settings.seeds
    trainings = [{**steps.scale.training, "seed": number * seeds + seed} for seed in range(seeds)]
    found = recorded_scores(
        steps.at(f"scores-{name}-{size}"),
        {"base": steps.scale.base, **steps.scale.training, "round": number, "seeds": seeds},
        {"rows": rows, "dev": task.test},
        [
            partial(score_of_training, task, rows, steps.scale.base, one, steps.settings.device)
            for one in trainings
        ],
    )
    return [one["test"] for one in found]


_STARTER = SearchScale(
    scorer="starter",
    rewriter="starter",
    beams=2,
    base="starter-encoder",
    rounds=(100, 200, 400),
    training={"max_length": 64},
    departures=("the paper tries all pairs in full, on the rows that it then reports",),
)
RECIPE = Recipe(
    name="tag-search",
    title="Which tag pair's rewrites of a task's training rows help it, if any",
    source=f"{SOURCE}, left open in section 6",
    run=run,
    steps=(
        "rewrite a few training rows at nine tag pairs",
        "train on rows and rewrites, and on the rows alone with as many steps; measure on dev",
        "leave out the worse half of the pairs, take more rows, and go on",
    ),
    needs="the folder of one labelled set, with train and dev files; --task says the same",
    scales={
        "starter": _STARTER,
        "paper": SearchScale(
            scorer="cross-encoder/stsb-roberta-large",
            rewriter="Ogamon/conpgs_model",
            beams=20,
            base="google-bert/bert-base-uncased",
            rounds=(1_000, 2_000, 4_000),
            training={"learning_rate": 2e-5, "batch": 32},
            departures=("this scale has never been run",),
        ),
    },
    models={"scorer": MODELS["scorer"]} | REWRITER,
)
