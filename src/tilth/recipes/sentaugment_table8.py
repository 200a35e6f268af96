"""SentAugment, Table 8: the teacher's probabilities, or its likeliest labels alone."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, SCALES, STEPS, Way, compare
from tilth.recipes.selftraining import NEEDS, SOURCE
from tilth.recipes.steps import Recipe, Result, Steps
from tilth.recipes.table import published

HARD = "hard labels"
WAYS = [
    Way(HARD, BASE_QUERY, hard=True),
    Way("soft labels (probabilities)", BASE_QUERY),
]
PUBLISHED = [
    published("discrete labels", HEAD, [59.1, 94.7, 92.8, 82.2]),
    published("logits", HEAD, [60.4, 95.7, 93.1, 83.1]),
]


def run(steps: Steps) -> Result:
    """Train on the same sentences with both kinds of labels."""
    return compare(steps, "SentAugment, Table 8", WAYS, PUBLISHED, over=HARD)


RECIPE = Recipe(
    name="sentaugment-table8",
    title="Soft or hard labels of the teacher",
    source=f"{SOURCE}, Table 8",
    steps=STEPS,
    needs=NEEDS,
    scales=SCALES,
    run=run,
)
