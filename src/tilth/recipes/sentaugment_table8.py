"""SentAugment, Table 8: the teacher's probabilities, or its likeliest labels alone."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, Way, compare
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import published

HARD = "hard labels"
WAYS = [
    Way(HARD, BASE_QUERY, hard=True),
    Way("soft labels (probabilities)", BASE_QUERY),
]
PUBLISHED = [
    published("discrete labels", HEAD, [59.1, 94.7, 92.8]),
    published("logits", HEAD, [60.4, 95.7, 93.1]),
]


def run(steps: Steps) -> Result:
    """Train on the same sentences with both kinds of labels."""
    return compare(steps, "SentAugment, Table 8", WAYS, PUBLISHED, over=HARD)
