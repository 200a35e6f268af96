"""DINO, Table 3: how similar people find pairs that were generated for each similarity."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tilth.errors import InputError
from tilth.recipes.recipe import Recipe, Result, Scale
from tilth.recipes.table import Row, Table, TableCell, published

if TYPE_CHECKING:
    from tilth.recipes.recipe import Steps

LABELS = ("0", "0.1", "0.5", "0.9")
_COLUMNS = [f"label {label}" for label in LABELS]
_PAIRS = "pairs"
TABLE3 = [
    published("people: 0", _COLUMNS, [95, 15, 0, 0]),
    published("people: 0.1", _COLUMNS, [0, 44, 11, 12]),
    published("people: 0.5", _COLUMNS, [5, 41, 60, 41]),
    published("people: 0.9", _COLUMNS, [0, 0, 29, 47]),
]
_REMEDY = (
    "draw a sample of the curated pairs in tilth view, task class, with the labels "
    f"{', '.join(LABELS)}"
)


def run(steps: Steps[Scale]) -> Result:
    """Count what people say of the pairs of each label."""
    from tilth.data.labels import plain_label
    from tilth.metrics.agreement import wilson
    from tilth.view.annotations import CLASS
    from tilth.workflows.annotated import read_judged

    judged = list(read_judged(steps.data).values())
    counts: Counter[tuple[str, str]] = Counter()
    left = Counter[str]()
    for one in judged:
        made, said = plain_label(one.generated), plain_label(one.value)
        if one.value is None:
            left["skipped or without a majority"] += 1
        elif one.task != CLASS or made not in LABELS or said not in LABELS:
            left["with another task or other labels"] += 1
        else:
            counts[str(made), str(said)] += 1
    if not counts:
        raise InputError(
            f"{steps.data}: holds no pair with a label and an answer of {', '.join(LABELS)}: "
            f"{_REMEDY}"
        )
    made_counts = Counter(made for made, _ in counts.elements())
    rows = []
    for said in LABELS:
        cells = {}
        for made, column in zip(LABELS, _COLUMNS, strict=True):
            if pairs := made_counts[made]:
                share = counts[made, said]
                low, high = (100 * end for end in wilson(share, pairs))
                cells[column] = TableCell(100 * share / pairs, low=low, high=high)
        rows.append(Row(f"people: {said}", cells))
    totals = zip(LABELS, _COLUMNS, strict=True)
    rows.append(Row(_PAIRS, {column: TableCell(made_counts[made]) for made, column in totals}))
    notes = [
        "Percent of the pairs generated for a label (column) that people give a score (row), as "
        "the majority of those who judged a pair; results.json has 95% Wilson intervals.",
        f"Ours: {counts.total():,} pairs of {steps.data.name}.",
        *(f"Left out, {why}: {number:,}." for why, number in left.items()),
        *_verdicts(counts, made_counts),
        "Published: 100 pairs, drawn at random from the curated pairs of GPT2-XL, judged by the "
        "authors; the number for each label is not given.",
    ]
    return Result(Table("DINO, Table 3", _COLUMNS, [*rows, *TABLE3], notes))


def _verdicts(counts: Counter[tuple[str, str]], made: Counter[str]) -> list[str]:
    """Return what the paper reads off its table, of ours."""
    from tilth.metrics.agreement import wilson

    found = []
    for label, scores, what in (
        ("0.9", ("0.9",), "meant to be the same do mean (almost) the same"),
        ("0.1", ("0.5", "0.9"), "meant to be on different topics still have some similarity"),
    ):
        if pairs := made[label]:
            right = sum(counts[label, score] for score in scores)
            low, high = wilson(right, pairs)
            found.append(
                f"Ours: {right / pairs:.0%} of the pairs {what} (95% interval {low:.0%} to "
                f"{high:.0%}, {pairs:,} pairs)."
            )
    return found


RECIPE = Recipe(
    name="dino-table3",
    title="What people say of generated pairs, by label: annotations of tilth view",
    source="Schick and Schütze 2021, Generating Datasets with Pretrained Language Models, Table 3",
    steps=(
        "by hand, before: tilth curate PAIRS; tilth view, a sample of 100, task class, labels "
        f"{', '.join(LABELS)}",
        "count what people say of the pairs of each label",
    ),
    needs="annotations of tilth view: RUN.annotations, or a file that was exported from them",
    scales={
        "starter": Scale(),
        "paper": Scale(departures=("this scale has never been run: it needs pairs of GPT2-XL",)),
    },
    takes_file=True,
    options=(),
    run=run,
    departures=(
        "the pairs are those that were annotated, of whichever model wrote them",
        "the people are those who annotated, not the paper's authors",
    ),
)
