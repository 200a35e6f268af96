"""Compares what learns a class from few rows: baselines, the contrastive encoder, its students.

    python benchmarks/few_labels.py --data DIR --out DIR [--tasks trec,sst2] [--rows 0,100,300]
        [--draws 0,1,2] [--raw BANK|task] [--held-back COUNT] [--only NAMES] [--model starter]
        [--teacher NAME] [--base ENCODER]

DIR holds classify/sst2, trec, insults and clinc150, and bank/ with raw text: 10,000 lines of each
file, unless a bank or a file is given; with `--raw task` it is the other texts of train. Each draw
takes labelled rows of train; the test set decides nothing: to choose, measure other rows of train
with --held-back. A figure that stands in OUT/cells is not made again, so that the command goes on
where it stopped. Printed are accuracy on the test set, mean over the draws with 95% (Student's t),
and the gains in the same draws over the best baseline and over the teacher, on whose encoder
students are.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grow import OWN, WRITTEN, inputs
from inputs import script_parser
from tilth.bank import Bank
from tilth.errors import InputError
from tilth.metrics.significance import Interval, mean_interval
from tilth.report.systems import AVERAGE, CONTRAST, ENCODER, MAJORITY, SETFIT, TFIDF
from tilth.workflows.baselines import STARTER
from tilth.workflows.grow.arms import (
    BY_DESCRIPTION,
    PLAIN,
    TRAINED,
    Arm,
    Bases,
    Teacher,
    Trainer,
    arms_of,
)
from tilth.workflows.grow.settings import GrowSources, Growth
from tilth.workflows.grow.sources import Sources
from tilth.workflows.grow.task import GrowTask, open_raw, read_grow_task, whole_fold

BASELINES = (MAJORITY, TFIDF, ENCODER, SETFIT, PLAIN)
Cell = dict[str, dict[str, float]]


def arms(task: GrowTask, settings: Growth) -> list[Arm]:
    """Return the systems of a cell, those that train no encoder of their own first."""
    dear = [PLAIN, SETFIT]
    found = [arm for arm in arms_of(task, settings, raw=True) if not arm.is_curve]
    return sorted(found, key=lambda arm: dear.index(arm.name) if arm.name in dear else -1)


def run_cell(
    sources: GrowSources, bank: Bank, settings: Growth, only: list[str], teacher: str, file: Path
) -> None:
    """Train the missing systems of a cell, and measure each on the test set."""
    done: Cell = json.loads(file.read_text()) if file.is_file() else {}
    task = read_grow_task(sources)
    missing = [arm for arm in arms(task, settings) if arm.name not in done]
    missing = [arm for arm in missing if not only or arm.name in only]
    if not missing:
        return
    assert task.test is not None
    makes = Sources(task, bank, settings, file.with_suffix(""), "cpu")
    base = settings.base or STARTER
    trainer = Trainer(task, makes, Bases(base, base), settings, "cpu")
    trainer.teacher = Teacher(teacher)
    whole = whole_fold(task.rows)
    gold = np.asarray(task.test.targets).argmax(axis=1)
    for arm in missing:
        began = time.process_time()
        found = trainer.train(arm, whole).answer(task.test.texts)
        done[arm.name] = {
            "accuracy": 100 * float((found.argmax(axis=1) == gold).mean()),
            "seconds": time.process_time() - began,
        }
        file.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


def words(found: Interval, sign: str = "") -> str:
    """Return a mean and its interval."""
    if found.low is None:
        return f"{found.value:{sign}.1f}"
    return f"{found.value:{sign}.1f} ({found.low:{sign}.1f} to {found.high:{sign}.1f})"


def lines(cell: str, draws: list[Cell], teacher: str) -> Iterator[str]:
    """Yield the lines of a table: systems that every draw has, or that some draws have."""
    names = list(dict.fromkeys(name for draw in draws for name in draw))
    means = {
        name: float(np.mean([draw[name]["accuracy"] for draw in draws if name in draw]))
        for name in names
    }
    known = [name for name in BASELINES if name in means] or [BY_DESCRIPTION]
    best = max(known, key=lambda name: means.get(name, 0.0))

    def gain(name: str, over: str) -> str:
        both = [draw for draw in draws if name in draw and over in draw]
        if name == over or not both:
            return ""
        gains = [draw[name]["accuracy"] - draw[over]["accuracy"] for draw in both]
        return words(mean_interval(gains), "+")

    for name in names:
        some = [draw[name] for draw in draws if name in draw]
        accuracy = words(mean_interval([one["accuracy"] for one in some]))
        seconds = np.mean([one["seconds"] for one in some])
        mark = " (best baseline)" if name == best else ""
        yield (
            f"| {cell} | {name}{mark} | {len(some)} | {accuracy} | {gain(name, best)} | "
            f"{gain(name, teacher)} | {seconds:.0f} |"
        )


def main() -> None:
    """Train each system on each draw, and print a table."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default="trec,sst2,insults")
    parser.add_argument("--rows", default="0,50,100,300,1000")
    parser.add_argument("--draws", default="0,1,2")
    parser.add_argument("--raw", help="a bank, a file or `task`; default: lines of each raw file")
    parser.add_argument("--held-back", type=int, default=0, help="measure as many rows of train")
    parser.add_argument("--only", default="", help="systems to measure, ; between them")
    parser.add_argument("--model", help="language model that writes texts of sst2's labels")
    parser.add_argument("--teacher", default=CONTRAST, choices=[*TRAINED, AVERAGE])
    parser.add_argument("--base", help="a sentence encoder, instead of the starter encoder")
    asked: Any = parser.parse_args()
    kind = "held-back cells" if asked.held_back else "cells"
    cells = asked.out / (kind if asked.teacher == CONTRAST else f"{kind} of {asked.teacher}")
    cells.mkdir(parents=True, exist_ok=True)
    about, known = cells / "about.txt", ("raw", "held_back", "model", "base")
    now = "\n".join(f"{name}: {getattr(asked, name)}" for name in known)
    if about.is_file() and about.read_text(encoding="utf-8") != now:
        parser.error(
            f"{cells} holds figures of {about.read_text(encoding='utf-8')!r}: another --out"
        )
    about.write_text(now, encoding="utf-8")
    only = [name for name in asked.only.split(";") if name]
    head = ("task, rows", "system", "draws", "accuracy", "over the best baseline",
            "over the teacher", "seconds")  # fmt: skip
    print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    bank: Bank | None = None
    for count in map(int, asked.rows.split(",")):
        for task in asked.tasks.split(","):
            files = []
            for draw in map(int, asked.draws.split(",") if count else "0"):
                files.append(cells / f"{task}-{count}-{draw}.json")
                sources = inputs(
                    asked.data, asked.out, task, count, draw, raw=asked.raw,
                    held_back=asked.held_back,
                )  # fmt: skip
                if bank is None or asked.raw == OWN:
                    own = files[-1].with_suffix("") if asked.raw == OWN else asked.out
                    bank = open_raw(sources.raw, own, device="cpu")
                assert bank is not None
                model = asked.model if task in WRITTEN else None
                settings = Growth(model=model, base=asked.base, seed=draw)
                try:
                    run_cell(sources, bank, settings, only, asked.teacher, files[-1])
                except InputError as error:  # such as a label that one row has
                    print(f"draw left out: {error}", file=sys.stderr)
            found = [json.loads(file.read_text()) for file in files if file.is_file()]
            for line in lines(f"{task}, {count}", found, asked.teacher):
                print(line, flush=True)


if __name__ == "__main__":
    main()
