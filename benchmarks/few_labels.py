"""Compares what learns a class from few rows: regression, the contrastive encoder, SetFit.

    python benchmarks/few_labels.py --data DIR [--tasks trec,sst2] [--rows 100,300] [--draws 3]

DIR holds classify/sst2, trec and insults. Each draw takes labelled rows of train, and seeds the
training; the test set decides nothing. Printed are accuracy on the test set, mean over the draws
with 95% (Student's t), the gain over SetFit in the same draws, and processor seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from tilth.classifiers.collate import encode
from tilth.classifiers.examples import LabeledExamples
from tilth.classifiers.logistic import begin_head
from tilth.encoders.label_contrast import train_label_contrast
from tilth.metrics.significance import Interval, mean_interval
from tilth.models.classifier import new_classifier
from tilth.report.systems import CONTRAST, ENCODER, SETFIT
from tilth.runs import Progress
from tilth.workflows.baselines import fit_baseline

SYSTEMS = (ENCODER, CONTRAST, SETFIT)


def labelled(file: Path) -> LabeledExamples:
    """Read rows of a text and a class."""
    with gzip.open(file, "rt", encoding="utf-8") as text:
        rows = [json.loads(line) for line in text]
    labels = sorted({str(row["label"]) for row in rows})
    targets = np.eye(len(labels), dtype=np.float32)[[labels.index(str(r["label"])) for r in rows]]
    return LabeledExamples("class", labels, [(row["text"],) for row in rows], None, targets)


def accuracy(name: str, rows: LabeledExamples, test: LabeledExamples, seed: int) -> float:
    """Train a system on rows and return its accuracy on the test set, in percent."""
    quiet = Progress(len(test), quiet=True)
    if name == CONTRAST:
        encoder = train_label_contrast(
            [text for (text,) in rows.texts], np.asarray(rows.targets), seed=seed
        )
        with tempfile.TemporaryDirectory() as folder:
            encoder.save(folder, create_model_card=False)
            model = new_classifier(folder, kind="class", labels=rows.labels)
        begin_head(model, encode(model, rows, bfloat16=False))
        found = model.answers(test, progress=quiet)
    else:
        found = fit_baseline(name, rows).answers(test, progress=quiet)
    return 100 * float((found.argmax(axis=1) == np.asarray(test.targets).argmax(axis=1)).mean())


def words(found: Interval) -> str:
    """Return a mean and its interval."""
    if found.low is None:
        return f"{found.value:.1f}"
    return f"{found.value:.1f} ({found.low:.1f} to {found.high:.1f})"


def main() -> None:
    """Train each system on each draw, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", default="trec,sst2,insults")
    parser.add_argument("--rows", default="100,300")
    parser.add_argument("--draws", type=int, default=3)
    asked = parser.parse_args()
    print("| task, rows | system | accuracy | over SetFit | seconds |\n|---|---|---|---|---|")
    for task in asked.tasks.split(","):
        folder = asked.data / "classify" / task
        train, test = (labelled(folder / f"{part}.jsonl.gz") for part in ("train", "test"))
        for count in map(int, asked.rows.split(",")):
            scores: dict[str, list[float]] = {name: [] for name in SYSTEMS}
            seconds = dict.fromkeys(SYSTEMS, 0.0)
            for draw in range(asked.draws):
                order = np.random.default_rng((2, draw)).permutation(len(train))
                rows = train.select(np.sort(order[:count]))
                for name in SYSTEMS:
                    start = time.process_time()
                    scores[name].append(accuracy(name, rows, test, draw))
                    seconds[name] += (time.process_time() - start) / asked.draws
            for name in SYSTEMS:
                gains = np.subtract(scores[name], scores[SETFIT]).tolist()
                print(
                    f"| {task}, {count} | {name} | {words(mean_interval(scores[name]))} | "
                    f"{words(mean_interval(gains))} | {seconds[name]:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
