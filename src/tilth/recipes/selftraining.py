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
from tilth.data.examples import Examples, read_examples
from tilth.data.formats import ending_of, part_of
from tilth.data.keys import text_hashes
from tilth.data.plain import plain_sentence
from tilth.errors import InputError
from tilth.evaluate.classify import answered
from tilth.evaluate.spans import span_counts, types_of
from tilth.evaluate.tag import best_tags
from tilth.metrics.intervals import Interval, f1_of_rows, of_gain
from tilth.models.classifier import Classifier, fingerprint_classifier, new_classifier
from tilth.recipes.banking import build_named
from tilth.recipes.steps import Result, Scale, Steps
from tilth.recipes.table import Cell, Row, Table, over_seeds
from tilth.runs import Run
from tilth.selftrain.finetune import fit
from tilth.selftrain.labelled import label_hits
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.rows import Rows, rows_of
from tilth.selftrain.select import class_ratio, select
from tilth.selftrain.settings import Finetuning
from tilth.selftrain.teacher import train_teacher
from tilth.selftrain.words import learn_words

SOURCE = "SentAugment (Du et al. 2021, arXiv 2010.02194)"
NEEDS = (
    "bank/ with raw text; of classify/sst2, classify/trec, classify/insults and ner/ncbi-disease "
    "what is there, each with files train, dev and test"
)
FAMILIES = {"sst2": "classify", "trec": "classify", "insults": "classify", "ncbi-disease": "ner"}
# Columns of tasks; those that the paper measures too have its names.
COLUMNS = {"sst2": "SST-2", "trec": "TREC", "insults": "IMP", "ncbi-disease": "ncbi-disease"}
MEAN, PAPERS_MEAN = "mean of our tasks", "mean of the paper's tasks"
_PARTS = ("train", "dev", "test")
# Passes of teachers over the labelled rows; their batch is that of the scale, 16 in the paper.
TEACHING: dict[str, Any] = {"epochs": 3.0}
SPARE = 1.5  # sentences labelled for each one drawn
FIXED = (
    "Each task has one teacher, of seed 0: how teachers vary is in no deviation and no interval."
)
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


def read_tasks(steps: Steps, names: Sequence[str]) -> tuple[list[Task], list[str]]:
    """Return the labelled sets that the data folder has, and a note on those it lacks.

    Raises:
        InputError: it has none of them, or a set is wrong.
    """
    folders = {name: steps.data / FAMILIES[name] / name for name in names}
    found = [_read_task(name, folder) for name, folder in folders.items() if folder.is_dir()]
    if not found:
        raise InputError(
            f"{steps.data}: has none of "
            + ", ".join(f"{FAMILIES[name]}/{name}" for name in names)
            + ": put a labelled set there, files train, dev and test"
        )
    missing = [name for name, folder in folders.items() if not folder.is_dir()]
    notes = [f"Not in the data folder: {', '.join(missing)}."] if missing else []
    shared = ", ".join(f"{task.name} {task.shared}" for task in found if task.shared)
    if shared:
        notes.append(f"Training and validation rows left out that are in the test set: {shared}.")
    return found, notes


def _read_task(name: str, folder: Path) -> Task:
    files = {part_of(file): file for file in sorted(folder.iterdir()) if ending_of(file)}
    lacking = [part for part in _PARTS if part not in files]
    if lacking:
        raise InputError(f"{folder}: has no file {lacking[0]}, such as {lacking[0]}.jsonl.gz")
    read = {part: read_examples(file) for part, file in files.items() if part in _PARTS}
    known = set(map(plain_sentence, read["test"].sentences))
    kept = {
        part: [row for row, texts in enumerate(read[part].texts)
               if not known.issuperset(map(plain_sentence, texts))]
        for part in ("train", "dev")
    }  # fmt: skip
    for part, rows in kept.items():
        if not rows:
            raise InputError(f"{files[part]}: every text is in {files['test']} too: give others")
    examples, dev = (read[part].select(rows) for part, rows in kept.items())
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
        device=steps.device, overwrite=False, quiet=steps.quiet,
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
        out=steps.at(f"{task.name}-teacher-{Path(base).name}-{seed}"), device=steps.device,
        quiet=steps.quiet,
    )  # fmt: skip


def retrieved(
    steps: Steps, task: Task, bank: Bank, count: int, *, query: str | None = None
) -> pa.Table:
    """Return the sentences nearest to a task's queries, some more than are to be drawn."""
    found = retrieve(
        bank, task.examples, kind=query or steps.scale.query, count=round(count * SPARE),
        without=task.without,
    )  # fmt: skip
    return with_tokens(found, task)


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
            run.write_part(part, _table(label_hits(teacher, some)))
        table = pa.concat_tables(run.read_part(part) for part in range(run.parts))
    similarity = pc.fill_null(found["similarity"], 0.0).to_numpy().astype(np.float32)
    return Pool(_rows(task, found, table), similarity, text_hashes(texts))


def _table(given: Sequence[NDArray[np.float32]]) -> pa.Table:
    """Return probabilities as a table, those of a sentence in one list."""
    kept = pa.array([one.astype(np.float32).ravel() for one in given], pa.list_(pa.float32()))
    return pa.table({"probabilities": kept})


def _rows(task: Task, found: pa.Table, table: pa.Table) -> Rows:
    kind, labels = task.train.kind, task.train.labels
    texts: list[tuple[str, ...]] = [(text,) for text in found["text"].to_pylist()]
    flat = table["probabilities"].combine_chunks()
    if kind != "tags":
        targets = flat.flatten().to_numpy().reshape(len(found), len(labels))  # (rows, labels)
        return Rows(kind, labels, texts, None, targets)
    tokens = found["tokens"].to_pylist()
    each = [np.array(one, np.float32).reshape(-1, len(labels)) for one in flat.to_pylist()]
    return Rows(kind, labels, texts, tokens, each)


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
        for seed in range(steps.seeds)
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
                max_length=chosen.max_length, device=steps.device,
            )  # fmt: skip
            fit(classifier, rows, task.validation, chosen, quiet=steps.quiet)
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
        kinds = types_of([*gold, *said])
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


def mean_cell(outcomes: Sequence[Outcome]) -> Cell:
    """Return the mean over tasks, with its deviation over seeds."""
    seeds = zip(*(outcome.scores for outcome in outcomes), strict=True)
    return over_seeds([sum(scores) / len(scores) for scores in seeds])


def gain(first: Mapping[str, Outcome], second: Mapping[str, Outcome]) -> Interval:
    """Return how far the mean over tasks of one way is above that of another, x 100.

    Args:
        first: task -> outcome.
        second: likewise, of at least the same tasks.
    """
    both = [
        (f1_of_rows(one.counts), f1_of_rows(second[task].counts)) for task, one in first.items()
    ]
    return of_gain(*zip(*both, strict=True))


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

    tasks: Sequence[str]
    lines: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    def put(self, name: str, task: str, outcome: Outcome) -> None:
        """Enter an outcome."""
        self.lines.setdefault(name, {})[task] = outcome

    def cells(self, name: str) -> dict[str, Cell]:
        """Return a line's figures, with the mean where every task is there."""
        line = self.lines[name]
        found = {task: outcome.cell for task, outcome in line.items()}
        if len(line) == len(self.tasks) and len({len(o.scores) for o in line.values()}) == 1:
            found[MEAN] = mean_cell(list(line.values()))
        return found

    def gain(self, name: str, over: str) -> str:
        """Return a note on how far one line is above another."""
        return gain_note(name, over, gain(self.lines[name], self.lines[over]))


def _varied(seeds: int) -> str:
    if seeds == 1:
        return "test rows; what one training differs from the next by takes --seeds 3"
    return "test rows and trainings, Student's t"


def result(
    steps: Steps, title: str, board: Board, published: Sequence[Row], notes: Sequence[str]
) -> Result:
    """Return the table: our lines, then the published ones."""
    ours = [
        Row(name, {COLUMNS.get(key, key): cell for key, cell in board.cells(name).items()})
        for name in board.lines
    ]
    columns = [*(COLUMNS[task] for task in board.tasks), MEAN]
    columns += [c for row in published for c in row.cells if c not in columns]
    spans = ", of ncbi-disease F1 of spans," if "ncbi-disease" in board.tasks else ""
    said = [
        f"Accuracy x 100{spans} on the test sets; mean and deviation of {steps.seeds} trainings; "
        f"brackets: 95% over {_varied(steps.seeds)}.",
        *notes,
        f"Unlike in the paper: {steps.scale.smaller}.",
    ]
    table = Table(title, list(dict.fromkeys(columns)), [*ours, *published], said)
    return Result(table)
