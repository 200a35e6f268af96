"""What the tables of the SentAugment paper share: their scale, models and departures.

Imports nothing heavy, as `recipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilth.recipes.recipe import Recipe, Result, Scale, Steps, training_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAugmentScale(Scale):
    """Models and sizes of the SentAugment tables; fields that a table does not use stay empty.

    Attributes:
        tasks: folders of `classify/` and `ner/`, or the paper's names of them.
        base: the student that is trained, or in Table 10 the sentence encoder.
        training: training settings that differ from the paper's.
        tag_query: kind of query for tagging tasks; empty: as `query`.
        candidates: sentences retrieved and labelled per task; at least 1.5 times as many as are
            learned.
        sentences: sentences learned per task; 0: in proportion to its training set.
        small_epochs: factor on the epochs if no more rows are learned than the training set has.
    """

    tasks: tuple[str, ...] = ()
    base: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    teacher: str = ""
    encoder: str = ""
    query: str = ""
    tag_query: str = ""
    candidates: int = 0
    sentences: int = 0
    select: str = "random"
    small_epochs: float = 1.0

    def facts(self) -> list[tuple[str, str]]:
        """Return names and values for `tilth recipe show` and the report."""
        tags = f", {self.tag_query} where tokens have tags" if self.tag_query else ""
        facts = [
            ("tasks", " ".join(self.tasks)),
            *training_facts(self.base, self.training),
            ("teacher", self.teacher),
            ("encoder of the bank", self.encoder),
            ("queries", f"{self.query}{tags}"),
            ("candidates", f"{self.candidates:,}" if self.candidates else ""),
            ("sentences", f"{self.sentences:,}" if self.sentences else ""),
            ("selection", self.select if self.teacher else ""),
        ]
        return [(name, value) for name, value in facts if value]


SentAugmentSteps: TypeAlias = Steps[SentAugmentScale]
SOURCE = "SentAugment (Du et al. 2020, arXiv 2010.02194)"
NEEDS = (
    "bank/ with raw text; labelled sets classify/NAME and ner/NAME, each with files train, dev and "
    "test; sst2, sst5, cr, imp (or insults), trec and conll are the paper's"
)
TASKS = ("sst2", "trec", "insults", "ncbi-disease")
PAPERS_TASKS = ("SST-2", "SST-5", "CR", "IMP", "TREC", "NER")
ROBERTA, PUBLIC_ENCODER = (
    "FacebookAI/roberta-large", "sentence-transformers/all-MiniLM-L6-v2"
)  # fmt: skip
BASE = {"base": ("RoBERTa-large", ROBERTA)}
TEACHER = {"teacher": ("RoBERTa-large", ROBERTA)}
ENCODER = {"encoder": ("SASE, whose checkpoint its own code alone can read", "")}
EPOCHS = "3 epochs on labelled rows: the paper says none but for few rows"
RATIO = "what is learned is drawn at random in the training set's ratio of classes, instead of "
RATIO += "the most confident of each class"
PER_TASK = "half as many sentences again as are learned are labelled, for a few million"
BUILD = "build a bank of all raw text in bank/, or go on with it"
STEPS = (
    BUILD,
    "fine-tune a teacher on each task",
    "retrieve sentences in each way and let the teacher label them",
    "train the student on them, in each way with as many",
)
ALWAYS = (
    "batches hold texts of like lengths, the paper's are random",
    "near duplicates of test sentences, and the training and validation sentences, are never "
    "retrieved; the paper removes what overlaps with the test set",
)
ONE_TEACHER = "each task has one teacher, of seed 0: how teachers vary is in no interval"
SMALL_BANK = "the bank holds millions of sentences, the paper's 100 million to 5 billion"
AT_PAPER = (
    "this scale has never been run: settings are the paper's",
    "the bank is what bank/ holds, the paper's 100 million to 5 billion sentences of CommonCrawl",
)
PROPORTION = (
    "100 times a training set of up to 5,000 rows is learned, 10 times one of 50,000 or more, "
    "500,000 sentences between: the paper says about 100 for small ones and 10 for medium ones"
)
STARTER_SCALE = SentAugmentScale(
    base="starter-small", teacher="starter-encoder", encoder="starter-static", tasks=TASKS
)
PAPER_SCALE = SentAugmentScale(
    base=ROBERTA,
    teacher=ROBERTA,
    encoder=PUBLIC_ENCODER,
    candidates=3_000_000,
    select="confidence",
    query="label-average",
    training={"epochs": 3.0, "batch": 16},
    tasks=PAPERS_TASKS,
    departures=AT_PAPER,
)


def measured(*tasks: str) -> dict[str, tuple[str, object]]:
    """Return the paper's tasks as an entry of `Recipe.models`."""
    return {"tasks": (", ".join(tasks).replace("NER", "NER (CoNLL)"), tasks)}


def recipe_of(
    number: int, title: str, run: Callable[[SentAugmentSteps], Result], **more: Any
) -> Recipe:
    """Return the recipe of one of the paper's tables; `more` are fields of `Recipe`."""
    fields = {"needs": NEEDS, **more}
    name, source = f"sentaugment-table{number}", f"{SOURCE}, Table {number}"
    return Recipe(name, title, source, run=run, **fields)
