"""Measures what `tilth grow` finds on real tasks: the worth of each way, and the kept model's test.

    python benchmarks/grow.py --data DIR --out DIR [--tasks trec,sst2] [--rows 100] [--budget 30m]
        [--raw BANK|task]

DIR holds classify/sst2, trec, insults and clinc150, and bank/ with raw text. Each task has --rows
labelled rows drawn from train, 10,000 lines of each file of raw text, or with `--raw task` the
other texts of train, and descriptions of its labels (of clinc150's 150 intents their names); ways
are chosen by cross-validation, and the test set is read once, at the end. The command goes on
where it stopped. Printed is a Markdown table of the ways, and one of the test set.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from inputs import lines, script_parser
from tilth.workflows.grow.grow import grow_to_run
from tilth.workflows.grow.notes import arm_lines, summary_lines, test_lines
from tilth.workflows.grow.settings import GrowSources, Growth

BANK_LINES = 10_000  # of each file of raw text
OWN = "task"  # raw text: the other rows of train, without their labels
WRITTEN = ("sst2",)  # has instructions that the starter language model knows
LABELS: dict[str, dict[str, Any]] = {
    "sst2": {
        "1": {
            "description": "a favourable opinion of a film, praise",
            "instruction": 'Task: Write a review with a positive sentiment.\nReview: "',
            "counter_labels": ["0"],
        },
        "0": {
            "description": "an unfavourable opinion of a film, a complaint",
            "instruction": 'Task: Write a review with a negative sentiment.\nReview: "',
            "counter_labels": ["1"],
        },
    },
    "trec": {
        "2": "a question about what an abbreviation stands for",
        "0": "a question that asks for a definition, a description, a manner or a reason",
        "1": "a question about a thing, an animal, a product, a book, a colour or a term",
        "3": "a question about who a person, a group or an organisation is",
        "4": "a question about where a city, a country, a mountain or another place is",
        "5": "a question about a number, a date, a distance, a price or an amount",
    },
    "insults": {
        "1": "an insult, abuse of the person who is addressed",
        "0": "a comment without an insult, a civil opinion",
    },
}


def drawn_rows(labels: list[Any], count: int, seed: int) -> list[int]:
    """Draw rows at random, of each label two at least."""
    order = np.random.default_rng((2, seed)).permutation(len(labels)).tolist()
    first = []
    for label in sorted(set(labels)):
        first += [row for row in order if labels[row] == label][:2]
    return list(dict.fromkeys(first + order))[:count] if count else []


def describe(file: Path, task: str, names: list[str]) -> str:
    """Write the descriptions of a task's labels, or their names in words; return the path."""
    described = LABELS.get(task) or {name: name.replace("_", " ") for name in sorted(set(names))}
    file.write_text(json.dumps({"task_name": task, "labels": described}), encoding="utf-8")
    return str(file)


def inputs(
    data: Path, out: Path, task: str, rows: int, seed: int, *, raw: str | None = None,
    held_back: int = 0,
) -> GrowSources:  # fmt: skip
    """Write drawn rows, raw text and descriptions of a task.

    Args:
        raw: a bank or a file; None: lines of each raw file; `task`: the other texts of train.
        held_back: rows of train that are measured instead of the test set.
    """
    folder, name = data / "classify" / task, f"{task}-{rows}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    all_rows = lines(folder / "train.jsonl.gz")
    found = [json.loads(row) for row in all_rows]
    names = [row["label"] for row in found]
    drawn = sorted(drawn_rows(names, rows, seed))
    train, test = out / f"{name}.jsonl", folder / "test.jsonl.gz"
    train.write_text("\n".join(all_rows[at] for at in drawn) + "\n", encoding="utf-8")
    texts = {found[at]["text"] for at in drawn}
    order = np.random.default_rng((3, seed)).permutation(len(all_rows)).tolist()
    others = {found[at]["text"]: at for at in order if found[at]["text"] not in texts}
    if held_back:
        test = out / f"{name}-held-back.jsonl"
        held = [others.pop(text) for text in list(others)[:held_back]]
        test.write_text("\n".join(all_rows[at] for at in held) + "\n", encoding="utf-8")
    if raw == OWN:
        raw = str(out / f"{name}-raw.txt")
        Path(raw).write_text("\n".join(others) + "\n", encoding="utf-8")
    labels = describe(out / f"{task}.json", task, names)
    return GrowSources(
        str(train) if rows else None, (raw or raw_lines(data, out / "raw"),), labels,
        test=str(test),
    )  # fmt: skip


def raw_lines(data: Path, folder: Path) -> str:
    """Write lines of each file of raw text to a folder; return its path."""
    folder.mkdir(exist_ok=True)
    for file in sorted((data / "bank").glob("*.txt.gz")):
        target = folder / file.name.removesuffix(".gz")
        if not target.is_file():
            some = lines(file)
            drawn = np.sort(np.random.default_rng(0).permutation(len(some))[:BANK_LINES])
            target.write_text("\n".join(some[at] for at in drawn) + "\n", encoding="utf-8")
    return str(folder)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a Markdown table."""
    for line in (head, ("---",) * len(head), *rows):
        print("| " + " | ".join(line) + " |")


def main() -> int:
    """Run each task and print what was found."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default="trec,sst2,insults")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--budget", default="30m")
    parser.add_argument("--base")
    parser.add_argument("--raw", help="a bank, or `task`, instead of 10,000 lines of each file")
    parser.add_argument("--model")
    parser.add_argument("--seed", type=int, default=0)
    asked: Any = parser.parse_args()
    for task in asked.tasks.split(","):
        sources = inputs(asked.data, asked.out, task, asked.rows, asked.seed, raw=asked.raw)
        settings = Growth(budget=asked.budget, base=asked.base, model=asked.model, seed=asked.seed)
        run = asked.out / f"{task}-{asked.rows}-{asked.seed}"
        results = grow_to_run(sources, run, settings)
        print(f"\n{task}, {asked.rows} rows, budget {asked.budget}\n")
        over = f"gain over {results['reference']}"
        head = ("way", "trainings", "accuracy", over, "95%", "seconds")
        table(head, arm_lines(results))
        print()
        table(("test", "accuracy", "95%"), test_lines(results))
        print("\n".join(["", *summary_lines(results)]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
