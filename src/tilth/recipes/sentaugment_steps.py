"""Steps shared by the SentAugment tables: labelled sets, bank, teachers, pseudo-labelled pools."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank import Bank
from tilth.bank.settings import BankSettings
from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.classifiers.train import train_on_examples
from tilth.data.examples import Examples, read_examples
from tilth.data.formats import split_of
from tilth.data.hashing import text_hashes
from tilth.data.normalize import normalize_text
from tilth.data.sources import is_read
from tilth.data.tokenize import learn_tokenizer
from tilth.errors import InputError
from tilth.models.classifier import Classifier, fingerprint_classifier
from tilth.recipes.sentaugment import SentAugmentScale, SentAugmentSteps
from tilth.runs import Progress, Run, complete, part_sizes
from tilth.selftrain.pseudo_label import PROBABILITIES, label_sentences, pseudo_labeled, with_tokens
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.select import PseudoLabels, multiple_of, select
from tilth.selftrain.settings import Augmentation
from tilth.workflows.open_bank import build_named

FAMILIES = {"classify": "label", "ner": "entity type"}  # folders of tasks; what their labels are
# The paper's tasks by folder name in lower case and digits; NER folders begin with conll.
PAPERS_TASKS = {
    "sst2": "SST-2", "sst5": "SST-5", "cr": "CR", "imp": "IMP", "insults": "IMP", "trec": "TREC",
}  # fmt: skip
_PARTS = ("train", "dev", "test")
TEACHING: dict[str, Any] = {"epochs": 3.0}  # for models fine-tuned on labelled rows alone
SPARE = 1.5  # sentences labelled for each one drawn
_LABEL_ROWS = 4_000  # sentences of a part


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A labelled set of the data folder.

    Attributes:
        examples: its training set, for queries.
        train: the same, to train on.
        validation: chooses the checkpoint.
        shared: number of training and validation rows dropped because the test set has their texts.
    """

    name: str
    examples: Examples
    train: LabeledExamples
    validation: LabeledExamples
    test: LabeledExamples
    shared: int = 0

    @property
    def excluded(self) -> dict[str, list[str]]:
        """Sentences that must not be retrieved."""
        parts = {"test": self.test, "validation": self.validation}
        return {name: [row[0] for row in rows.texts] for name, rows in parts.items()}


def column_of(name: str) -> str:
    """Return a task's column: its name in the paper, or else its folder's name.

    Example:
        >>> column_of("insults"), column_of("conll2003"), column_of("clinc150")
        ('IMP', 'NER', 'clinc150')
    """
    plain = "".join(filter(str.isalnum, name.lower()))
    return "NER" if plain.startswith("conll") else PAPERS_TASKS.get(plain, name)


def task_folders(data: Path) -> list[Path]:
    """Return the folders of labelled sets."""
    return [
        folder
        for family in FAMILIES
        if (data / family).is_dir()
        for folder in sorted((data / family).iterdir())
        if folder.is_dir()
    ]


def task_files(folder: Path) -> dict[str, Path]:
    """Return the files of a labelled set by part, such as `train`."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and is_read(file))
    return {split_of(file): file for file in files}


def read_tasks(steps: SentAugmentSteps) -> tuple[list[Benchmark], list[str]]:
    """Return the requested labelled sets, and notes on missing tasks and dropped rows.

    A task is named by its folder or as in the paper. Tasks of the scale may be missing; those
    that a user names may not.
    """
    there = {folder.name: folder for folder in task_folders(steps.data)}
    names = steps.scale.tasks
    chosen = {name: [one for one in there if name in (one, column_of(one))] for name in names}
    missing = [name for name, found in chosen.items() if not found]
    if missing and (steps.settings.tasks or len(missing) == len(names)):
        others = f"there are {', '.join(there)}" if there else "there is none"
        raise InputError(
            f"{steps.data}: has no labelled set {', '.join(missing)} in classify/ or ner/: put one "
            f"there, files train, dev and test, or name others with --tasks ({others})"
        )
    for name, found in chosen.items():
        if len(found) > 1:
            raise InputError(f"{steps.data}: {' and '.join(found)} are both {name}: keep one")
    folders = list(dict.fromkeys(there[one] for found in chosen.values() for one in found))
    tasks = [_read_task(folder) for folder in folders]
    notes = [f"Not in the data folder: {', '.join(missing)}."] if missing else []
    shared = ", ".join(f"{task.name} {task.shared}" for task in tasks if task.shared)
    if shared:
        notes.append(f"Training and validation rows left out that are in the test set: {shared}.")
    return tasks, notes


def _read_task(folder: Path) -> Benchmark:
    files = task_files(folder)
    for part in _PARTS:
        if part not in files:
            raise InputError(f"{folder}: has no file {part}, such as {part}.jsonl.gz")
    read = {part: read_examples(files[part]) for part in _PARTS}
    test_texts = set(map(normalize_text, read["test"].sentences))
    kept = {}
    for part in ("train", "dev"):
        rows = [
            row for row, texts in enumerate(read[part].texts)
            if not test_texts.issuperset(map(normalize_text, texts))
        ]  # fmt: skip
        if not rows:
            raise InputError(f"{files[part]}: every text is in {files['test']} too: give others")
        kept[part] = read[part].select(rows)
    examples = kept["train"]
    if examples.labels is None or examples.labels.kind not in ("class", "tags"):
        raise InputError(f"{files['train']}: a task has one label a row, or tags: give such a set")
    train = labeled_examples(examples)
    shared = sum(len(read[part]) - len(rows) for part, rows in kept.items())
    validation, test = (labeled_examples(one, train.labels) for one in (kept["dev"], read["test"]))
    return Benchmark(folder.name, examples, train, validation, test, shared)


def build_recipe_bank(
    steps: SentAugmentSteps, name: str, source: Path, encoder: str, *, near: bool
) -> Bank:
    """Build or complete a bank as a step; `near`: drop near duplicates."""
    return build_named(
        steps.at(name), [str(source)], encoder,
        BankSettings(near=near, quiet=steps.settings.quiet), device=steps.settings.device,
    )  # fmt: skip


def open_bank(steps: SentAugmentSteps) -> Bank:
    """Build or complete the bank of all raw text in the data folder; tables share it."""
    return build_recipe_bank(steps, "bank", steps.bank_folder(), steps.scale.encoder, near=True)


def teaching(scale: SentAugmentScale) -> dict[str, Any]:
    """Return the training settings of models fine-tuned on labelled rows alone."""
    return {**TEACHING, "batch": scale.training["batch"]}


def teacher_of(
    steps: SentAugmentSteps, task: Benchmark, *, seed: int = 0, base: str | None = None
) -> Classifier:
    """Fine-tune a base on a task's training set, or load the fine-tuned model."""
    base = base or steps.scale.teacher
    settings = ClassifierTraining(
        base, Finetuning(seed=seed, **teaching(steps.scale)), device=steps.settings.device,
        quiet=steps.settings.quiet,
    )  # fmt: skip
    out = steps.at(f"{task.name}-teacher-{Path(base).name}-{seed}")
    return train_on_examples(task.train, task.validation, settings, out)


def kept_count(scale: SentAugmentScale, task: Benchmark) -> int:
    """Return how many sentences are learned: the scale's, or in proportion to the task's rows."""
    return scale.sentences or multiple_of(len(task.train)) * len(task.train)


def retrieved(
    steps: SentAugmentSteps, task: Benchmark, bank: Bank, *, query: str = "", share: int = 1
) -> tuple[pa.Table, list[str]]:
    """Return the sentences nearest to a task's queries, and a note if they are too few.

    Args:
        query: kind of query; empty: the scale's for such a task.
        share: search one in `share` of the bank's sentences.
    """
    scale, wanted = steps.scale, kept_count(steps.scale, task)
    of_tags = scale.tag_query if task.train.kind == "tags" else ""
    count = max(scale.candidates, round(wanted * SPARE))
    how = Augmentation(query or of_tags or scale.query)
    found = retrieve(bank, task.examples, count * share, how, exclude=task.excluded).table
    if share > 1:  # hits in a part of the bank are what a search of that part finds
        found = found.take(pa.array(np.flatnonzero(found["id"].to_numpy() % share == 0)))
    if len(found) >= wanted:
        return found, []
    has = f"{wanted:,} sentences are to be learned, the bank has {len(found):,}"
    return found, [f"{task.name}: {has}."]


@dataclass(frozen=True, slots=True)
class LabelPool:
    """Sentences of a bank with a teacher's probabilities.

    Attributes:
        similarity: to the nearest query; 0 for random sentences. # (rows,)
        keys: of the texts, for draws. # (rows,)
    """

    rows: LabeledExamples
    similarity: NDArray[np.float32]
    keys: NDArray[np.uint64]

    def draw(self, task: Benchmark, count: int, by: str, seed: int) -> LabeledExamples:
        """Return at most `count` of them, in the training set's ratio of classes.

        Args:
            by: a selection of `tilth.selftrain.select.select`, or `any`: ignore the classes.
        """
        if by == "any":
            order = np.random.default_rng((seed, 1)).permutation(len(self.rows))
            return self.rows.select(np.sort(order[:count]))
        found = select(
            PseudoLabels(self.rows.targets, self.keys, self.similarity), task.train, count, by=by,
            seed=seed,
        )  # fmt: skip
        return self.rows.select(found.kept)


def hash_sentences(found: pa.Table) -> str:
    """Return a hash of sentences that depends on their order."""
    texts = found["text"].combine_chunks().cast(pa.large_string())
    return blake2b(text_hashes(texts).tobytes(), digest_size=8).hexdigest()


def label_pool(
    steps: SentAugmentSteps, name: str, task: Benchmark, found: pa.Table, teacher: Classifier
) -> LabelPool:
    """Label the sentences in `found` (columns text, similarity) with a teacher, as a step."""
    tokens = task.examples.tokens
    found = with_tokens(found, None if tokens is None else learn_tokenizer(tokens))
    sizes = part_sizes(len(found), _LABEL_ROWS)
    run = Run.open(
        steps.at(name),
        command="recipe label",
        settings={"sentences": len(found)},
        fingerprints={
            "sentences": hash_sentences(found),
            "teacher": fingerprint_classifier(teacher),
        },
        parts=len(sizes),
    )

    def work(part: int, progress: Progress) -> pa.Table:
        some = found.slice(part * _LABEL_ROWS, _LABEL_ROWS)
        return label_sentences(some, [teacher], progress=progress).select([PROBABILITIES])

    with run:
        complete(run, work, sizes, quiet=True)
        table = pa.concat_tables(run.read_part(part) for part in range(run.parts))
    similarity = pc.fill_null(found["similarity"], 0.0).to_numpy().astype(np.float32)
    labelled = found.append_column(PROBABILITIES, table[PROBABILITIES])
    texts = found["text"].combine_chunks().cast(pa.large_string())
    return LabelPool(pseudo_labeled(labelled, task.train), similarity, text_hashes(texts))
