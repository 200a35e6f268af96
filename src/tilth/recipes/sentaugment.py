"""What SentAugment's tables share: tasks, teachers, sentences of a bank, students and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tilth.bank import Bank, Rules
from tilth.classifiers.examples import Rows, rows_of
from tilth.classifiers.finetune import fit
from tilth.classifiers.settings import Finetuning
from tilth.classifiers.train import train_teacher
from tilth.data.examples import Examples, read_examples
from tilth.data.formats import ending_of, split_of
from tilth.data.hashing import text_hashes
from tilth.data.normalize import normalize_text
from tilth.errors import InputError
from tilth.evaluate.classify import answered
from tilth.evaluate.tag import best_tags
from tilth.metrics.entity_spans import entity_types, span_counts
from tilth.metrics.significance import Interval, f1_contributions, gain_interval
from tilth.models.classifier import Classifier, fingerprint_classifier, new_classifier
from tilth.recipes.recipe import Scale
from tilth.recipes.steps import Result, Steps
from tilth.runs import Run
from tilth.selftrain.pseudo_label import PROBABILITIES, as_lists, label_hits, labelled_rows
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.select import class_ratio, multiple_of, select
from tilth.selftrain.tokenize import learn_words
from tilth.workflows.open_bank import build_named
from tilth.workflows.table import Cell, Row, Table, mean_of, over_seeds

FAMILIES = ("classify", "ner")
# The paper's tasks by their folders' names in small letters and digits; NER begins with conll.
PAPERS_TASKS = {
    "sst2": "SST-2", "sst5": "SST-5", "cr": "CR", "imp": "IMP", "insults": "IMP", "trec": "TREC",
}  # fmt: skip
MEAN = "mean of our tasks"
_PARTS = ("train", "dev", "test")
# Passes of teachers over the labelled rows; their batch is that of the scale, 16 in the paper.
TEACHING: dict[str, Any] = {"epochs": 3.0}
SPARE = 1.5  # sentences labelled for each one drawn
_LABELLED_AT_ONCE = 4_000


@dataclass(frozen=True, slots=True)
class Task:
    """A labelled set of the data folder.

    Attributes:
        name: of its folder.
        examples: its training set, for queries.
        train: the same, to train on.
        validation: what the best weights are chosen with.
        test: what every figure is measured on.
        shared: training and validation rows that were left out, as their texts are in the test set.
    """

    name: str
    examples: Examples
    train: Rows
    validation: Rows
    test: Rows
    shared: int = 0

    @property
    def without(self) -> dict[str, list[str]]:
        """The sentences that nothing retrieved may be."""
        parts = {"test": self.test, "validation": self.validation}
        return {name: [row[0] for row in rows.texts] for name, rows in parts.items()}


def column_of(name: str) -> str:
    """Return the column of a task: the paper's name of it, or else its folder's.

    Example:
        >>> column_of("insults"), column_of("conll2003"), column_of("clinc150")
        ('IMP', 'NER', 'clinc150')
    """
    plain = "".join(filter(str.isalnum, name.lower()))
    return "NER" if plain.startswith("conll") else PAPERS_TASKS.get(plain, name)


def read_tasks(steps: Steps) -> tuple[list[Task], list[str]]:
    """Return the labelled sets that are asked for, and a note on those the data folder lacks.

    A task is named by its folder or as in the paper. Of the scale's own tasks some may be missing,
    of those that a user names none.

    Raises:
        InputError: it has none of them, a set is wrong, or two are the same task of the paper.
    """
    there = {
        folder.name: folder
        for family in FAMILIES
        if (steps.data / family).is_dir()
        for folder in sorted((steps.data / family).iterdir())
        if folder.is_dir()
    }
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
    tasks = [_read_task(folder.name, folder) for folder in folders]
    notes = [f"Not in the data folder: {', '.join(missing)}."] if missing else []
    shared = ", ".join(f"{task.name} {task.shared}" for task in tasks if task.shared)
    if shared:
        notes.append(f"Training and validation rows left out that are in the test set: {shared}.")
    return tasks, notes


def _read_task(name: str, folder: Path) -> Task:
    files = {split_of(file): file for file in sorted(folder.iterdir()) if ending_of(file)}
    lacking = [part for part in _PARTS if part not in files]
    if lacking:
        raise InputError(f"{folder}: has no file {lacking[0]}, such as {lacking[0]}.jsonl.gz")
    read = {part: read_examples(file) for part, file in files.items() if part in _PARTS}
    known = set(map(normalize_text, read["test"].sentences))
    kept = {
        part: [row for row, texts in enumerate(read[part].texts)
               if not known.issuperset(map(normalize_text, texts))]
        for part in ("train", "dev")
    }  # fmt: skip
    for part, rows in kept.items():
        if not rows:
            raise InputError(f"{files[part]}: every text is in {files['test']} too: give others")
    examples, dev = (read[part].select(rows) for part, rows in kept.items())
    if examples.labels is None or examples.labels.kind not in ("class", "tags"):
        raise InputError(f"{files['train']}: a task has one label a row, or tags: give such a set")
    train = rows_of(examples)
    shared = sum(len(read[part]) - len(rows) for part, rows in kept.items())
    validation, test = (rows_of(one, train.labels) for one in (dev, read["test"]))
    return Task(name, examples, train, validation, test, shared)


def open_bank(steps: Steps) -> Bank:
    """Build the bank of all raw text in the data folder, or go on with it; tables share it."""
    source = steps.data / "bank"
    if not source.exists():
        raise InputError(
            f"{source}: no such folder: put raw text there, txt, jsonl or parquet files"
        )
    return build_named(
        steps.at("bank"), [str(source)], encoder=steps.scale.encoder, format="int8", rules=Rules(),
        near=True, column=None, split="train", seed=0, shard_megabytes=16, workers=None,
        device=steps.settings.device, overwrite=False, quiet=steps.settings.quiet,
    )  # fmt: skip


def teaching(scale: Scale) -> dict[str, Any]:
    """Return the settings of what is fine-tuned on labelled rows alone."""
    return {**TEACHING, "batch": scale.training["batch"]}


def teacher_of(steps: Steps, task: Task, *, seed: int = 0, base: str | None = None) -> Classifier:
    """Fine-tune a base on a task's training set, or load what was fine-tuned."""
    base = base or steps.scale.teacher
    settings = Finetuning(seed=seed, **teaching(steps.scale)).for_base(base)
    return train_teacher(
        task.train, task.validation, base, settings,
        out=steps.at(f"{task.name}-teacher-{Path(base).name}-{seed}"), device=steps.settings.device,
        quiet=steps.settings.quiet,
    )  # fmt: skip


def kept_count(scale: Scale, task: Task) -> int:
    """Return how many sentences are learned for a task: so many, or in proportion to its rows."""
    return scale.sentences or multiple_of(len(task.train)) * len(task.train)


def retrieved(steps: Steps, task: Task, bank: Bank, *, query: str = "", share: int = 1) -> pa.Table:
    """Return the sentences nearest to a task's queries, more than are to be learned.

    Args:
        steps: whose scale says how many.
        task: what they are for.
        bank: where they are.
        query: the kind of queries; empty: as the scale has it for such a task.
        share: only one in so many of the bank's sentences is looked at.
    """
    scale = steps.scale
    of_tags = scale.tag_query if task.train.kind == "tags" else ""
    count = max(scale.candidates, round(kept_count(scale, task) * SPARE))
    found = retrieve(
        bank, task.examples, kind=query or of_tags or scale.query, count=count * share,
        without=task.without,
    )  # fmt: skip
    if share > 1:  # of all hits those that lie in a part of the bank are what its search finds
        found = found.take(pa.array(np.flatnonzero(found["id"].to_numpy() % share == 0)))
    return with_tokens(found, task)


def shortfall(steps: Steps, task: Task, found: pa.Table) -> list[str]:
    """Return a note where a bank has fewer sentences than are to be learned."""
    wanted = kept_count(steps.scale, task)
    if len(found) >= wanted:
        return []
    return [f"{task.name}: {wanted:,} sentences are to be learned, the bank has {len(found):,}."]


def with_tokens(found: pa.Table, task: Task) -> pa.Table:
    """Return sentences with the tokens that a task of tags wants; others as they are."""
    if task.examples.tokens is None:
        return found
    words = learn_words(task.examples.tokens)
    tokens = [words.cut(text) for text in found["text"].to_pylist()]
    return found.append_column("tokens", pa.array(tokens, pa.list_(pa.string())))


@dataclass(frozen=True, slots=True)
class Pool:
    """Sentences of a bank that a teacher labelled.

    Attributes:
        rows: with the teacher's probabilities.
        similarity: to the nearest query; 0 of random ones. # (rows,)
        keys: of the texts, for draws. # (rows,)
    """

    rows: Rows
    similarity: NDArray[np.float32]
    keys: NDArray[np.uint64]

    def draw(self, task: Task, count: int, by: str, seed: int) -> Rows:
        """Return some of them, in the training set's ratio of classes.

        Args:
            task: whose ratio.
            count: how many at most.
            by: see `tilth.selftrain.select.select`; `any`: a draw without regard to classes.
            seed: of the draw.
        """
        if by == "any":
            order = np.random.default_rng((seed, 1)).permutation(len(self.rows))
            return self.rows.select(np.sort(order[:count]))
        found = select(
            self.rows.targets, kind=self.rows.kind, labels=self.rows.labels,
            ratio=class_ratio(task.train.targets, kind=task.train.kind, labels=task.train.labels),
            count=count, by=by, similarity=self.similarity, keys=self.keys, seed=seed,
        )  # fmt: skip
        return self.rows.select(found.kept)


def digest(found: pa.Table) -> str:
    """Return a hash of some sentences, in their order."""
    texts = found["text"].combine_chunks().cast(pa.large_string())
    return blake2b(text_hashes(texts).tobytes(), digest_size=8).hexdigest()


def label_pool(steps: Steps, name: str, task: Task, found: pa.Table, teacher: Classifier) -> Pool:
    """Let a teacher label sentences, or go on with it; each part is kept.

    Args:
        steps: where.
        name: of the step.
        task: whose labels.
        found: columns text and similarity, and tokens for tags.
        teacher: labels them.
    """
    starts = range(0, len(found), _LABELLED_AT_ONCE)
    texts = found["text"].combine_chunks().cast(pa.large_string())
    run = Run.open(
        steps.at(name),
        command="recipe label",
        settings={"sentences": len(found)},
        fingerprints={
            "sentences": digest(found),
            "teacher": fingerprint_classifier(teacher),
        },
        parts=len(starts),
    )
    with run:
        for part in run.missing():
            some = found.slice(starts[part], _LABELLED_AT_ONCE)
            lists = as_lists(label_hits(teacher, some))
            run.write_part(part, pa.table({PROBABILITIES: lists}))
        table = pa.concat_tables(run.read_part(part) for part in range(run.parts))
    similarity = pc.fill_null(found["similarity"], 0.0).to_numpy().astype(np.float32)
    labelled = found.append_column(PROBABILITIES, table[PROBABILITIES])
    return Pool(labelled_rows(labelled, task.train), similarity, text_hashes(texts))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What several trainings on one task came to.

    Attributes:
        scores: on the test set, accuracy or F1 of spans, x 100. # (seeds,)
        counts: of each seed and test row: right, answered and wanted spans; of classes one row is
            one span. # (seeds, rows, 3)
    """

    scores: list[float]
    counts: NDArray[np.int64]

    @property
    def cell(self) -> Cell:
        """Mean and deviation over seeds."""
        return over_seeds(self.scores)


def weights_of(task: Task, *bases: str) -> dict[str, str]:
    """Return hashes of the weights of bases, with a head for a task's labels."""
    return {
        f"weights of {base}": fingerprint_classifier(
            new_classifier(base, kind=task.train.kind, labels=task.train.labels, device="cpu")
        )
        for base in bases
    }


def students(
    steps: Steps,
    name: str,
    task: Task,
    make: Callable[[int], tuple[Rows, str]],
    settings: Mapping[str, Any],
    *,
    about: Callable[[int], Mapping[str, Any]],
    weights: Mapping[str, str],
) -> Outcome:
    """Train once for each seed and measure on the test set; the models are not kept.

    Args:
        steps: where, and how many seeds.
        name: of the step.
        task: what is learnt and measured.
        make: seed -> the rows to learn from, and the base.
        settings: of the training.
        about: seed -> what the rows are made from, so that other rows are another run.
        weights: hashes of the models that they and the student are made from; see `weights_of`.
    """
    return _outcome([
        _student(
            steps, f"{name}-{seed}", task, make, {**settings, "seed": seed}, about(seed), weights
        )
        for seed in range(steps.settings.seeds)
    ])  # fmt: skip


def _student(
    steps: Steps,
    name: str,
    task: Task,
    make: Callable[[int], tuple[Rows, str]],
    settings: Mapping[str, Any],
    about: Mapping[str, Any],
    weights: Mapping[str, str],
) -> pa.Table:
    run = Run.open(
        steps.at(f"{task.name}-{name}"),
        command="recipe train",
        settings={**settings, **about},
        fingerprints={
            **{
                name: rows.fingerprint()
                for name, rows in (
                    ("train", task.train),
                    ("validation", task.validation),
                    ("test", task.test),
                )
            },
            **weights,
        },
        parts=1,
    )
    with run:
        if run.missing():
            seed = settings["seed"]
            rows, base = make(seed)
            chosen = Finetuning(**settings).for_base(base)
            classifier = new_classifier(
                base, kind=rows.kind, labels=rows.labels, seed=seed, dropout=chosen.dropout,
                max_length=chosen.max_length, device=steps.settings.device,
            )  # fmt: skip
            fit(classifier, rows, task.validation, chosen, quiet=steps.settings.quiet)
            run.write_part(0, _counted(task, classifier))
        return run.read_part(0)


def measure_trained(classifiers: Iterable[Classifier], task: Task) -> Outcome:
    """Measure classifiers on the test set."""
    return _outcome([_counted(task, classifier) for classifier in classifiers])


def _counted(task: Task, classifier: Classifier) -> pa.Table:
    """Return right, answered and wanted spans of each test row."""
    test = task.test
    answers = classifier.answers(test)
    if isinstance(test.targets, list):
        gold, _ = best_tags(test.targets, test.labels)
        said, _ = best_tags(answers, classifier.labels)
        kinds = entity_types([*gold, *said])
        counts = span_counts(gold, said, kinds)[:, : 3 * len(kinds)]
        counts = counts.reshape(len(gold), 3, len(kinds)).sum(axis=2)  # (rows, 3)
    else:
        right = answered(answers, "class") == test.targets.argmax(axis=1)
        counts = np.stack([right, np.ones_like(right), np.ones_like(right)], axis=1)  # (rows, 3)
    names = ("right", "answered", "wanted")
    return pa.table({name: counts[:, place].astype(np.int64) for place, name in enumerate(names)})


def _outcome(tables: Sequence[pa.Table]) -> Outcome:
    counts = np.stack(
        [np.stack([column.to_numpy() for column in table.columns], axis=1) for table in tables]
    )  # (seeds, rows, 3)
    return Outcome([float(_f1(one.sum(axis=0))) for one in counts], counts)


def _f1(sums: NDArray[Any]) -> NDArray[np.float64]:
    """Return F1 x 100 of sums of right, answered and wanted, (..., 3); of classes the accuracy."""
    said: NDArray[np.float64] = np.maximum(sums[..., 1] + sums[..., 2], 1)
    return 200 * sums[..., 0] / said


def gain(first: Mapping[str, Outcome], second: Mapping[str, Outcome]) -> Interval:
    """Return how far the mean over tasks of one way is above that of another, x 100.

    Args:
        first: task -> outcome.
        second: likewise, of at least the same tasks.
    """
    both = [
        (f1_contributions(one.counts), f1_contributions(second[task].counts))
        for task, one in first.items()
    ]
    return gain_interval(*zip(*both, strict=True))


def gain_note(name: str, over: str, found: Interval) -> str:
    """Say a gain in a sentence."""
    rows = "" if found.trainings else ", test rows; one training"
    return (
        f"{name} less {over}, mean of the tasks: {found.value:+.1f} "
        f"[{found.low:+.1f}, {found.high:+.1f}{rows}]."
    )


@dataclass(slots=True)
class Board:
    """Collects the lines of a table.

    Attributes:
        tasks: its columns.
        lines: name -> task -> outcome.
    """

    tasks: Sequence[Task]
    lines: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    def put(self, name: str, task: str, outcome: Outcome) -> None:
        """Enter an outcome."""
        self.lines.setdefault(name, {})[task] = outcome

    def gain(self, name: str, over: str) -> str:
        """Return a note on how far one line is above another."""
        return gain_note(name, over, gain(self.lines[name], self.lines[over]))


def result(
    steps: Steps, title: str, board: Board, published: Sequence[Row], notes: Sequence[str]
) -> Result:
    """Return the table: our lines, then the published ones."""
    seeds = steps.settings.seeds
    varied = "test rows and trainings, Student's t"
    if seeds == 1:
        varied = "test rows; what one training differs from the next by takes --seeds 3"
    ours = [
        Row(name, {column_of(task): found.cell for task, found in line.items()})
        for name, line in board.lines.items()
    ]
    said = [
        f"{measures(board.tasks)}; mean and deviation of {seeds} trainings; brackets: 95% over "
        f"{varied}.",
        *notes,
    ]
    return Result(table_of(title, [task.name for task in board.tasks], [*ours, *published], said))


def measures(tasks: Sequence[Task]) -> str:
    """Say what the figures of some tasks are."""
    spans = ", ".join(column_of(task.name) for task in tasks if task.train.kind == "tags")
    return "Accuracy x 100" + (f" ({spans}: F1 of spans)" if spans else "") + " on the test sets"


def table_of(title: str, tasks: Sequence[str], rows: Sequence[Row], notes: Sequence[str]) -> Table:
    """Return a table of tasks with means that are over the same tasks for us and the paper.

    Args:
        title: of the table.
        tasks: measured here.
        rows: ours, then published ones; means are added.
        notes: see `Table`.
    """
    measured = [column_of(task) for task in tasks]
    of_paper = [column for row in rows if row.published for column in row.cells]
    shared = [column for column in measured if column in of_paper]
    means = {MEAN: measured} if set(shared) != set(measured) and len(measured) > 1 else {}
    if len(shared) > 1:
        means[f"mean of {', '.join(shared)}"] = shared
    made = []
    for row in rows:
        own = {
            name: mean_of([row.cells[column] for column in columns])
            for name, columns in means.items()
            if all(column in row.cells for column in columns)
        }
        made.append(Row(row.name, {**row.cells, **own}, row.published))
    return Table(title, list(dict.fromkeys([*measured, *means, *of_paper])), made, notes)
