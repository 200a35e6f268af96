"""Writes what a search leaves beside its model: its training rows, and sentences to label."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tilth.bank import Bank
from tilth.classifiers.examples import LabeledExamples
from tilth.data import Card, DatasetWriter
from tilth.data.card import CARD
from tilth.models.classifier import Classifier
from tilth.report.systems import signed_words
from tilth.runs import Run
from tilth.selftrain.pseudo_label import as_lists
from tilth.selftrain.retrieve import random_sentences
from tilth.selftrain.select import margin_of
from tilth.workflows.grow.arms import Arm, Grown
from tilth.workflows.grow.similarity import PAIRS
from tilth.workflows.grow.sources import DESCRIPTIONS, LABELLED, MULTIPLE, Sources
from tilth.workflows.grow.task import Fold, GrowTask

if TYPE_CHECKING:
    from datasets import Dataset

    from tilth.workflows.grow.growing import Given

DATASET, TO_LABEL = "dataset", "to_label"
_SHARES = "\n## Shares in training\n\n"
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
        near = sources.described_candidates(fold)
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


def write_to_label(run: Run, rows: Sequence[Mapping[str, Any]], labels: list[str]) -> None:
    """Write the sentences to label as a data set, for `tilth view`; labels are the predicted."""
    from datasets import ClassLabel, Features, Value

    names = {label: place for place, label in enumerate(labels)}
    predicted = [names[row["predicted"]] for row in rows]
    table = pa.table({
        "text": [row["text"] for row in rows], "label": pa.array(predicted, pa.int64()),
        "confidence": [row["confidence"] for row in rows],
    })  # fmt: skip
    features = Features({
        "text": Value("string"), "label": ClassLabel(names=labels), "confidence": Value("float32"),
    })  # fmt: skip
    card = Card(
        title=f"Sentences to label next, of {run.path.name}",
        summary=(
            f"{len(rows)} raw sentences that the classifier is least sure of, unlike one another, "
            "with its labels: correct them, for example in `tilth view`, and train with them."
        ),
        command=run.command,
        settings=run.settings,
        seed=int(run.settings["seed"]),
        counts={"train": Counter(row["predicted"] for row in rows)},
        task_categories=["text-classification"],
        texts="raw sentences",
    )
    with DatasetWriter(run.path / TO_LABEL, {"default": features}) as writer:
        writer.write(table)
        writer.write_card(card)


def _unlike(vectors: Any, count: int) -> list[int]:
    """Return rows, the first of them and then always the one farthest from those chosen."""
    chosen = [0] if len(vectors) else []
    nearest = vectors @ vectors[0] if len(vectors) else vectors
    while len(chosen) < min(count, len(vectors)):
        nearest[chosen] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return sorted(chosen)


def write_rows(run: Run, grown: Grown, arm: Arm, given: Given) -> None:
    """Write the rows that a classifier learnt from, with the origin of each, and a card."""
    from datasets import ClassLabel, Features, List, Value

    assert grown.rows is not None
    rows: LabeledExamples = grown.rows.rows
    targets = np.asarray(rows.targets)
    labels = targets.argmax(axis=1)  # (rows,)
    features = Features({
        "text": Value("string"), "label": ClassLabel(names=rows.labels),
        "probabilities": List(Value("float32")), "origin": Value("string"),
    })  # fmt: skip
    table = pa.table({
        "text": [text for (text,) in rows.texts], "label": pa.array(labels),
        "probabilities": as_lists(targets), "origin": grown.rows.origin,
    })  # fmt: skip
    _write(
        run, given, features, table,
        title="Training rows",
        summary=(
            f"{len(rows):,} rows that a classifier was trained on ({arm.name}), found by `tilth "
            f"grow`. Only rows of the origin `{LABELLED}` were labelled by people; those of "
            f"`{DESCRIPTIONS}` are lines of the labels' descriptions."
        ),
        counts={"train": Counter(rows.labels[label] for label in labels.tolist())},
        task_categories=["text-classification"],
        texts="labelled rows, and what the origins below say",
        extra=[("Training", f"Labelled rows count {grown.times}-fold.")] if grown.times > 1 else [],
    )  # fmt: skip


def write_pairs(run: Run, pairs: Dataset, arm: Arm, given: Given) -> None:
    """Write the pairs that an encoder learnt from, with the origin of each, and a card."""
    _write(
        run, given, pairs.features, pairs.with_format("arrow")[:],
        title="Training pairs",
        summary=(
            f"{len(pairs):,} pairs that an encoder was trained on ({arm.name}), found by `tilth "
            f"grow`. Only pairs of the origin `{PAIRS}` were graded by people; pairs without a "
            "label have one meaning."
        ),
        counts={"train": {"pairs": len(pairs)}},
        task_categories=["sentence-similarity"],
        texts="what the origins below say",
    )  # fmt: skip


def card_shares(run: Run, shares: Sequence[Mapping[str, Any]]) -> None:
    """Add to the card each origin's share in training, and what leaving it out costs."""
    card = run.path / DATASET / CARD
    if not card.is_file() or not shares:
        return
    lines = []
    for one in shares:
        cost = one["cost"] and f"; leaving it out costs {signed_words(one['cost'])} points"
        lines.append(f"- {one['origin']}: {one['share']:.0%}{cost or ''}")
    text = card.read_text(encoding="utf-8").split(_SHARES)[0]
    run.write_file(f"{DATASET}/{CARD}", text + _SHARES + "\n".join(lines) + "\n")


def _write(run: Run, given: Given, features: Any, table: pa.Table, **about: Any) -> None:
    """Write a data set in place of an earlier one, with a card that counts the origins."""
    licences = ", ".join(f"`{one}`" for one in given.sources.raw) or "none were given"
    about["summary"] += f" Raw sentences carry the licences of their sources: {licences}."
    origins = Counter(table["origin"].to_pylist())
    lines = "\n".join(f"- {name}: {count:,}" for name, count in origins.items())
    about["extra"] = [("Origins", lines), *about.get("extra", [])]
    shutil.rmtree(run.path / DATASET, ignore_errors=True)
    with DatasetWriter(run.path / DATASET, {"default": features}) as writer:
        writer.write(table)
        about["title"] += f" of {run.path.name}"
        settings = {**run.settings, "budget": given.settings.budget}
        seed = given.settings.seed
        writer.write_card(Card(command=run.command, settings=settings, seed=seed, **about))
