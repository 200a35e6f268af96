"""How often similarity to described labels is right, and how sure it is, by labelled rows.

    python benchmarks/descriptions.py --data DIR --out DIR [--labelled 0,30,100,300] [--draws 0,1,2]
        [--held-back 800] [--scales 0.05] [--penalties 10] [--tasks trec,sst2,insults,clinc150]

DIR holds classify/TASK. Rows of train are labelled by `tilth grow`'s similarity to the labels'
descriptions, which labelled rows adapt. Printed are, for each scale (the cosine that makes a label
e times as likely) and each penalty on what labelled rows change, means over the draws: accuracy,
the probability of the answer, the expected calibration error and the logarithmic loss. Penalty
`none` is logistic regression on the similarities, of the labelled rows alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tilth.workflows.grow.sources as sources
from grow import OWN, inputs, table
from inputs import script_parser
from tilth.classifiers.logistic import logistic, probabilities
from tilth.errors import InputError
from tilth.metrics.scores import calibration
from tilth.workflows.grow.settings import Growth
from tilth.workflows.grow.task import read_grow_task, whole_fold

_STRENGTH = 10.0  # of the regression of the labelled rows alone


def answers(
    made: sources.Sources, texts: list[str], settings: list[tuple[float, float]]
) -> Iterator[tuple[str, str, NDArray[np.float32]]]:
    """Yield scale, penalty and the probabilities of texts, (texts, labels)."""
    whole = whole_fold(made.task.rows)
    for scale, penalty in settings:
        sources.COSINE_UNIT = scale  # type: ignore[attr-defined]
        sources._PENALTY = penalty
        adapts = f"{penalty:g}" if len(made.task.rows) else ""
        yield f"{scale:g}", adapts, made.by_description(texts, whole)
    if len(made.task.rows):
        own, cosines = map(made._similarities, ([text for (text,) in made.task.rows.texts], texts))
        head = logistic(own, np.asarray(made.task.rows.targets), "class", _STRENGTH)
        yield "", "none", probabilities(cosines, head, "class")


def main() -> None:
    """Label rows of each task and print a table."""
    parser = script_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--labelled", default="0,30,100,300")
    parser.add_argument("--draws", default="0,1,2")
    parser.add_argument("--held-back", type=int, default=800)
    parser.add_argument("--scales", default="0.05")
    parser.add_argument("--penalties", default="10")
    parser.add_argument("--tasks", default="trec,sst2,insults,clinc150")
    asked = parser.parse_args()
    scales, penalties = (
        [float(one) for one in some.split(",")] for some in (asked.scales, asked.penalties)
    )
    measured: dict[tuple[str, int, str, str], list[tuple[float, ...]]] = {}
    for name in asked.tasks.split(","):
        for count in map(int, asked.labelled.split(",")):
            settings = [
                (scale, one)
                for scale in scales
                for one in penalties
                if count or one == penalties[0]
            ]
            for draw in map(int, asked.draws.split(",")):
                given = inputs(
                    asked.data, asked.out, name, count, draw, raw=OWN, held_back=asked.held_back
                )
                rows = [json.loads(row) for row in Path(str(given.test)).read_text().splitlines()]
                try:
                    task = read_grow_task(given)
                except InputError as error:  # such as more labels than rows
                    print(f"draw left out: {error}", file=sys.stderr)
                    continue
                gold = np.array([task.labels.index(str(row["label"])) for row in rows])
                made = sources.Sources(task, None, Growth(), asked.out, "cpu")
                for *how, found in answers(made, [row["text"] for row in rows], settings):
                    right, sure = found.argmax(axis=1) == gold, found.max(axis=1)
                    shares = right.mean(), sure.mean(), calibration(sure, right)["error"]
                    loss = -np.log(np.maximum(found[np.arange(len(gold)), gold], 1e-9)).mean()
                    figures = (*(100 * float(share) for share in shares), float(loss))
                    measured.setdefault((name, count, *how), []).append(figures)
    lines = []
    for (name, count, *how), each in measured.items():
        *shares, loss = np.mean(each, axis=0)
        lines.append((name, str(count), *how, *(f"{one:.1f}" for one in shares), f"{loss:.2f}"))
    table(
        ("task", "labelled rows", "scale", "penalty", "accuracy", "probability",
         "calibration error", "loss"), lines,
    )  # fmt: skip


if __name__ == "__main__":
    main()
