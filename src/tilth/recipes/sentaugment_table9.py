"""SentAugment, Table 9: nearest sentences of a bank to a sentence and to a whole label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.recipes import sentaugment as paper
from tilth.recipes.recipe import Result
from tilth.recipes.sentaugment import SentAugmentScale, SentAugmentSteps
from tilth.recipes.table import Listing, Neighbour

if TYPE_CHECKING:
    from tilth.bank import Bank, Hits, Queries

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
# All short rows except one with an obscene neighbour.
PUBLISHED = [
    Neighbour(domain, query, 1, text, published=True)
    for domain, query, text in (
        ("BioNLP",
         "A single gene on chromosome 7 makes a protein called the cystic fibrosis transmembrane "
         "conductance regulator (CFTR).",
         "Cystic Fibrosis A mutation in the gene cystic fibrosis transmembrane conductance "
         "regulator (CFTR) in chromosome 7."),
        ("financial",
         "Google has entered into an agreement to buy Nest Labs for $3.2 billion.",
         "In January Google (NASDAQ:GOOG) reached an agreement to buy Nest Labs for $3.2 billion "
         "in cash."),
        ("movie review",
         'average of the "bad movie" class of SST-5',
         "This movie was terribly boring, but so forgettable as well that it didn't stand out for "
         "how awful it was.."),
        ("product review",
         'average of the "positive" class of CR',
         "The phone is very good looking with superb camera setup and very lightweight."),
        ("question type",
         'average of the "location" class of TREC',
         "Lansing is the capital city of which state?"),
    )
]  # fmt: skip
_NEIGHBOURS = 3
_LABELS_SHOWN = 6


def run(steps: SentAugmentSteps) -> Result:
    """Build or complete the bank, and search it for sentences, labels and entity types."""
    from tilth.recipes.sentaugment_steps import open_bank, task_files, task_folders

    tasks = [folder for folder in task_folders(steps.data) if "train" in task_files(folder)]
    bank = open_bank(steps)
    k = min(_NEIGHBOURS, len(bank))
    steps.say("search")
    hits = bank.search(list(SENTENCES.values()), k, own=False)
    rows = []
    for place, (domain, sentence) in enumerate(SENTENCES.items()):
        rows += _neighbours(hits, place, domain, sentence)
    notes = [
        f"The bank: {len(bank):,} sentences of {len(bank.manifest.sources):,} sources, encoder "
        f"{steps.scale.encoder}; the paper's: up to 5 billion sentences of CommonCrawl."
    ]
    for folder in tasks:
        more, said = _search_labels(bank, folder, k)
        rows += more
        notes += said
    if not tasks:
        notes.append(f"No labelled sets: {steps.data} has neither classify/ nor ner/.")
    return Result(Listing("SentAugment, Table 9", [*rows, *PUBLISHED], notes))


def _search_labels(bank: Bank, folder: Path, k: int) -> tuple[list[Neighbour], list[str]]:
    """Return the neighbours of a task's most frequent labels, and notes on excluded sentences."""
    from tilth.data.examples import read_examples
    from tilth.recipes.sentaugment_steps import FAMILIES, task_files

    files, name = task_files(folder), folder.name
    queries, left = _queries(files["train"], bank)
    tests = [file for part, file in files.items() if part.startswith("test")]
    excluded = {str(test): read_examples(test, need_label=False).sentences for test in tests}
    hits = bank.search(queries, k, without=excluded or None, own=False)
    rows = []
    for place, label in enumerate(queries.names):
        query = f"average of {FAMILIES[folder.parent.name]} {label!r} of {name}"
        rows += _neighbours(hits, place, name, query)
    notes = [_left_out(name, hits.removed, tested=bool(tests))]
    if left:
        notes.append(f"{name}: its {len(queries)} largest of {len(queries) + left} labels.")
    return rows, notes


def _queries(train: Path, bank: Bank) -> tuple[Queries, int]:
    """Return the queries of a task's most frequent labels, and the number of its other labels."""
    from tilth.bank import task_queries

    queries = task_queries(train, encoder=bank.encode)
    order = sorted(range(len(queries)), key=lambda place: (-queries.sentences[place], place))
    kept = sorted(order[:_LABELS_SHOWN])
    lists: dict[str, Any] = {
        name: [getattr(queries, name)[place] for place in kept]
        for name in ("names", "labels", "sentences", "rows")
    }
    return replace(queries, vectors=queries.vectors[kept], **lists), len(queries) - len(kept)


def _neighbours(hits: Hits, place: int, domain: str, query: str) -> list[Neighbour]:
    return [
        Neighbour(
            domain, query, row["rank"], row["text"], round(row["similarity"], 4), row["source"]
        )
        for row in hits.table(place).to_pylist()
    ]


def _left_out(name: str, removed: Mapping[str, int], *, tested: bool) -> str:
    """Return a note on the nearest sentences that were excluded."""
    counts: Counter[str] = Counter()
    for reason, count in removed.items():
        where = "own" if reason.startswith("the queries") else reason.rpartition(", ")[2]
        counts[where] += count
    tests = (
        f"of its test set {counts['exact']:,}, and {counts['near']:,} near duplicates"
        if tested
        else "no test set is there"
    )
    return f"Left out for {name}: {tests}; of its training set {counts['own']:,}."


RECIPE = paper.recipe_of(
    9, "Nearest sentences of a bank for a sentence, for a label, for an entity type",
    run,
    options=(),
    steps=(
        paper.BUILD,
        "search for sentences of several domains",
        "search for the average of each label of the sets in classify/ and of each entity type "
        "of those in ner/, without sentences of their test and training sets",
    ),
    needs="bank/ with raw text; classify/NAME and ner/NAME with train and test files, where "
    "wanted",
    scales={
        "starter": SentAugmentScale(encoder="starter-static", departures=(paper.SMALL_BANK,)),
        "paper": SentAugmentScale(encoder=paper.PUBLIC_ENCODER, departures=paper.AT_PAPER),
    },
    models=paper.ENCODER,
    departures=(
        "the queries are written for this recipe; the published row with an obscene neighbour "
        "is left out",
    ),
)  # fmt: skip
