"""What the 50 sentences that `tilth grow` gives to label are worth, against as many random ones.

    python benchmarks/to_label.py --data DIR --out DIR [--tasks trec,sst2] [--rows 100]
        [--draws 0,1,2]

DIR holds classify/sst2, trec and insults. Of each task's train part some rows are labelled, the
others are raw text whose labels are looked up when they are asked for. The contrastive encoder is
trained on the labelled rows, on these and the 50 that it asks for, and on these and 50 random ones
(twice). Printed is accuracy on the test set, and the gain of asked for over random ones, mean over
the draws with 95% (Student's t).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grow import describe, drawn_rows
from inputs import lines, script_parser
from tilth.metrics.significance import mean_interval
from tilth.report.systems import CONTRAST
from tilth.workflows.baselines import STARTER
from tilth.workflows.grow.arms import Arm, Bases, Trainer
from tilth.workflows.grow.notes import shown
from tilth.workflows.grow.outputs import to_label
from tilth.workflows.grow.settings import GrowSources, Growth
from tilth.workflows.grow.sources import Sources
from tilth.workflows.grow.task import open_raw, read_grow_task, whole_fold

RANDOM_TIMES = 2


def write(file: Path, rows: list[dict[str, str]]) -> str:
    """Write rows as jsonl; return its path."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def accuracies(name: str, count: int, draw: int, asked: Any) -> dict[str, float]:
    """Return the accuracy without more labels, with those asked for, and with random ones."""
    folder = asked.out / f"{name}-{count}-{draw}"
    folder.mkdir(parents=True, exist_ok=True)
    place = asked.data / "classify" / name
    rows = [json.loads(row) for row in lines(place / "train.jsonl.gz")]
    drawn = drawn_rows([row["label"] for row in rows], count, draw)
    others = [rows[at] for at in sorted(set(range(len(rows))) - set(drawn))]
    gold = {row["text"]: row["label"] for row in others}
    labels = describe(folder / "labels.json", name, [row["label"] for row in rows])
    raw = folder / "raw.txt"
    raw.write_text("\n".join(gold) + "\n", encoding="utf-8")
    bank = open_raw([str(raw)], folder, device="cpu")
    assert bank is not None
    own = [rows[at] for at in drawn]
    settings = Growth(seed=draw)
    sources = GrowSources(
        write(folder / "rows.jsonl", own), (str(raw),), labels,
        test=str(place / "test.jsonl.gz"),
    )  # fmt: skip

    def accuracy(more: list[str], file: str) -> tuple[float, list[str]]:
        given = own + [{"text": text, "label": gold[text]} for text in more]
        task = read_grow_task(replace(sources, train=write(folder / file, given)))
        makes, whole = Sources(task, bank, settings, folder, "cpu"), whole_fold(task.rows)
        trainer = Trainer(task, makes, Bases(STARTER, STARTER), settings, "cpu")
        grown = trainer.train(Arm(CONTRAST), whole)
        assert task.test is not None
        assert grown.classifier is not None
        right = np.asarray(task.test.targets).argmax(axis=1)
        found = grown.answer(task.test.texts).argmax(axis=1)
        chosen = [] if more else to_label(bank, grown.classifier(), task, makes, whole)
        texts = [row["text"] for row in chosen if row["text"] in gold]
        return 100 * float((found == right).mean()), texts

    before, picked = accuracy([], "before.jsonl")
    known = [text for text in bank.rows(np.arange(len(bank)))["text"].to_pylist() if text in gold]
    found = {"labels": len(picked), "before": before, "asked": accuracy(picked, "asked.jsonl")[0]}
    by_chance = []
    for number in range(RANDOM_TIMES):
        some = np.random.default_rng((draw, number)).choice(len(known), len(picked), replace=False)
        by_chance.append(accuracy([known[at] for at in some], f"random-{number}.jsonl")[0])
    return {**found, "random": float(np.mean(by_chance))}


def main() -> None:
    """Measure each draw once, and print a table."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default="trec,sst2")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--draws", default="0,1,2")
    asked: Any = parser.parse_args()
    print("| task | labels | before | asked for | random | asked over random |")
    print("| --- " * 6 + "|")
    for name in asked.tasks.split(","):
        draws = []
        for draw in map(int, asked.draws.split(",")):
            file = asked.out / f"{name}-{asked.rows}-{draw}.json"
            if not file.is_file():
                found = accuracies(name, asked.rows, draw, asked)
                file.write_text(json.dumps(found), encoding="utf-8")
            draws.append(json.loads(file.read_text()))
        means = {key: np.mean([one[key] for one in draws]) for key in draws[0]}
        gain = mean_interval([one["asked"] - one["random"] for one in draws])
        print(
            f"| {name}, {asked.rows} | {means['labels']:.0f} | {means['before']:.1f} | "
            f"{means['asked']:.1f} | {means['random']:.1f} | {shown(gain)} |", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
