"""DINO, Tables 1 and 5: encoders trained on generated pairs against word vectors and the base."""

from __future__ import annotations

from tilth.recipes.dino import DinoSteps, figures_note, first_texts, train_on_both
from tilth.recipes.recipe import Result
from tilth.recipes.sts_board import AVERAGE, COLUMNS, MEASURED, YEARS, StsBoard, word_files
from tilth.recipes.table import published

_SETS = [*COLUMNS.values(), AVERAGE]
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
_YEARS = [*(COLUMNS[name] for name in YEARS), AVERAGE]
TABLE5 = [
    published("CLEAR", _YEARS, [49.0, 48.9, 57.4, 63.6, 65.6, 56.9]),
    published("DeCLUTR", _YEARS, [64.2, 70.4, 70.0, 77.5, 75.4, 71.5]),
    published("DINO x1x2", _YEARS, [65.1, 69.9, 68.6, 76.3, 76.6, 71.3]),
    published("DINO x2", _YEARS, [65.3, 71.8, 72.7, 75.9, 76.9, 72.5]),
]


def table1(steps: DinoSteps) -> Result:
    """Measure the baselines, train on x1x2 and on x2, and compare."""
    board, words = StsBoard(steps), word_files(steps.data)
    first_texts(steps)  # raises now, not after hours of work, if the data lacks them
    for stem, file in words.items():
        board.measure(f"avg. word vectors ({stem})", f"words:{file}", stem)
    board.measure_base("mean")
    board.measure_base("cls")
    notes = [*figures_note(board), *train_on_both(board)]
    return board.compared("DINO, Table 1", TABLE1, [*_SETS, MEASURED], notes)


def table5(steps: DinoSteps) -> Result:
    """Measure the same encoders by the mean over the subsets of each set."""
    board = StsBoard(steps, dict.fromkeys(YEARS, "mean"))
    first_texts(steps)
    board.measure_base("mean")
    notes = [*figures_note(board, "mean"), *train_on_both(board)]
    return board.compared("DINO, Table 5", TABLE5, [*_YEARS, MEASURED], notes)
