"""Whether `tilth grow` tells raw text of the task from raw text of another domain.

    python benchmarks/raw_text.py --data DIR --out DIR [--bank BANK] [--rows 20,50,100,300,500]
        [--draws 0,1] [--tasks trec,sst2,insults,clinc150]

DIR holds classify/TASK. Of each task's train part half is raw text; labelled rows are drawn from
the other half and compared with the raw text of each task, and with a bank if one is given. Printed
are, for each draw, the median cosine of the rows to their nearest raw sentence less that to one
another, the area under the ROC curve of a regression that tells them from raw sentences, and "far"
where a warning comes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from grow import table
from inputs import lines, script_parser
from tilth.bank import Bank
from tilth.workflows.grow.settings import GrowSources
from tilth.workflows.grow.task import GrowTask, domain_similarity, open_raw, read_grow_task
from to_label import write

MOST = 8_000  # raw sentences of a task


def halves(data: Path, name: str) -> list[list[dict[str, str]]]:
    """Return a task's rows of train in two halves."""
    rows = [json.loads(row) for row in lines(data / "classify" / name / "train.jsonl.gz")]
    middle = len(rows) // 2
    return [rows[:middle], rows[middle:]]


def raw_bank(folder: Path, rows: list[dict[str, str]]) -> Bank:
    """Build a bank of rows' texts."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "raw.txt"
    texts = [" ".join(row["text"].split()) for row in rows[:MOST]]
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return opened(str(file), folder)


def opened(raw: str, folder: Path) -> Bank:
    """Open a bank, or build one of raw text."""
    bank = open_raw([raw], folder, device="cpu")
    assert bank is not None
    return bank


def task_of(file: Path, texts: list[str]) -> GrowTask:
    """Return a task of texts, with labels that are not compared."""
    rows = [{"text": text, "label": str(number % 2)} for number, text in enumerate(texts)]
    return read_grow_task(GrowSources(write(file, rows)))


def compared(task: GrowTask, bank: Bank) -> str:
    """Return how near a task's rows are to a bank, in words."""
    found = domain_similarity(bank, task)
    said = f"{found['raw'] - found['own']:+.2f} / {found.get('apart', np.nan):.2f}"
    return said + " far" * bool(found["far"])


def main() -> None:
    """Compare rows of each task with each raw text and print a table."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bank")
    parser.add_argument("--rows", default="20,50,100,300,500")
    parser.add_argument("--draws", default="0,1")
    parser.add_argument("--tasks", default="trec,sst2,insults,clinc150")
    asked = parser.parse_args()
    parts = {name: halves(asked.data, name) for name in asked.tasks.split(",")}
    banks = {name: raw_bank(asked.out / name, raw) for name, (_, raw) in parts.items()}
    if asked.bank:
        banks["bank"] = opened(asked.bank, asked.out)
    found = []
    for name, (own, _) in parts.items():
        for count in map(int, asked.rows.split(",")):
            cells = dict.fromkeys(banks, "")
            for draw in map(int, asked.draws.split(",")):
                order = np.random.default_rng(draw).permutation(len(own))[:count]
                texts = [own[at]["text"] for at in order.tolist()]
                task = task_of(asked.out / "rows.jsonl", texts)
                for raw, bank in banks.items():
                    cells[raw] += ("; " if cells[raw] else "") + compared(task, bank)
            found.append((f"{name}, {count}", *cells.values()))
    table(("rows", *(f"raw: {name}" for name in banks)), found)


if __name__ == "__main__":
    main()
