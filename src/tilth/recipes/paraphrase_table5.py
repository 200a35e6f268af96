"""Controlled paraphrase, Table 5 and Fig. 4: training on NLI and its rewrites first (STILTs)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError
from tilth.recipes.paraphrase_figures import MODELS, REWRITER, SOURCE, WMT19
from tilth.recipes.paraphrase_simcse import CHECKED, load_rewriter, nli_files, step_name
from tilth.recipes.recipe import Recipe, Result, Scale, training_facts
from tilth.recipes.table import Row, Table, TableCell, over_seeds, published

if TYPE_CHECKING:
    from tilth.classifiers.examples import LabeledExamples
    from tilth.recipes.paraphrase_tasks import TaskParts
    from tilth.recipes.recipe import Steps
    from tilth.report.paraphrase import GainMap

_TASKS = ["CoLA", "SST-2", "MRPC", "QQP", "STS-B", "MNLI-m", "MNLI-mm", "QNLI", "RTE"]
PLAIN, STILTS, TRIPS = "fine-tuning", "STILTs", "STILTs, round trips"
REWRITES, BEST = "STILTs, rewrites", "STILTs, rewrites, best tags"
PUBLISHED = [
    published(PLAIN, _TASKS, [58.5, 94.3, 88.3, 72.4, 86.8, 86.5, 85.6, 92.7, 69.0]),
    published(STILTS, _TASKS, [57.0, 94.2, 89.0, 71.7, 88.9, None, None, 92.5, 79.4]),
    published(TRIPS, _TASKS, [56.7, 94.5, 88.9, 71.7, 88.4, 86.1, 85.8, 92.0, 79.2]),
    published(BEST, _TASKS, [55.1, 94.7, 89.3, 71.7, 88.8, 86.5, 86.1, 92.7, 80.0]),
]
MEANING_TAGS, WORDING_TAGS = (70, 80, 95), (5, 20, 40)
TAG_PAIRS = tuple(product(MEANING_TAGS, WORDING_TAGS))
_MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class StiltsScale(Scale):
    """Models and sizes of Table 5.

    Attributes:
        translators: English to German, and back.
        precision: of the rewriter.
        pairs: NLI pairs that the base is trained on first.
        rows: training rows of a task, at most.
        held: rows of its training set that choose the tags, never trained on.
        tasks: folders in glue/ or classify/.
        first: settings of the training on NLI.
        training: of that on a task.
    """

    translators: tuple[str, str]
    scorer: str
    rewriter: str
    beams: int
    precision: str = "auto"
    base: str
    pairs: int
    rows: int
    held: int
    tasks: Sequence[str]
    first: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        return [
            ("tasks", f"{', '.join(self.tasks)}; at most {self.rows:,} rows"),
            ("NLI pairs", f"{self.pairs:,}"),
            ("rewriter", f"{self.rewriter}, {self.beams} beams"),
            ("scorer of meaning", self.scorer),
            *training_facts(self.base, self.training),
        ]


def run(steps: Steps[StiltsScale]) -> Result:
    """Train on NLI with each kind of rewrites, then on each task; compare on its test rows."""
    from tilth.selftrain.few_shot import gain_over_draws

    parts = [_read_task(steps, name) for name in steps.scale.tasks]
    rows, notes = _first_rows(steps)
    found = {name: _measured(steps, parts, name, some) for name, some in rows.items()}
    for task in parts:
        held = {
            pair: over_seeds([one[f"{task.name} held"] for one in found[_line(*pair)]]).value
            for pair in TAG_PAIRS
        }
        pair = max(TAG_PAIRS, key=lambda pair: held[pair])
        chosen = [one[task.name] for one in found[_line(*pair)]]
        for seed, value in enumerate(chosen):
            found.setdefault(BEST, [{} for _ in chosen])[seed][task.name] = value
        gain = gain_over_draws([one[task.name] for one in found[STILTS]], chosen)
        notes.append(
            f"{task.column} ({task.metric}, {len(task.train):,} training rows, {len(task.test):,} "
            f"test rows): best tags by held-out rows {pair[0]}/{pair[1]}, {gain.signed} over "
            "STILTs."
        )
    order = [PLAIN, STILTS, TRIPS, BEST, *(_line(*pair) for pair in TAG_PAIRS)]
    columns = [task.column for task in parts]
    ours = [Row(name, _cells(parts, found[name])) for name in order]
    table = Table("Controlled paraphrase, Table 5", [*columns, _MEAN], [*ours, *PUBLISHED], notes)
    return Result(table, maps=[_gain_map(task, found) for task in parts])


def _cells(parts: Sequence[TaskParts], runs: Sequence[Mapping[str, float]]) -> dict[str, TableCell]:
    cells = {task.column: over_seeds([one[task.name] for one in runs]) for task in parts}
    means = [sum(one[task.name] for task in parts) / len(parts) for one in runs]
    return {**cells, _MEAN: over_seeds(means)}


def _line(meaning: int, wording: int) -> str:
    return f"{REWRITES} {meaning}/{wording}"


def _gain_map(task: TaskParts, found: Mapping[str, Sequence[Mapping[str, float]]]) -> GainMap:
    """Return Fig. 4's map of a task: the gain of each tag pair over STILTs."""
    from tilth.report.paraphrase import GainMap

    def mean(name: str) -> float:
        return over_seeds([one[task.name] for one in found[name]]).value

    gains = [
        [mean(_line(meaning, wording)) - mean(STILTS) for wording in WORDING_TAGS]
        for meaning in MEANING_TAGS
    ]
    return GainMap(f"{task.column}, {task.metric}", gains, MEANING_TAGS, WORDING_TAGS)


def _read_task(steps: Steps[StiltsScale], name: str) -> TaskParts:
    """Read a task: GLUE's is measured on its dev part, for the test labels are not public."""
    import numpy as np

    from tilth.recipes.paraphrase_tasks import TaskParts, draw_rows, rows_of, without_texts_of
    from tilth.recipes.sentaugment_steps import task_files

    folder = next(
        (one for kind in ("glue", "classify") if (one := steps.data / kind / name).is_dir()), None
    )
    if folder is not None:
        files = task_files(folder)
    else:
        files = {
            part: file for part in ("train", "dev", "test")
            for file in sorted((steps.data / "sts").glob(f"{name}-{part}.*"))
        }  # fmt: skip
    measured = next((part for part in ("test", "dev") if part in files), "dev")
    if folder is not None and folder.parent.name == "glue":
        measured = "dev"
    for part in ("train", measured):
        if part not in files:
            raise InputError(
                f"{steps.data}: task {name} has no file {part}: put one into glue/{name}, "
                f"classify/{name}, or sts/{name}-{part}"
            )
    rows = draw_rows(rows_of(files["train"]))
    test = rows_of(files[measured], rows)
    rows = without_texts_of(rows, test)
    held = min(steps.scale.held, len(rows) // 5)
    size = min(steps.scale.rows, len(rows) - held)
    order = np.arange(len(rows))
    return TaskParts(
        name, rows.select(order[:size]), rows.select(order[len(rows) - held :]), test
    )  # fmt: skip


def _first_rows(
    steps: Steps[StiltsScale],
) -> tuple[dict[str, LabeledExamples | None], list[str]]:
    """Return the rows that each line is trained on first, and a note on them."""
    from tilth.paraphrase.round_trip import load_round_trip
    from tilth.paraphrase.settings import RewriteSettings
    from tilth.recipes.paraphrase import PART
    from tilth.recipes.paraphrase_tasks import asked, rewritten, with_rewrites

    scale, quiet = steps.scale, steps.settings.quiet
    nli = _nli(steps)
    trips = load_round_trip(*scale.translators, scorer=scale.scorer, device=steps.settings.device)
    rewriter = load_rewriter(steps, scale.precision)
    back = RewriteSettings(part_size=PART, round_trip=True)
    made = {TRIPS: rewritten(nli, trips, back, steps.at("nli-round-trips"), quiet=quiet)}
    for pair in TAG_PAIRS:
        folder = steps.at("nli-{}-{}".format(*pair))
        settings = asked(pair, scale.beams)
        made[_line(*pair)] = rewritten(nli, rewriter, settings, folder, quiet=quiet)
    counts = ", ".join(f"{name} {len(some):,}" for name, some in made.items())
    lines = {STILTS: with_rewrites(nli, None)}
    lines |= {name: with_rewrites(nli, some) for name, some in made.items()}
    note = (
        f"{len(nli):,} NLI pairs first; rewritten with both texts: {counts}. Pairs stand in for "
        "missing rewrites, in STILTs for all, so that all lines take the same steps."
    )
    return {PLAIN: None, **lines}, [
        f"Mean and deviation of {steps.settings.seeds} trainings, each of both stages; the last "
        "weights are measured. Held-out training rows choose the best tags, intervals: 95%, "
        "Student's t over trainings.",
        note,
    ]


def _nli(steps: Steps[StiltsScale]) -> LabeledExamples:
    """Return the scale's number of pairs of the NLI sets."""
    from tilth.classifiers.examples import concatenate
    from tilth.recipes.paraphrase_tasks import draw_rows, rows_of

    first, *others = nli_files(steps.data)
    found = rows_of(first)
    for file in others:
        found = concatenate(found, rows_of(file, found))
    return draw_rows(found, steps.scale.pairs)


def _measured(
    steps: Steps[StiltsScale], parts: Sequence[TaskParts], name: str, rows: LabeledExamples | None
) -> list[dict[str, float]]:
    """Train a line once for each seed and return its scores: TASK, and TASK held."""
    from tilth.recipes.paraphrase_tasks import recorded_scores

    scale, found = steps.scale, []
    learnt = {} if rows is None else {"first": rows}
    for seed in range(steps.settings.seeds):
        step = step_name(name, str(seed))
        first = steps.folder / "steps" / f"{step}-first"
        scores = recorded_scores(
            steps.at(step),
            {"base": scale.base, "first": dict(scale.first), **scale.training, "seed": seed},
            {**learnt, **{name: rows for task in parts for name, rows in task.sets.items()}},
            [partial(_trained_on, task, steps, rows, first, seed) for task in parts],
        )
        shutil.rmtree(first, ignore_errors=True)
        found.append({
            key: value for task, one in zip(parts, scores, strict=True)
            for key, value in ((task.name, one["test"]), (f"{task.name} held", one["held"]))
        })  # fmt: skip
    return found


def _trained_on(
    task: TaskParts,
    steps: Steps[StiltsScale],
    rows: LabeledExamples | None,
    first: Path,
    seed: int,
) -> dict[str, float]:
    """Train on NLI rows (None: not) in the folder `first`, then on a task; return its scores."""
    from tilth.classifiers.settings import ClassifierTraining, Finetuning
    from tilth.classifiers.train import train_on_examples
    from tilth.recipes.paraphrase_tasks import score_of_training

    scale, device = steps.scale, steps.settings.device
    base = scale.base
    if rows is not None:
        finetuning = Finetuning(**scale.first, seed=seed)
        settings = ClassifierTraining(base, finetuning, device=device, quiet=steps.settings.quiet)
        train_on_examples(rows, None, settings, first)  # unless it is there
        base = str(first)
    return score_of_training(task, task.train, base, {**scale.training, "seed": seed}, device)


RECIPE = Recipe(
    name="paraphrase-table5",
    title="Training on NLI and its rewrites before a task: which tag pair helps which task",
    source=f"{SOURCE}, Table 5, Fig. 4 and section 6",
    run=run,
    steps=(
        "draw pairs of the NLI sets; rewrite both texts at nine tag pairs; translate them to "
        "German and back, greedily",
        "train the base on the pairs, on pairs and round trips, on pairs and rewrites",
        "train each of these, and the base itself, on each task; once for each seed",
        "choose the tag pair of a task by rows held out of its training set; measure",
    ),
    needs="nli/NAME/train (premise, hypothesis, label); glue/TASK with train and dev, "
    "classify/TASK with train and test, or sts/TASK-train and -test",
    scales={
        "starter": StiltsScale(
            translators=("starter", "starter"),
            scorer="starter",
            rewriter="starter",
            beams=2,
            precision="bfloat16",
            base="starter-small",
            pairs=500,
            rows=500,
            held=200,
            tasks=("cola", "mrpc", "stsb", "rte", "trec"),
            first={"epochs": 3.0, "batch": 32, "max_length": 64},
            training={"epochs": 3.0, "batch": 16, "max_length": 64},
            departures=(
                "500 NLI pairs for 393,000 of MNLI, 500 rows of each task",
                "3 epochs on a task for 10, the mean of all seeds for the median of 5",
                "2 beams for 20, at each of five costs of copying",
                "trec for SST-2, QQP, MNLI and QNLI",
            ),
        ),
        "paper": StiltsScale(
            translators=WMT19,
            scorer="cross-encoder/stsb-roberta-large",
            rewriter="Ogamon/conpgs_model",
            beams=20,
            base="google-bert/bert-large-uncased",
            pairs=393_000,
            rows=10_000,
            held=1_000,
            tasks=("cola", "mrpc", "stsb", "rte"),
            first={"epochs": 3.0, "batch": 32, "learning_rate": 2e-5},
            training={"epochs": 10.0, "batch": 32, "learning_rate": 2e-5},
            departures=(
                "this scale has never been run: the settings are the paper's",
                "the small tasks alone: the paper trains the large ones for 3 epochs",
                "the mean of all seeds for the median of 5",
            ),
        ),
    },
    models=MODELS | REWRITER | {"base": ("BERT-large", "google-bert/bert-large-uncased")},
    departures=(
        CHECKED,
        "measured on GLUE's dev parts, not by its server; the paper chose tags on what it measured",
    ),
)
