"""Labelled sets of the data folder that the SentAugment tables measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tilth.classifiers.examples import LabeledExamples, labeled_examples
from tilth.data.examples import Examples, read_examples
from tilth.data.formats import ending_of, split_of
from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.recipes.catalog_sentaugment import SentAugmentScale
from tilth.recipes.recipe import Steps

SentAugmentSteps: TypeAlias = Steps[SentAugmentScale]

FAMILIES = {"classify": "label", "ner": "entity type"}  # folders of tasks; what their labels are
# The paper's tasks by folder name in lower case and digits; NER folders begin with conll.
PAPERS_TASKS = {
    "sst2": "SST-2", "sst5": "SST-5", "cr": "CR", "imp": "IMP", "insults": "IMP", "trec": "TREC",
}  # fmt: skip
_PARTS = ("train", "dev", "test")


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
    files = sorted(file for file in folder.iterdir() if file.is_file() and ending_of(file))
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
