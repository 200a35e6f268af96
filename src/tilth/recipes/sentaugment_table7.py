"""SentAugment, Table 7: how large the bank is."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, SCALES, STEPS, Way, compare
from tilth.recipes.selftraining import NEEDS, SOURCE
from tilth.recipes.steps import Recipe, Result, Steps
from tilth.recipes.table import published

SMALLEST = "a 16th of the bank"
WAYS = [
    Way(SMALLEST, "16th", share=16),
    Way("a quarter of the bank", "quarter", share=4),
    Way("the whole bank", BASE_QUERY),
]
PUBLISHED = [
    published("50 million sentences", HEAD, [59.5, 95.4, 92.8, 82.6]),
    published("250 million", HEAD, [59.5, 95.7, 92.9, 82.7]),
    published("1 billion", HEAD, [60.4, 95.7, 93.1, 83.1]),
    published("5 billion", HEAD, [60.0, 95.3, 93.1, 82.8]),
]


def run(steps: Steps) -> Result:
    """Retrieve from parts of the bank."""
    return compare(steps, "SentAugment, Table 7", WAYS, PUBLISHED, over=SMALLEST)


RECIPE = Recipe(
    name="sentaugment-table7",
    title="Retrieval from smaller and larger banks",
    source=f"{SOURCE}, Table 7",
    steps=STEPS,
    needs=NEEDS,
    scales=SCALES,
    run=run,
)
