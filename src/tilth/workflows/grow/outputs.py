"""Writes what a search leaves beside its model: its training rows, and sentences to label."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.bank import Bank
from tilth.classifiers.examples import LabeledExamples
from tilth.data import Card, DatasetWriter
from tilth.models.classifier import Classifier
from tilth.runs import Run
from tilth.selftrain.pseudo_label import as_lists
from tilth.selftrain.retrieve import random_sentences
from tilth.selftrain.select import margin_of
from tilth.workflows.grow.arms import Arm, Grown
from tilth.workflows.grow.settings import GrowSources
from tilth.workflows.grow.sources import MULTIPLE, Sources
from tilth.workflows.grow.task import Fold, GrowTask

DATASET = "dataset"
_SHOWN = 50  # sentences to label next
_UNSURE = 4  # times as many of the least certain are chosen among
_LOOKED_AT = 2_000  # raw sentences


def to_label(
    bank: Bank, model: Classifier, task: GrowTask, sources: Sources, fold: Fold
) -> list[dict[str, Any]]:
    """Return the raw sentences whose labels would tell the model most.

    Of raw sentences near the task and some random ones, the least certain are taken that are most
    unlike one another.

    Returns:
        text, predicted (the likeliest label) and confidence of each.
    """
    known = {"labelled rows": [text for (text,) in task.rows.texts]} if len(task.rows) else {}
    if task.examples is not None:
        near = sources.candidates(fold, MULTIPLE, "label-average")
    else:
        near = sources.described_candidates(fold, MULTIPLE)
    texts = near["text"].to_pylist()[:_LOOKED_AT]
    some = random_sentences(bank, _LOOKED_AT // 2, {**task.held_out, **known})["text"].to_pylist()
    texts = list(dict.fromkeys([*texts, *some]))
    given = model.probabilities([(text,) for text in texts])  # (texts, labels)
    order = np.argsort(margin_of(given, kind="class"), kind="stable")[: _UNSURE * _SHOWN]
    chosen = _unlike(bank.encode([texts[place] for place in order]), _SHOWN)
    return [
        {"text": texts[place], "predicted": model.labels[int(given[place].argmax())],
         "confidence": round(float(given[place].max()), 3)}
        for place in order[chosen].tolist()
    ]  # fmt: skip


def _unlike(vectors: Any, count: int) -> list[int]:
    """Return rows, the first of them and then always the one farthest from those chosen."""
    chosen = [0] if len(vectors) else []
    nearest = vectors @ vectors[0] if len(vectors) else vectors
    while len(chosen) < min(count, len(vectors)):
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return sorted(chosen)


def write_rows(run: Run, grown: Grown, arm: Arm, given: GrowSources) -> None:
    """Write the rows that a model learnt from, with the origin of each, and a card."""
    from datasets import ClassLabel, Features, List, Value

    assert grown.rows is not None
    rows: LabeledExamples = grown.rows.rows
    targets = np.asarray(rows.targets)
    shutil.rmtree(run.path / DATASET, ignore_errors=True)
    features = Features({
        "text": Value("string"), "label": ClassLabel(names=rows.labels),
        "probabilities": List(Value("float32")), "origin": Value("string"),
    })  # fmt: skip
    counts = Counter(rows.labels[place] for place in targets.argmax(axis=1).tolist())
    shares = Counter(grown.rows.origin)
    table = "\n".join(f"- {name}: {count:,}" for name, count in shares.items())
    with DatasetWriter(run.path / DATASET, {"default": features}) as writer:
        writer.write(pa.table({
            "text": [text for (text,) in rows.texts],
            "label": pa.array(targets.argmax(axis=1)), "probabilities": as_lists(targets),
            "origin": grown.rows.origin,
        }))  # fmt: skip
        writer.write_card(
            Card(
                title=f"Training rows of {run.path.name}",
                summary=(
                    f"{len(rows):,} rows that a classifier was trained on ({arm.name}), found by "
                    "`tilth grow`. Only rows of the origin `labelled` were labelled by people. "
                    "Raw sentences carry the licences of their sources: "
                    + (", ".join(f"`{one}`" for one in given.raw) or "none were given") + "."
                ),
                command=run.command,
                settings=run.settings,
                counts={"train": dict(counts)},
                seed=int(run.settings["seed"]),
                task_categories=["text-classification"],
                texts="labelled rows, and what the origins below say",
                extra=[("Origins", f"{table}\n\nLabelled rows were repeated {grown.times} times "
                                   "in training.")],
            )
        )  # fmt: skip
