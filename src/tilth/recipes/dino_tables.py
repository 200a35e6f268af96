"""DINO, Tables 1, 2 and 5: encoders trained on generated pairs, and what each part of it adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.recipes.recipe import Recipe, Result, Scale, training_facts
from tilth.recipes.table import AVERAGE, MEASURED, STS_COLUMNS, YEARS, Row, published

if TYPE_CHECKING:
    from tilth.recipes.dino import DinoSteps
    from tilth.recipes.sts_board import StsBoard


@dataclass(frozen=True, slots=True, kw_only=True)
class DinoScale(Scale):
    """Models and sizes of the DINO tables.

    Attributes:
        inputs: number of first texts taken from the data; None: all.
        first_texts: number of first texts generated from nothing, before deduplication.
        training: training settings that differ from the paper's.
    """

    lm: str
    base: str
    inputs: int | None = None
    first_texts: int
    training: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        return [
            ("language model", self.lm),
            ("first texts", "all" if self.inputs is None else f"{self.inputs:,} of the data"),
            ("first texts from nothing", f"{self.first_texts:,}"),
            *training_facts(self.base, self.training),
        ]


_SETS = [*STS_COLUMNS.values(), AVERAGE]
TABLE1 = [
    published(
        "InferSent, GloVe (NLI)", _SETS, [52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, 65.01]
    ),
    published("USE", _SETS, [64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, 71.22]),
    published("S-BERT on NLI", _SETS, [70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89]),
    published("S-RoBERTa on NLI", _SETS, [71.54, 72.49, 70.80, 78.74, 73.69, 77.77, 74.46, 74.21]),
    published("Avg. GloVe", _SETS, [55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32]),
    published("Avg. BERT", _SETS, [38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40, 54.81]),
    published("BERT CLS", _SETS, [20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63, 29.19]),
    published(
        "Zhang et al. 2020 (NLI texts)", _SETS,
        [56.77, 69.24, 61.21, 75.23, 70.16, 69.21, 64.25, 66.58],
    ),
    published(
        "Li et al. 2020 (NLI texts)", _SETS,
        [59.54, 64.69, 64.66, 72.92, 71.84, 58.56, 65.44, 65.38],
    ),
    published(
        "Li et al. 2020 (STS texts)", _SETS,
        [63.48, 72.14, 68.42, 73.77, 75.37, 70.72, 63.11, 69.57],
    ),
    published("DINO x1x2", _SETS, [64.87, 78.30, 66.38, 79.60, 76.47, 76.51, 74.26, 73.77]),
    published("DINO x2", _SETS, [70.27, 81.26, 71.25, 80.49, 77.18, 77.82, 68.09, 75.20]),
]  # fmt: skip
_YEARS = [*(STS_COLUMNS[name] for name in YEARS), AVERAGE]
TABLE5 = [
    published("CLEAR", _YEARS, [49.0, 48.9, 57.4, 63.6, 65.6, 56.9]),
    published("DeCLUTR", _YEARS, [64.2, 70.4, 70.0, 77.5, 75.4, 71.5]),
    published("DINO x1x2", _YEARS, [65.1, 69.9, 68.6, 76.3, 76.6, 71.3]),
    published("DINO x2", _YEARS, [65.3, 71.8, 72.7, 75.9, 76.9, 72.5]),
]


_GROUPS = ["STS12-16", "STSb", "SICK"]
_MEMBERS = dict(zip(_GROUPS, (YEARS, ("stsb",), ("sick",)), strict=True))
TABLE2 = [
    published("DINO x2 (decay 100)", _GROUPS, [76.09, 77.82, 68.09]),
    published("decay 0", _GROUPS, [65.50, 70.71, 67.60]),
    published("decay 200", _GROUPS, [75.40, 77.49, 66.83]),
    published("no label smoothing", _GROUPS, [74.50, 76.26, 66.23]),
    published("no sampled pairs", _GROUPS, [70.90, 73.81, 63.98]),
]


def table1(steps: DinoSteps) -> Result:
    """Measure the baselines, train on x1x2 and on x2, and compare."""
    from tilth.recipes.dino import figures_note, first_texts, train_on_both
    from tilth.recipes.sts_board import StsBoard, word_files

    board, words = StsBoard(steps), word_files(steps.data)
    first_texts(steps)  # raises now, not after hours of work, if the data lacks them
    for stem, file in words.items():
        board.measure(f"avg. word vectors ({stem})", f"words:{file}", stem)
    board.measure_base("mean")
    board.measure_base("cls")
    notes = [*figures_note(board), *train_on_both(board)]
    return board.compared("DINO, Table 1", TABLE1, [*_SETS, MEASURED], notes)


def table2(steps: DinoSteps) -> Result:
    """Train on the full recipe and on each ablation."""
    from tilth.encoders.graded_pairs import read_pairs
    from tilth.recipes.dino import curate_pairs, figures_note, generate_pairs, train_seeds
    from tilth.recipes.sts_board import StsBoard, overlap_note

    board = StsBoard(steps)
    x2 = generate_pairs(steps, "x2")
    full = curate_pairs(steps, x2, "x2-curated")
    variants = {
        "x2 (decay 100)": ("train-x2", full),
        "decay 0": ("train-decay0", _other_decay(steps, 0.0)),
        "decay 200": ("train-decay200", _other_decay(steps, 200.0)),
        "no label smoothing": (
            "train-no-smoothing", curate_pairs(steps, x2, "x2-no-smoothing", smoothing=0.0)
        ),
        "no sampled pairs": (
            "train-no-sampled", curate_pairs(steps, x2, "x2-no-sampled", sampled_pairs=0)
        ),
    }  # fmt: skip
    for name, (step, pairs) in variants.items():
        board.measure_trained(name, train_seeds(steps, step, pairs))
    rows = board_rows(board)
    years = ", ".join(board.names(YEARS)) or "none of them"
    notes = [
        *figures_note(board),
        f"Our {_GROUPS[0]} is the mean over {years}; the published one over five.",
        *_verdicts(board),
        overlap_note(steps, read_pairs(full), "x2"),
    ]
    columns = [column for column in _GROUPS if column in rows[0].cells]
    return board.result("DINO, Table 2", columns, [*rows, *TABLE2], notes)


def _other_decay(steps: DinoSteps, decay: float) -> Path:
    from tilth.recipes.dino import curate_pairs, generate_pairs

    name = f"x2-decay{decay:g}"
    return curate_pairs(steps, generate_pairs(steps, name, decay=decay), f"{name}-curated")


def board_rows(board: StsBoard) -> list[Row]:
    """Return our rows with one column for all years; missing sets have no column."""
    found = {column: board.names(sets) for column, sets in _MEMBERS.items()}
    return [
        Row(name, {column: board.cell(name, sets) for column, sets in found.items() if sets})
        for name in board.scores
    ]


def _verdicts(board: StsBoard) -> list[str]:
    """Return a note per ablation: whether its loss exceeds the variation over seeds."""
    from tilth.metrics.significance import difference_interval

    full, *others = board.scores
    best = board.cell(full, board.names())
    lines = []
    for name in others:
        cell = board.cell(name, board.names())
        gain = difference_interval(best.runs or [best.value], cell.runs or [cell.value])
        said = f"{full} against {name}: {gain.value:+.1f} on all measured sets, "
        if gain.low is None:
            lines.append(f"{said}one seed.")
            continue
        sure = "more" if gain.excludes_zero else "no more"
        lines.append(
            f"{said}{sure} than training seeds alone would bring about (95%: {gain.low:+.1f} to "
            f"{gain.high:+.1f}); the generated data are one draw."
        )
    return lines


def table5(steps: DinoSteps) -> Result:
    """Measure the same encoders by the mean over the subsets of each set."""
    from tilth.recipes.dino import figures_note, first_texts, train_on_both
    from tilth.recipes.sts_board import StsBoard

    board = StsBoard(steps, dict.fromkeys(YEARS, "mean"))
    first_texts(steps)
    board.measure_base("mean")
    notes = [*figures_note(board, "mean"), *train_on_both(board)]
    return board.compared("DINO, Table 5", TABLE5, [*_YEARS, MEASURED], notes)


_SOURCE = "Schick and Schütze 2021, Generating Datasets with Pretrained Language Models"
_NEEDS = "sts/ with the STS sets; sts/stsb-train gives the first texts; words/glove*.txt[.gz]"
_MODELS = {
    "lm": ("GPT2-XL (1.5B parameters)", "gpt2-xl"),
    "base": ("RoBERTa-base (125M parameters)", "roberta-base"),
}
_SCALES = {
    "starter": DinoScale(
        lm="starter",
        base="starter-mlm",
        inputs=1500,
        first_texts=1500,
        training={"learning_rate": 5e-4},
        departures=(
            "1,500 first texts for all of STSb's, and from nothing 1,500 for 15,000",
            "learning rate 5e-4 for 2e-5",
        ),
    ),
    "paper": DinoScale(
        lm="gpt2-xl",
        base="roberta-base",
        first_texts=15_000,
        departures=("this scale has never been run: the settings are the paper's",),
    ),
}
_SHARED: dict[str, Any] = {
    "needs": _NEEDS,
    "scales": _SCALES,
    "models": _MODELS,
    "options": ("seeds", "drop_overlap"),
    "trains": "encoder",
}
_BATCHES = "batches hold pairs of like lengths, the paper's are random"
_TRIES = (
    "first texts from nothing are asked for so many times, with up to 5 tries each; failed and "
    "equal ones are dropped, so fewer are kept (the notes count them); the paper has 15,000"
)
_BASELINES = "mean and [CLS] are of the base, the published rows of BERT-base"


RECIPES = (
    Recipe(
        name="dino-table1",
        title="STS of encoders trained on generated pairs, against word vectors, mean and [CLS]",
        source=f"{_SOURCE}, Table 1",
        steps=(
            "measure averaged word vectors, and the base encoder mean-pooled and by [CLS]",
            "generate x1x2: first texts from nothing, then second texts for three labels; curate",
            "generate x2: second texts for sentences of STSb's training part; curate",
            "train the base on each, once for each seed; measure",
        ),
        **_SHARED,
        run=table1,
        departures=(
            "no encoder trained on NLI pairs is measured here, nor one of Zhang et al. or Li et "
            "al.: these rows are published figures alone",
            _BASELINES,
            "word vectors are those of words/, the paper's GloVe as of Reimers and Gurevych 2019",
            _TRIES,
            _BATCHES,
        ),
    ),
    Recipe(
        name="dino-table2",
        title="Without self-debiasing (decay 0), with more (200), no smoothing, no sampled pairs",
        source=f"{_SOURCE}, Table 2",
        steps=(
            "generate x2 with decay 100, 0 and 200; curate",
            "curate the first once more without label smoothing, and without sampled pairs",
            "train the base on each, once for each seed; measure",
        ),
        **_SHARED,
        run=table2,
        departures=(_BATCHES,),
    ),
    Recipe(
        name="dino-table5",
        title="The encoders of Table 1, measured by the mean over subsets (protocol mean)",
        source=f"{_SOURCE}, Table 5",
        steps=(
            "measure the base encoder, mean-pooled",
            "generate x1x2 and x2 and train on each; shared with dino-table1 in the same folder",
            "measure on STS12 to STS16, each set the mean over its subsets",
        ),
        **_SHARED,
        run=table5,
        departures=(_TRIES, _BATCHES),
    ),
)
