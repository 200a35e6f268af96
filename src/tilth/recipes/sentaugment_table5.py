"""SentAugment, Table 5: one query for a task, for each label, for each sentence."""

from __future__ import annotations

from tilth.recipes.ablation import BASE_QUERY, HEAD, Way, compare
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import published

WAYS = [
    Way("all-average", "all-average", "all-average"),
    Way("label-average", BASE_QUERY),
    Way("per-sentence", "per-sentence", "per-sentence"),
    Way("clusters of each label (ours)", "clusters", "clusters"),
]
PUBLISHED = [
    published("all-average", HEAD, [60.0, 94.7, 92.8]),
    published("label-average", HEAD, [60.4, 95.7, 93.1]),
    published("per-sentence", HEAD, [60.1, 95.4, 93.3]),
]


def run(steps: Steps) -> Result:
    """Retrieve with each kind of queries."""
    return compare(steps, "SentAugment, Table 5", WAYS, PUBLISHED, over="all-average")
