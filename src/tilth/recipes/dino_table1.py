"""DINO, Table 1: encoders trained on generated pairs against word vectors, mean and [CLS]."""

from __future__ import annotations

from tilth.recipes.dino import DinoSteps, figures_note, first_texts, train_on_both
from tilth.recipes.recipe import Result
from tilth.recipes.sts_board import AVERAGE, COLUMNS, MEASURED, StsBoard, word_files
from tilth.recipes.table import published

_HEAD = [*COLUMNS.values(), AVERAGE]
PUBLISHED = [
    published(
        "InferSent, GloVe (NLI)", _HEAD, [52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, 65.01]
    ),
    published("USE", _HEAD, [64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, 71.22]),
    published("S-BERT on NLI", _HEAD, [70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89]),
    published("S-RoBERTa on NLI", _HEAD, [71.54, 72.49, 70.80, 78.74, 73.69, 77.77, 74.46, 74.21]),
    published("Avg. GloVe", _HEAD, [55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32]),
    published("Avg. BERT", _HEAD, [38.78, 57.98, 57.98, 63.15, 61.06, 46.35, 58.40, 54.81]),
    published("BERT CLS", _HEAD, [20.16, 30.01, 20.09, 36.88, 38.08, 16.50, 42.63, 29.19]),
    published(
        "Zhang et al. 2020 (NLI texts)", _HEAD,
        [56.77, 69.24, 61.21, 75.23, 70.16, 69.21, 64.25, 66.58],
    ),
    published(
        "Li et al. 2020 (NLI texts)", _HEAD,
        [59.54, 64.69, 64.66, 72.92, 71.84, 58.56, 65.44, 65.38],
    ),
    published(
        "Li et al. 2020 (STS texts)", _HEAD,
        [63.48, 72.14, 68.42, 73.77, 75.37, 70.72, 63.11, 69.57],
    ),
    published("DINO x1x2", _HEAD, [64.87, 78.30, 66.38, 79.60, 76.47, 76.51, 74.26, 73.77]),
    published("DINO x2", _HEAD, [70.27, 81.26, 71.25, 80.49, 77.18, 77.82, 68.09, 75.20]),
]  # fmt: skip


def run(steps: DinoSteps) -> Result:
    """Measure the baselines, train on x1x2 and on x2, and compare."""
    board, words = StsBoard(steps), word_files(steps.data)
    first_texts(steps)  # raises now, not after hours of work, if the data lacks them
    for stem, file in words.items():
        board.measure(f"avg. word vectors ({stem})", f"words:{file}", stem)
    base = steps.scale.base
    board.measure(f"{base} encoder, mean-pooled", base, "base-mean", pooling="mean")
    board.measure(f"{base} encoder, [CLS]", base, "base-cls", pooling="cls")
    notes = [*figures_note(board), *train_on_both(board)]
    rows = [*board.rows(), *(board.with_average(row) for row in PUBLISHED)]
    return board.result("DINO, Table 1", [*_HEAD, MEASURED], rows, notes)
