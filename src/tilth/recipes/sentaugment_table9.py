"""SentAugment, Table 9: the nearest sentences of a bank for a sentence, and for a whole label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilth.bank import Bank, Hits, Queries, task_queries
from tilth.data.examples import read_examples
from tilth.data.formats import ending_of, split_of
from tilth.recipes.recipe import Scale
from tilth.recipes.sentaugment import open_bank
from tilth.recipes.steps import Result, Steps
from tilth.workflows.table import Listing, Neighbour

# Written for this recipe, one for each kind of text that the paper's table or a usual bank has.
SENTENCES = {
    "biomedical": "Mutations in this gene cause an inherited disorder of the lungs.",
    "finance": "The retailer agreed to buy its smaller rival for two billion dollars in cash.",
    "film review": "The plot made no sense, and I nearly fell asleep before the end.",
    "product review": "The battery of this phone lasts two days and the screen is bright.",
    "question": "What is the longest river in South America?",
    "news": "Thousands of people marched through the capital to protest against the new law.",
    "history": "The castle was built in the twelfth century and destroyed during the war.",
    "everyday talk": "Sorry I am late, the bus never came and I had to walk.",
    "fiction": "She closed the door softly and listened to the footsteps on the stairs.",
}
# All short rows but one whose neighbour is obscene.
PUBLISHED = [
    Neighbour(
        "BioNLP",
        "A single gene on chromosome 7 makes a protein called the cystic fibrosis transmembrane "
        "conductance regulator (CFTR).",
        1,
        "Cystic Fibrosis A mutation in the gene cystic fibrosis transmembrane conductance "
        "regulator (CFTR) in chromosome 7.",
        published=True,
    ),
    Neighbour(
        "financial",
        "Google has entered into an agreement to buy Nest Labs for $3.2 billion.",
        1,
        "In January Google (NASDAQ:GOOG) reached an agreement to buy Nest Labs for $3.2 billion "
        "in cash.",
        published=True,
    ),
    Neighbour(
        "movie review",
        'average of the "bad movie" class of SST-5',
        1,
        "This movie was terribly boring, but so forgettable as well that it didn't stand out for "
        "how awful it was..",
        published=True,
    ),
    Neighbour(
        "product review",
        'average of the "positive" class of CR',
        1,
        "The phone is very good looking with superb camera setup and very lightweight.",
        published=True,
    ),
    Neighbour(
        "question type",
        'average of the "location" class of TREC',
        1,
        "Lansing is the capital city of which state?",
        published=True,
    ),
]
_NEIGHBOURS = 3
_LABELS_SHOWN = 6
_KINDS = {"classify": "label", "ner": "entity type"}


@dataclass(frozen=True, slots=True)
class _Task:
    """A labelled set of the data folder.

    Attributes:
        name: of its folder.
        kind: what its labels are called.
        train: what queries are made from.
        tests: what no hit may be.
    """

    name: str
    kind: str
    train: Path
    tests: list[Path]


def run(steps: Steps) -> Result:
    """Build the bank, or go on with it, then ask it for sentences, labels and entity types."""
    tasks = list(_tasks(steps.data))
    bank = open_bank(steps)
    k = min(_NEIGHBOURS, len(bank))
    steps.say("search")
    hits = bank.search(list(SENTENCES.values()), k, own=False)
    rows = [
        row
        for place, (domain, sentence) in enumerate(SENTENCES.items())
        for row in _neighbours(hits, place, domain, sentence)
    ]
    notes = [_about(bank, steps.scale)]
    for task in tasks:
        queries, left = _queries(task, bank)
        excluded = {
            str(test): read_examples(test, need_label=False).sentences for test in task.tests
        }
        hits = bank.search(queries, k, without=excluded or None, own=False)
        for place, name in enumerate(queries.names):
            query = f"average of {task.kind} {name!r} of {task.name}"
            rows += _neighbours(hits, place, task.name, query)
        notes.append(_left_out(task, hits.removed))
        if left:
            notes.append(
                f"{task.name}: its {len(queries)} largest of {len(queries) + left} labels."
            )
    if not tasks:
        notes.append(f"No labelled sets: {steps.data} has neither classify/ nor ner/.")
    return Result(Listing("SentAugment, Table 9", [*rows, *PUBLISHED], notes))


def _tasks(data: Path) -> Iterator[_Task]:
    """Find the labelled sets: folders with a train and, maybe, a test file."""
    for family, kind in _KINDS.items():
        if not (data / family).is_dir():
            continue
        for folder in sorted((data / family).iterdir()):
            files = [file for file in _files(folder) if ending_of(file) is not None]
            named = {split_of(file): file for file in files}
            if "train" in named:
                tests = [file for name, file in named.items() if name.startswith("test")]
                yield _Task(folder.name, kind, named["train"], tests)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []


def _queries(task: _Task, bank: Bank) -> tuple[Queries, int]:
    """Return the queries of a task's most frequent labels, and how many others it has."""
    queries = task_queries(task.train, encoder=bank.query_encoder)
    order = sorted(range(len(queries)), key=lambda place: (-queries.sentences[place], place))
    kept = sorted(order[:_LABELS_SHOWN])
    some = replace(
        queries,
        vectors=queries.vectors[np.array(kept)],
        names=[queries.names[place] for place in kept],
        labels=[queries.labels[place] for place in kept],
        sentences=[queries.sentences[place] for place in kept],
        rows=[queries.rows[place] for place in kept],
    )
    return some, len(queries) - len(kept)


def _neighbours(hits: Hits, place: int, domain: str, query: str) -> list[Neighbour]:
    table = hits.table(place).to_pylist()
    return [
        Neighbour(
            domain, query, row["rank"], row["text"], round(row["similarity"], 4), row["source"]
        )
        for row in table
    ]


def _about(bank: Bank, scale: Scale) -> str:
    return (
        f"The bank: {len(bank):,} sentences of {len(bank.manifest.sources):,} sources, encoder "
        f"{scale.encoder}; the paper's: up to 5 billion sentences of CommonCrawl."
    )


def _left_out(task: _Task, removed: Mapping[str, int]) -> str:
    """Say what was left out among the nearest sentences."""
    counts: Counter[str] = Counter()
    for reason, count in removed.items():
        where = "own" if reason.startswith("the queries") else reason.rpartition(", ")[2]
        counts[where] += count
    tests = (
        f"of its test set {counts['exact']:,}, and {counts['near']:,} near duplicates"
        if task.tests
        else "no test set is there"
    )
    return f"Left out for {task.name}: {tests}; of its training set {counts['own']:,}."
