"""How sure similarity to described labels is without labelled rows, and how often it is right.

    python benchmarks/descriptions.py --data DIR --out DIR [--rows 800]
        [--scales 0.02,0.03,0.05,0.07,0.1] [--tasks trec,sst2,insults,clinc150]

DIR holds classify/TASK. Rows of train are labelled by `tilth grow`'s similarity to the labels'
descriptions, with no labelled row. Printed are, for each scale (the cosine that makes a label e
times as likely), the mean probability of the answer, the expected calibration error and the
logarithmic loss.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import tilth.workflows.grow.sources as sources
from grow import OWN, inputs, table
from tilth.metrics.scores import calibration
from tilth.workflows.grow.settings import Growth
from tilth.workflows.grow.task import read_grow_task, whole_fold


def main() -> None:
    """Label rows of each task at each scale and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--scales", default="0.02,0.03,0.05,0.07,0.1")
    parser.add_argument("--tasks", default="trec,sst2,insults,clinc150")
    asked = parser.parse_args()
    lines = []
    for name in asked.tasks.split(","):
        given = inputs(asked.data, asked.out, name, 0, 0, raw=OWN, held_back=asked.rows)
        rows = [json.loads(row) for row in Path(str(given.test)).read_text().splitlines()]
        task = read_grow_task(given)
        gold = np.array([task.labels.index(str(row["label"])) for row in rows])
        texts, none = [row["text"] for row in rows], whole_fold(task.rows)
        made = sources.Sources(task, None, Growth(), asked.out, "cpu")
        for scale in map(float, asked.scales.split(",")):
            sources._COSINE = scale
            found = made.by_description(texts, none)
            right, sure = found.argmax(axis=1) == gold, found.max(axis=1)
            shares = right.mean(), sure.mean(), calibration(sure, right)["error"]
            loss = -np.log(found[np.arange(len(gold)), gold]).mean()
            lines.append(
                (name, f"{scale:g}", *(f"{100 * share:.1f}" for share in shares), f"{loss:.2f}")
            )
    table(("rows", "scale", "accuracy", "mean probability", "calibration error", "loss"), lines)


if __name__ == "__main__":
    main()
