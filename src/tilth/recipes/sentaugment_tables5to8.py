"""SentAugment, Tables 5 to 8: effect of queries, encoder, bank size and soft labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilth.errors import InputError
from tilth.files import atomic_write
from tilth.recipes import sentaugment as paper
from tilth.recipes.recipe import Recipe, Result
from tilth.recipes.sentaugment import SentAugmentSteps
from tilth.recipes.table import Row, published

if TYPE_CHECKING:
    from tilth.bank import Bank
    from tilth.classifiers.examples import LabeledExamples
    from tilth.recipes.sentaugment_scores import Line
    from tilth.recipes.sentaugment_steps import Benchmark, LabelPool

_ABLATED = ("SST-5", "CR", "NER")
BASE_QUERY = "label-average"
# Table 6: every encoder encodes one in this many of the bank's sentences.
_SAMPLE = 16


@dataclass(frozen=True, slots=True)
class Variant:
    """One line of a table.

    Attributes:
        step: name of its retrieval; lines with the same step share it.
        encoder: of a bank of a sample of the sentences; empty: the bank of all sentences.
        share: search one in `share` of the bank's sentences.
        hard: train students on the most probable label alone.
    """

    name: str
    step: str
    query: str = BASE_QUERY
    encoder: str = ""
    share: int = 1
    hard: bool = False


QUERIES = [
    Variant("all-average", "all-average", "all-average"),
    Variant("label-average", BASE_QUERY),
    Variant("per-sentence", "per-sentence", "per-sentence"),
    Variant("clusters of each label (ours)", "clusters", "clusters"),
]
PUBLISHED_QUERIES = [
    published("all-average", _ABLATED, [60.0, 94.7, 92.8]),
    published("label-average", _ABLATED, [60.4, 95.7, 93.1]),
    published("per-sentence", _ABLATED, [60.1, 95.4, 93.3]),
]
PUBLISHED_ENCODERS = [
    published("average of word2vec", _ABLATED, [59.4, 95.2, 92.9]),
    published("uSIF (ParaNMT)", _ABLATED, [59.9, 95.0, 93.1]),
    published("SASE", _ABLATED, [60.4, 95.7, 93.1]),
]
SIZES = [
    Variant("a 16th of the bank", "16th", share=16),
    Variant("a quarter of the bank", "quarter", share=4),
    Variant("the whole bank", BASE_QUERY),
]
PUBLISHED_SIZES = [
    published("50 million sentences", _ABLATED, [59.5, 95.4, 92.8]),
    published("250 million", _ABLATED, [59.5, 95.7, 92.9]),
    published("1 billion", _ABLATED, [60.4, 95.7, 93.1]),
    published("5 billion", _ABLATED, [60.0, 95.3, 93.1]),
]
LABELS = [
    Variant("hard labels", BASE_QUERY, hard=True),
    Variant("soft labels (probabilities)", BASE_QUERY),
]
PUBLISHED_LABELS = [
    published("discrete labels", _ABLATED, [59.1, 94.7, 92.8]),
    published("logits", _ABLATED, [60.4, 95.7, 93.1]),
]


def _encoders(steps: SentAugmentSteps) -> list[Variant]:
    """Return a line for each encoder of the same sentences."""
    vectors = _largest_vectors(steps.data / "words")
    # all-MiniLM-L6-v2 with fewer pieces, as it is shipped to score paraphrases.
    encoder = steps.scale.encoder
    transformer = "starter-encoder" if encoder == "starter-static" else encoder
    encoders = {
        "average of word vectors": f"words:{vectors}",
        "uSIF of word vectors": f"usif:{vectors}",
        "static encoder": "starter-static",
        "transformer encoder": transformer,
    }
    return [
        Variant(name, f"by-{Path(encoder.partition(':')[0]).name}", encoder=encoder)
        for name, encoder in encoders.items()
    ]


def _compare(
    steps: SentAugmentSteps, title: str, variants: Sequence[Variant], rows: Sequence[Row]
) -> Result:
    """Train students of each variant on each task; gains are over the first variant."""
    from tilth.recipes import sentaugment_steps as work
    from tilth.recipes.sentaugment_scores import TaskBoard

    tasks, notes = work.read_tasks(steps)
    board = TaskBoard(steps, tasks)
    whole = work.open_bank(steps)
    for variant in variants:
        bank = _sample_bank(steps, whole, variant) if variant.encoder else whole
        for task in tasks:
            found, few = work.retrieved(steps, task, bank, query=variant.query, share=variant.share)
            notes += [f"{variant.name}: {note}" for note in few]
            teacher = work.teacher_of(steps, task)
            pool = work.label_pool(steps, f"{task.name}-near-{variant.step}", task, found, teacher)
            line = _line(steps, task, pool, variant)
            board.train(task, [line], steps.scale.base, steps.scale.teacher)
    first, *others = variants
    gains = [board.gain(variant.name, first.name) for variant in others]
    return board.result(title, rows, [*notes, *gains])


def _line(steps: SentAugmentSteps, task: Benchmark, pool: LabelPool, variant: Variant) -> Line:
    from tilth.recipes import sentaugment_steps as work
    from tilth.recipes.sentaugment_scores import Line

    scale, count = steps.scale, work.kept_count(steps.scale, task)

    def draw(seed: int) -> LabeledExamples:
        rows = pool.draw(task, count, scale.select, seed)
        return rows.hard() if variant.hard else rows

    about = {
        "teacher": scale.teacher, "query": variant.query, "share": variant.share, "count": count,
        "by": scale.select, "hard": variant.hard,
    }  # fmt: skip
    step = f"from-{variant.step}{'-hard' if variant.hard else ''}"
    return Line(variant.name, step, draw, scale.training, about, [pool] * steps.settings.seeds)


def _sample_bank(steps: SentAugmentSteps, whole: Bank, variant: Variant) -> Bank:
    """Build a bank of a sample of all sentences with another encoder."""
    from tilth.recipes import sentaugment_steps as work

    sentences = steps.folder / "steps" / "bank-sample.txt"
    if not sentences.is_file():
        texts = (text for number, text in enumerate(whole) if number % _SAMPLE == 0)
        atomic_write(
            sentences, lambda file: file.writelines(f"{text}\n".encode() for text in texts)
        )
    step = f"bank-{variant.step.removeprefix('by-')}"
    return work.build_recipe_bank(steps, step, sentences, variant.encoder, near=False)


def _largest_vectors(folder: Path) -> Path:
    files = sorted(folder.glob("*.txt*")) if folder.is_dir() else []
    if not files:
        raise InputError(f"{folder}: holds no word vectors: put a file such as glove.txt.gz there")
    return max(files, key=lambda file: file.stat().st_size)


_SCALES = {
    "starter": replace(
        paper.STARTER_SCALE,
        sentences=5_000,
        tasks=("trec", "insults", "ncbi-disease"),
        training={"epochs": 2.0, "batch": 32, "max_length": 64},
        departures=(
            "up to 5,000 sentences are learned for each task", paper.PER_TASK, paper.RATIO,
            "batches of 32 for 16, 64 tokens of a text", paper.SMALL_BANK,
        ),
    ),
    "paper": replace(
        paper.PAPER_SCALE, tasks=_ABLATED, departures=(*paper.AT_PAPER, paper.PROPORTION)
    ),
}  # fmt: skip
_MODELS = paper.measured(*_ABLATED) | paper.BASE | paper.TEACHER | paper.ENCODER


def _ablation(
    number: int,
    title: str,
    lines: Callable[[SentAugmentSteps], list[Variant]],
    rows: list[Row],
    *departures: str,
    **more: Any,
) -> Recipe:
    """Return a recipe for one of Tables 5 to 8, whose lines differ in one setting."""

    def run(steps: SentAugmentSteps) -> Result:
        return _compare(steps, f"SentAugment, Table {number}", lines(steps), rows)

    always = (*paper.ALWAYS, paper.EPOCHS, paper.ONE_TEACHER)
    fields = {"steps": paper.STEPS, **more}
    return paper.recipe_of(
        number, title, run, scales=_SCALES, models=_MODELS, departures=(*always, *departures),
        **fields,
    )  # fmt: skip


RECIPES = (
    _ablation(5, "Retrieval with one query for a task, for each label, for each sentence",
              lambda _: QUERIES, PUBLISHED_QUERIES, "the line of clusters is not in the paper"),
    _ablation(
        6, "Retrieval in the space of different sentence encoders", _encoders, PUBLISHED_ENCODERS,
        "each bank is a 16th of all sentences",
        "the largest file of words/ stands for fastText's vectors and, with uSIF fitted on the "
        "bank, for ParaNMT's; a static and a transformer encoder for SASE",
        steps=(
            paper.BUILD, "encode every 16th of its sentences with each encoder", *paper.STEPS[1:]
        ),
        needs=f"{paper.NEEDS}; words/ with word vectors in text form",
    ),
    _ablation(7, "Retrieval from smaller and larger banks", lambda _: SIZES, PUBLISHED_SIZES,
              "a 16th, a quarter and all of the bank, for 50 million to 5 billion sentences"),
    _ablation(8, "Soft or hard labels of the teacher", lambda _: LABELS, PUBLISHED_LABELS),
)  # fmt: skip
