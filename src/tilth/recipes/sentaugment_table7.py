"""SentAugment, Table 7: how large the bank is."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, Way, compare
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import published

SMALLEST = "a 16th of the bank"
WAYS = [
    Way(SMALLEST, "16th", share=16),
    Way("a quarter of the bank", "quarter", share=4),
    Way("the whole bank", BASE_QUERY),
]
PUBLISHED = [
    published("50 million sentences", HEAD, [59.5, 95.4, 92.8]),
    published("250 million", HEAD, [59.5, 95.7, 92.9]),
    published("1 billion", HEAD, [60.4, 95.7, 93.1]),
    published("5 billion", HEAD, [60.0, 95.3, 93.1]),
]


def run(steps: Steps) -> Result:
    """Retrieve from parts of the bank."""
    return compare(steps, "SentAugment, Table 7", WAYS, PUBLISHED, over=SMALLEST)
