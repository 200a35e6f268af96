"""Writes the data set of an augmentation: kept and dropped sentences, labelled rows, card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.classifiers.examples import LabeledExamples, likeliest_tags
from tilth.classifiers.load import TaskData
from tilth.data import Card, DatasetWriter
from tilth.data.sources import folder_configs
from tilth.metrics.scores import positive
from tilth.runs import Run
from tilth.selftrain.pseudo_label import TOKENS, as_lists
from tilth.selftrain.retrieve import read_columns, results_of
from tilth.selftrain.select import REASONS, Selection, members_of

if TYPE_CHECKING:
    from datasets import Features

    from tilth.bank import Bank
    from tilth.models.classifier import Classifier, Kind

DATASET = "dataset"
LABELLED, VALIDATION, DROPPED = "labelled", "validation", "dropped"
# The class of rows without any, in results.json and the card.
NO_CLASS = "(none)"
_CLASSES_SHOWN = 200
_SOURCES_SHOWN = 50
_FOUND = ("similarity", "query", "source", "document", "id")


@dataclass(frozen=True, slots=True)
class AugmentedSet:
    """Hold the sources of an augmentation's data set.

    Attributes:
        hits: the nested run of retrieved sentences.
        labels: the nested run of their labels.
        probabilities: the teacher's; (sentences, labels), for tags (tokens, tags) of each.
        blended: the training set, each target the mean of its label and the teacher's.
    """

    task: TaskData
    teacher: Classifier
    hits: Run
    labels: Run
    probabilities: Any
    selection: Selection
    blended: LabeledExamples


def write_set(run: Run, made: AugmentedSet, bank: Bank) -> dict[str, Any]:
    """Write the data set; return its counts."""
    counts = counts_of(made)
    kind, names = made.task.train.kind, made.task.train.labels
    features = {
        "default": _features(kind, names, ("probabilities", "confidence", *_FOUND)),
        DROPPED: _features(kind, names, ("confidence", *_FOUND[:2], "drop_reason")),
        LABELLED: _features(kind, names, ("probabilities",)),
        VALIDATION: _features(kind, names, ()),
    }
    with DatasetWriter(run.path / DATASET, features) as writer:
        start = 0
        for index in range(made.hits.parts):
            table = _sentences(made, index, start)
            start += len(table)
            kept = pa.array(table["reason"].to_numpy() == 0)
            writer.write(table.filter(kept).select(list(features["default"])))
            dropped = table.filter(pc.invert(kept))
            writer.write(dropped.select(list(features[DROPPED])), config=DROPPED)
        own = _ground_truth(made.task.train).append_column(
            "probabilities", as_lists(made.blended.targets)
        )
        writer.write(own, config=LABELLED)
        if made.task.validation is not None:
            writer.write(_ground_truth(made.task.validation), config=VALIDATION)
        writer.write_card(_card(run, made, bank, counts))
    return counts


def blend_labels(
    rows: LabeledExamples, teacher: Classifier, *, precision: str = "auto"
) -> LabeledExamples:
    """Average gold labels with a teacher's probabilities (alpha = 0.5).

    A gold label does not say which other labels are plausible.

    Args:
        rows: with the teacher's labels, in its order.
    """
    given = teacher.answers(rows, precision=precision)
    if isinstance(rows.targets, list):
        pairs = zip(rows.targets, given, strict=True)
        return replace(rows, targets=[(label + said) / 2 for label, said in pairs])
    return replace(rows, targets=(rows.targets + given) / 2)


def is_written(folder: Path) -> bool:
    """Tell whether a run folder holds the data set with the files that its card names."""
    configs = folder_configs(folder / DATASET)
    return {"default", LABELLED} <= configs.keys()


def counts_of(made: AugmentedSet) -> dict[str, Any]:
    """Return the content of results.json: rows of each class at each step, drops, sources."""
    rows, selection, about = made.task.train, made.selection, results_of(made.hits)
    hits = read_columns(made.hits, ["query_label", "source"])
    training = members_of(rows.targets, rows.kind, rows.labels).sum(axis=0)
    asked = Counter(hits["query_label"].to_pylist())
    sources = hits["source"].to_pylist()
    kept = Counter(sources[row] for row in selection.kept.tolist())
    classes = {
        name or NO_CLASS: {
            "training": int(training[place]),
            "retrieved": asked.get(name, 0) if name and asked.keys() != {None} else None,
            "labelled": int(selection.labelled[place]),
            "wanted": None if selection.wanted is None else int(selection.wanted[place]),
            "kept": int(selection.got[place]),
        }
        for place, name in enumerate(selection.classes)
    }
    return {
        "kind": rows.kind,
        "labels": rows.labels,
        "training": len(rows),
        "validation": 0 if made.task.validation is None else len(made.task.validation),
        "test": 0 if made.task.test is None else len(made.task.test),
        "retrieved": len(sources),
        "kept": len(selection.kept),
        "classes": classes,
        "shortfall": {name or NO_CLASS: count for name, count in selection.shortfall.items()},
        "drops": selection.counts(),
        "left_out": about["left_out"],
        "queries": about["queries"],
        "sources": {
            name: {"retrieved": count, "kept": kept.get(name, 0)}
            for name, count in Counter(sources).most_common()
        },
    }


def _sentences(made: AugmentedSet, index: int, start: int) -> pa.Table:
    """Return the sentences of a part with their labels and drop reasons."""
    table, labels = made.hits.read_part(index), made.labels.read_part(index)
    stop = start + len(table)
    selection, given = made.selection, made.probabilities[start:stop]
    codes = selection.reason[start:stop]
    columns: dict[str, Any] = {name: table[name] for name in ("text", *_FOUND)}
    if made.task.train.kind == "tags":
        columns[TOKENS] = labels[TOKENS]
    name = _label_column(made.task.train.kind)
    columns[name] = _likeliest(given, made.task.train)
    columns["probabilities"] = labels["probabilities"]
    columns["confidence"] = pa.array(selection.confidence[start:stop], pa.float32())
    columns["drop_reason"] = pa.array(
        [REASONS[code] or None for code in codes.tolist()], pa.string()
    )
    columns["reason"] = pa.array(codes)
    return pa.table(columns)


def _ground_truth(rows: LabeledExamples) -> pa.Table:
    columns: dict[str, Any] = {"text": [text for (text,) in rows.texts]}
    if rows.tokens is not None:
        columns[TOKENS] = rows.tokens
    columns[_label_column(rows.kind)] = _likeliest(rows.targets, rows)
    return pa.table(columns)


def _label_column(kind: Kind) -> str:
    return "tags" if kind == "tags" else "label"


def _likeliest(given: Any, rows: LabeledExamples) -> pa.Array:
    """Return the index of each row's likeliest label, or a list of indices."""
    if rows.kind == "class":
        # Without rows the array has no width.
        places = given.argmax(axis=1) if len(given) else np.zeros(0, np.int64)
        return pa.array(places, pa.int64())
    lists: list[list[int]]
    if rows.kind == "multi":
        lists = [np.flatnonzero(positive(row)).tolist() for row in given]
    else:
        lists = [likeliest_tags(row, rows.labels).tolist() for row in given]
    return pa.array(lists, pa.list_(pa.int64()))


def _features(kind: Kind, names: Sequence[str], more: Sequence[str]) -> Features:
    from datasets import ClassLabel, Features, List, Value

    own = ClassLabel(names=list(names))
    numbers = List(Value("float32"))
    types: dict[str, Any] = {
        "probabilities": List(numbers) if kind == "tags" else numbers,
        "confidence": Value("float32"), "similarity": Value("float32"), "query": Value("string"),
        "source": Value("string"), "document": Value("int64"), "id": Value("int64"),
        "drop_reason": Value("string"),
    }  # fmt: skip
    first: dict[str, Any] = {"text": Value("string")}
    if kind == "tags":
        first[TOKENS] = List(Value("string"))
    first[_label_column(kind)] = own if kind == "class" else List(own)
    return Features({**first, **{name: types[name] for name in more}})


def _card(run: Run, made: AugmentedSet, bank: Bank, results: Mapping[str, Any]) -> Card:
    classes = {name: one["kept"] for name, one in results["classes"].items()}
    kind = made.task.train.kind
    if len(classes) > _CLASSES_SHOWN or kind != "class":
        classes = {"": results["kept"]}
    language = bank.manifest.rules.get("language")
    teacher = run.settings["teacher"]
    columns = (
        "`tokens` and their `tags`" if kind == "tags" else
        "`text` and its `label`" + (", a list," if kind == "multi" else "")
    )  # fmt: skip
    named = ", ".join(f"`{label}`" for label in made.task.train.labels[:_CLASSES_SHOWN])
    return Card(
        title=f"Sentences of {bank.path.name}, labelled by a teacher",
        summary=(
            f"{results['kept']:,} sentences of a bank of {len(bank):,}: the nearest to a training "
            f"set of {results['training']:,} rows, labelled by a model (`{teacher}`) that learnt "
            "from it and selected by class (SentAugment, Du et al. 2020, arXiv 2010.02194), made "
            "with tilth. Nobody has checked the labels. The sentences carry the licences of the "
            "bank's sources, named below."
        ),
        command=run.command,
        settings=run.settings,
        counts={"train": classes},
        drops=results["drops"],
        language=[language] if language else [],
        model=str(teacher),
        seed=int(run.settings["seed"]),
        task_categories=["token-classification" if kind == "tags" else "text-classification"],
        texts="found in a bank; labels by a model",
        extra=[
            (
                "Columns",
                f"{columns} as the teacher says; its `probabilities` of {named}, in this order; "
                "`confidence`; `similarity` (cosine) to the nearest `query`; `source` and line of "
                "its `document` there, `id` in the bank. The configs `labelled` and `validation` "
                "hold the rows by people that the teacher was trained and chosen with; "
                "`probabilities` of the former lie half way between label and teacher.",
            ),
            ("Sources", _sources(results["sources"])),
            ("Never retrieved", _left_out(results["left_out"])),
        ],
    )  # fmt: skip


def _sources(sources: Mapping[str, Mapping[str, int]]) -> str:
    kept = [(name, one["kept"]) for name, one in sources.items() if one["kept"]]
    lines = [f"- `{name}`: {count:,}" for name, count in kept[:_SOURCES_SHOWN]]
    if len(kept) > _SOURCES_SHOWN:
        lines.append(f"- {len(kept) - _SOURCES_SHOWN:,} more: see the column `source`")
    return "\n".join(lines) or "No sentence was kept."


def _left_out(counts: Mapping[str, int]) -> str:
    lines = [f"- {reason}: {count:,}" for reason, count in counts.items()]
    return "Sentences that would have been, but stand in a set of the task:\n\n" + "\n".join(lines)
