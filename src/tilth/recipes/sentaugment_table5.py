"""SentAugment, Table 5: one query for a task, for each label, for each sentence."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, SCALES, STEPS, Way, compare
from tilth.recipes.selftraining import NEEDS, SOURCE
from tilth.recipes.steps import Recipe, Result, Steps
from tilth.recipes.table import published

WAYS = [
    Way("all-average", "all-average", "all-average"),
    Way("label-average", BASE_QUERY),
    Way("per-sentence", "per-sentence", "per-sentence"),
    Way("clusters of each label (ours)", "clusters", "clusters"),
]
PUBLISHED = [
    published("all-average", HEAD, [60.0, 94.7, 92.8, 82.5]),
    published("label-average", HEAD, [60.4, 95.7, 93.1, 83.1]),
    published("per-sentence", HEAD, [60.1, 95.4, 93.3, 82.9]),
]


def run(steps: Steps) -> Result:
    """Retrieve with each kind of queries."""
    return compare(steps, "SentAugment, Table 5", WAYS, PUBLISHED, over="all-average")


RECIPE = Recipe(
    name="sentaugment-table5",
    title="Retrieval with one query for a task, for each label, for each sentence",
    source=f"{SOURCE}, Table 5",
    steps=STEPS,
    needs=NEEDS,
    scales=SCALES,
    run=run,
)
