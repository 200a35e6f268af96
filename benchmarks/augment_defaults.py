"""Decides the defaults of `tilth augment` and of training classifiers, on held-out rows of train.

    python benchmarks/augment_defaults.py --data DIR --out DIR [--seeds 3] [--test]
    python benchmarks/augment_defaults.py --data DIR --out DIR --files starter-encoder,starter-mlm

DIR holds classify/sst2, classify/trec and classify/insults, and bank/ with raw text. Of the rows of
train and dev, 1,000 are held out and measured on; each seed draws 300 of the others to learn from,
trains a teacher (starter-encoder) on them, lets it label sentences of a bank, and trains a student
(--student) on some of these in each way. With --files the 300 rows alone are a file that `tilth
train classifier` is given with each base, beside its baselines. Each training is kept in a file of
--out: the same command goes on where it stopped. Test sets are read with --test only, which
measures the default and the labelled rows alone on them, or with --files what was trained: to be
called once, after the defaults are set.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from inputs import script_parser
from tilth.bank import Bank
from tilth.classifiers.collate import encode
from tilth.classifiers.examples import LabeledExamples, concatenate, labeled_examples, repeat
from tilth.classifiers.finetune import fine_tune
from tilth.classifiers.load import TaskSources, repeat_count
from tilth.classifiers.logistic import begin_head
from tilth.classifiers.settings import ClassifierTraining, Finetuning
from tilth.classifiers.trainer import (
    Schedule,
    selection_score,
    soft_label_loss,
    train_model,
)
from tilth.data.examples import Examples, read_examples
from tilth.data.hashing import text_hashes
from tilth.metrics.significance import Interval, gain_interval, mean_interval
from tilth.models.classifier import Classifier, new_classifier
from tilth.models.trainer import LengthBatchSampler
from tilth.report.systems import TRAINED
from tilth.selftrain.dataset import blend_labels
from tilth.selftrain.pseudo_label import PROBABILITIES, from_lists, label_sentences
from tilth.selftrain.retrieve import retrieve
from tilth.selftrain.select import PseudoLabels, select
from tilth.selftrain.settings import Augmentation
from tilth.workflows.train_and_test import train_and_test

TASKS = ("sst2", "trec", "insults")
TEACHER = "starter-encoder"
HELD, LABELLED, WANTED, CANDIDATES = 1_000, 300, 1_500, 3_000
TOKENS = 48
CHARACTERS = 2_500_000  # of each file of raw text
# Measured ten times in training, to see what choosing weights by few rows is worth.
FOLLOWED = "alone, 10 passes"


@dataclass(frozen=True, slots=True)
class Way:
    """How a student is trained.

    Attributes:
        share: of the labelled rows among all; None: these alone.
        blended: whether labelled rows have targets half way between label and teacher.
        by: how sentences are selected.
        epochs: passes; None: as many steps as with retrieved sentences (950 steps at most).
        candidates: the nearest sentences that are selected from.
        query: what sentences are retrieved by.
    """

    share: float | None = 0.25
    blended: bool = True
    by: str = "random"
    epochs: float | None = 3.0
    candidates: int = CANDIDATES
    query: str = "label-average"


DEFAULT = Way()
ALONE = Way(share=None, blended=False, epochs=None)
WAYS = {
    "default": DEFAULT,
    "alone, 10 passes": replace(ALONE, epochs=10.0),
    "alone, 3 passes": replace(ALONE, epochs=3.0),
    "alone, 5 passes": replace(ALONE, epochs=5.0),
    "alone": ALONE,
    "one candidate": replace(DEFAULT, candidates=WANTED),
    "all-average": replace(DEFAULT, query="all-average"),
    "confidence": replace(DEFAULT, by="confidence"),
    "gold labels": replace(DEFAULT, blended=False),
    "share 0": replace(DEFAULT, share=0.0),
    "share .5": replace(DEFAULT, share=0.5),
}
FIRST = 4  # of these are trained with every seed before the others
# What is compared, in the order in which it is trained: the way, and what it is held against.
PAIRS = [
    ("default", "alone"), ("default", "alone, 10 passes"), ("alone", "alone, 10 passes"),
    ("alone, 3 passes", "alone, 10 passes"), ("alone, 5 passes", "alone, 10 passes"),
    ("one candidate", "default"), ("all-average", "default"), ("confidence", "default"),
    ("gold labels", "default"), ("share 0", "default"), ("share .5", "default"),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    """What one seed learns from, and what it is measured on."""

    labelled: LabeledExamples
    blended: LabeledExamples
    retrieved: LabeledExamples
    keys: NDArray[np.uint64]
    held: LabeledExamples

    def rows(self, way: Way, seed: int) -> LabeledExamples:
        """Return what a student learns from."""
        own = self.blended if way.blended else self.labelled
        if way.share is None:
            return own
        near = slice(0, way.candidates)
        found = select(
            PseudoLabels(self.retrieved.targets[near], self.keys[near]), own, WANTED, by=way.by,
            seed=seed,
        )  # fmt: skip
        some = self.retrieved.select(found.kept)
        return concatenate(some, repeat(own, repeat_count(way.share, len(some), len(own))))


def open_bank(data: Path, out: Path) -> Bank:
    """Build a bank of the beginning of each file of raw text, or open it."""
    folder = out / "bank"
    if (folder / "bank.json").is_file():
        return Bank.open(folder, device="cpu")
    with tempfile.TemporaryDirectory() as texts:
        for file in sorted((data / "bank").glob("*.txt.gz")):
            with gzip.open(file, "rt", encoding="utf-8") as lines:
                text = "".join(_until(lines, CHARACTERS))
            (Path(texts) / file.name.removesuffix(".gz")).write_text(text, encoding="utf-8")
        return Bank.build(folder, [texts])


def _until(lines: Iterator[str], characters: int) -> Iterator[str]:
    for line in lines:
        characters -= len(line)
        if characters < 0:
            return
        yield line


def read_pool(folder: Path) -> Examples:
    """Return the rows of train and dev, each text once, in an order by chance."""
    both = [read_examples(folder / f"{part}.jsonl.gz") for part in ("train", "dev")]
    found = {
        text: str(label)
        for examples in both
        for (text,), label in zip(examples.texts, examples.labels.values, strict=True)  # type: ignore[union-attr]
    }
    order = np.random.default_rng(0).permutation(len(found))
    rows = list(found.items())
    return read_examples([{"text": rows[at][0], "label": rows[at][1]} for at in order])


def draw(task: str, seed: int, query: str, bank: Bank, data: Path, out: Path) -> Drawn:
    """Draw labelled rows, train a teacher on them, and let it label sentences of the bank."""
    pool = labeled_examples(read_pool(data / "classify" / task))
    held = pool.select(np.arange(HELD))
    rng = np.random.default_rng((1, seed))
    places = np.sort(HELD + rng.permutation(len(pool) - HELD)[:LABELLED])
    labelled = pool.select(places)
    names = np.array(pool.labels)
    examples = read_examples([
        {"text": text, "label": str(names[target.argmax()])}
        for (text,), target in zip(labelled.texts, labelled.targets, strict=True)
    ])  # fmt: skip
    file = out / f"{task}-{seed}-{query}-teacher.npz"
    excluded = {"held out": [text for (text,) in held.texts]}
    found = retrieve(bank, examples, CANDIDATES, Augmentation(query=query), exclude=excluded).table
    if not file.is_file():
        settings = Finetuning(seed=seed, max_length=TOKENS).for_base(TEACHER)
        teacher = _new(TEACHER, labelled, settings)
        fine_tune(teacher, labelled, None, settings, quiet=True)
        own = blend_labels(labelled, teacher)
        given = from_lists(label_sentences(found, [teacher])[PROBABILITIES])
        _save(file, given=np.asarray(given), own=np.asarray(own.targets))
    with np.load(file) as kept:
        texts: list[tuple[str, ...]] = [(text,) for text in found["text"].to_pylist()]
        retrieved = LabeledExamples("class", pool.labels, texts, None, kept["given"])
        blended = replace(labelled, targets=kept["own"])
    keys = text_hashes(found["text"].combine_chunks())
    return Drawn(labelled, blended, retrieved, keys, held)


def _new(base: str, rows: LabeledExamples, settings: Finetuning) -> Classifier:
    return new_classifier(
        base, kind=rows.kind, labels=rows.labels, seed=settings.seed, dropout=settings.dropout,
        max_length=settings.max_length, device="cpu",
    )  # fmt: skip


def train(
    file: Path, drawn: Drawn, way: Way, student: str, seed: int, *, measurements: int
) -> None:
    """Train a student, and keep its answers to the held-out rows, the last weights' last."""
    rows = drawn.rows(way, seed)
    settings = Finetuning(seed=seed, max_length=TOKENS, epochs=way.epochs).for_base(student)
    if way.epochs is None:
        steps, _ = replace(settings, epochs=3.0).steps(len(drawn.rows(DEFAULT, seed)))
        settings = replace(settings, epochs=min(steps / -(-len(rows) // settings.batch), 50.0))
    classifier = _new(student, rows, settings)
    gold = np.asarray(drawn.held.targets).argmax(axis=1)
    probability = []  # of the right label, at each measurement: (rows,)
    right = []

    def measure() -> tuple[float, float]:
        classifier.model.train(mode=False)
        given = classifier.answers(drawn.held)
        right.append(given.argmax(axis=1) == gold)
        probability.append(given[np.arange(len(gold)), gold])
        return float(right[-1].mean()), 0.0

    steps, _ = settings.steps(len(rows))
    encoded = encode(classifier, rows, bfloat16=False)
    if classifier.reads_embedding:
        begin_head(classifier, encoded)
    train_model(
        classifier.model, encoded, LengthBatchSampler(encoded.ids.lengths, settings.batch, seed),
        soft_label_loss(classifier, settings, bfloat16=False), settings,
        Schedule(steps, -(-steps // measurements), measure), None, quiet=True,
    )  # fmt: skip
    if way in (DEFAULT, ALONE):
        classifier.model.train(mode=False)
        classifier.save(file.with_suffix(""))
    _save(file, right=np.stack(right), probability=np.stack(probability))


def _save(file: Path, **arrays: NDArray[np.generic]) -> None:
    unfinished = file.with_name("unfinished.npz")
    np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]
    unfinished.rename(file)


def print_ways(out: Path, seeds: int) -> None:
    """Print what each way is worth, x 100, and how far it is above what it is held against."""
    print(f"\n{'way':24} {' '.join(f'{task:>8}' for task in TASKS)}     trainings of each task")
    for name in WAYS:
        found = [_right(out, task, range(seeds), name) for task in TASKS]
        if any(len(one) for one in found):
            each = " ".join(f"{one.mean():8.1f}" if len(one) else " " * 8 for one in found)
            print(f"{name:24} {each}     {', '.join(str(len(one)) for one in found)}")
    print("\ndifference of held-out accuracy, 95% over held-out rows and trainings")
    for name, against in PAIRS:
        both = [_pair(out, task, seeds, name, against) for task in TASKS]
        both = [pair for pair in both if len(pair[0])]
        if both:
            each = " ".join(f"{one.mean() - two.mean():+.1f}" for one, two in both)
            gain = said(gain_interval(*zip(*both, strict=True)))
            print(f"{f'{name} less {against}':42} {each}   {gain}")


def said(found: Interval) -> str:
    """Return a gain with its interval."""
    ends = "" if found.low is None else f" ({found.low:+.1f} to {found.high:+.1f})"
    return f"{found.value:+.1f}{ends}{'' if found.trainings else ', one training'}"


def _pair(
    out: Path, task: str, seeds: int, name: str, against: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the right answers of two ways, of the seeds that both were trained with."""
    done = [
        seed for seed in range(seeds)
        if all(len(_right(out, task, [seed], one)) for one in (name, against))
    ]  # fmt: skip
    return _right(out, task, done, name), _right(out, task, done, against)


def _right(out: Path, task: str, seeds: Iterable[int], name: str) -> NDArray[np.float64]:
    """Return 100 for each right answer of the last weights, (trainings that are done, rows)."""
    files = [out / f"{task}-{seed}-{_slug(name)}.npz" for seed in seeds]
    kept = [np.load(file)["right"][-1] for file in files if file.is_file()]
    return 100.0 * np.stack(kept) if kept else np.empty((0, HELD))


def _slug(name: str) -> str:
    return name.replace(" ", "-").replace(",", "").replace(".", "")


def print_choices(out: Path, seeds: int) -> None:
    """Print what choosing weights by some validation rows gains over the last weights.

    Validation rows are drawn of the held-out ones, many times; what is chosen is measured on the
    others. Chosen is the measurement within a training, or the last weights of one seed of all.
    """
    print(f"\n{FOLLOWED}: chosen by validation rows, less the last weights (less the mean seed)")
    for count in (30, 50, 100, 200, 400):
        by_step, by_seed = np.full((2, len(TASKS), seeds), np.nan)
        for at, task in enumerate(TASKS):
            files = [out / f"{task}-{seed}-{_slug(FOLLOWED)}.npz" for seed in range(seeds)]
            kept = [np.load(file) for file in files if file.is_file()]
            right = [one["right"] for one in kept]  # each (measurements, rows)
            loss = [-np.log(np.maximum(one["probability"], 1e-9)) for one in kept]
            for seed in range(len(kept)):
                by_step[at, seed] = _gain(right[seed], loss[seed], count, last=True)
            if len(kept) > 1:
                last, losses = (np.stack([one[-1] for one in each]) for each in (right, loss))
                by_seed[at] = _gain(last, losses, count, last=False)
        done = by_step[np.isfinite(by_step)].tolist()
        if done:
            drawn = f", seed {np.nanmean(by_seed):+.2f}" if np.isfinite(by_seed).any() else ""
            print(
                f"{count:4} rows: step {said(mean_interval(done))} of {len(done)} trainings{drawn}"
            )


def _gain(right: NDArray[np.bool_], loss: NDArray[np.float64], count: int, *, last: bool) -> float:
    """Return the mean gain of the candidate that drawn rows choose, x 100, on the other rows.

    Args:
        right: of each candidate's answers. # (candidates, rows)
        loss: likewise. # (candidates, rows)
        count: rows to choose with, drawn 300 times.
        last: whether the gain is over the last candidate; else over their mean.
    """
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(300):
        order = rng.permutation(right.shape[1])
        some, others = order[:count], order[count:]
        scores = 100 * right[:, some].mean(axis=1)
        losses = loss[:, some].mean(axis=1)
        best = int(
            np.argmax([selection_score(one, two) for one, two in zip(scores, losses, strict=True)])
        )
        found = 100 * right[:, others].mean(axis=1)
        gains.append(found[best] - (found[-1] if last else found.mean()))
    return float(np.mean(gains))


def print_test(data: Path, out: Path, seeds: int) -> None:
    """Print the test accuracy of the default and of the labelled rows alone."""
    from tilth.models.classifier import load_classifier

    print("\naccuracy x 100 on the test sets, and the gain with 95% over test rows and trainings")
    found: dict[str, list[NDArray[np.float64]]] = {"default": [], "alone": []}
    for task in TASKS:
        done = [seed for seed in range(seeds) if len(_pair(out, task, seeds, *found)[0]) > seed]
        for name, right in found.items():
            rows = []
            for seed in done:
                classifier = load_classifier(str(out / f"{task}-{seed}-{name}"), device="cpu")
                test = labeled_examples(
                    read_examples(data / "classify" / task / "test.jsonl.gz"), classifier.labels
                )
                given = replace(classifier, max_length=TOKENS).answers(test)
                rows.append(100.0 * (given.argmax(1) == np.asarray(test.targets).argmax(1)))
            right.append(np.stack(rows))
    for name, right in found.items():
        print(f"{name:24} " + " ".join(f"{one.mean():8.1f}" for one in right))
    each = [a.mean() - b.mean() for a, b in zip(found["default"], found["alone"], strict=True)]
    print(
        f"gain {' '.join(f'{one:+.1f}' for one in each)}   {said(gain_interval(*found.values()))}"
    )


def main() -> int:
    """Train what is missing, and print."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--student", default="starter-encoder", help="one in each --out")
    parser.add_argument("--files", help="bases, with commas: train on 300 rows without a bank")
    parser.add_argument("--print", action="store_true", help="train nothing more")
    parser.add_argument("--test", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.files is not None:
        print_files(asked.data, asked.out, asked.seeds, asked.files.split(","), test=asked.test)
        return 0
    if not asked.print and not asked.test:
        _train_all(asked.data, asked.out, asked.seeds, asked.student)
    print_ways(asked.out, asked.seeds)
    print_choices(asked.out, asked.seeds)
    if asked.test:
        print_test(asked.data, asked.out, asked.seeds)
    return 0


def print_files(data: Path, out: Path, seeds: int, bases: list[str], *, test: bool) -> None:
    """Train on 300 rows of each task with each base; print accuracy beside the baselines."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed, task, base in itertools.product(range(seeds), TASKS, bases):
        pool = labeled_examples(read_pool(data / "classify" / task))
        places = HELD + np.random.default_rng((1, seed)).permutation(len(pool) - HELD)[:LABELLED]
        train_file, held_file = (out / f"{task}-{seed}-{name}.jsonl" for name in ("train", "held"))
        _write(train_file, pool.select(np.sort(places)))
        _write(held_file, pool.select(np.arange(HELD)))
        sources = TaskSources(
            str(train_file),
            test=str(data / "classify" / task / "test.jsonl.gz" if test else held_file),
        )
        settings = ClassifierTraining(base, Finetuning(seed=seed), device="cpu", quiet=True)
        results = train_and_test(sources, settings, out / f"{task}-{seed}-{base}").results
        for system in results["tested"]["systems"]:
            name = base if system["name"] == TRAINED else system["name"]
            of_task = found.setdefault(name, {}).setdefault(task, [])
            if len(of_task) <= seed:  # baselines stand beside each base
                of_task.append(system["scores"]["accuracy"]["value"])
        print(
            f"{task} {seed} {base}: {found[base][task][-1]:.1f} {results['warnings']}", flush=True
        )
    for name, each in found.items():
        print(f"{name:40} " + " ".join(f"{np.mean(each[task]):6.1f}" for task in TASKS))


def _write(file: Path, rows: LabeledExamples) -> None:
    names = np.array(rows.labels)[np.asarray(rows.targets).argmax(axis=1)].tolist()
    lines = (
        json.dumps({"text": text, "label": name})
        for (text,), name in zip(rows.texts, names, strict=True)
    )
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _train_all(data: Path, out: Path, seeds: int, student: str) -> None:
    bank = open_bank(data, out)
    print(f"bank: {len(bank):,} sentences", flush=True)
    every = list(WAYS.items())
    for ways, seed, task in itertools.product((every[:FIRST], every[FIRST:]), range(seeds), TASKS):
        drawn: dict[str, Drawn] = {}
        for name, way in ways:
            file = out / f"{task}-{seed}-{_slug(name)}.npz"
            if file.is_file():
                continue
            if way.query not in drawn:
                drawn[way.query] = draw(task, seed, way.query, bank, data, out)
            train(
                file, drawn[way.query], way, student, seed,
                measurements=10 if name == FOLLOWED else 1,
            )  # fmt: skip
            print(f"{task} {seed} {name}: {_right(out, task, [seed], name).mean():.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
