"""Runs of `tilth augment` made by hand, of word salads whose labels a tiny model can learn."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.selftrain.labelled import classed, several, tagged
from tilth.data.writer import DatasetWriter
from tilth.runs import Run

ROWS = {"class": classed, "multi": several, "tags": tagged}
NAMES = {
    "class": ["animal", "none", "water"],
    "multi": ["animal", "water"],
    "tags": ["O", "B-ANIMAL", "I-ANIMAL", "B-WATER", "I-WATER"],
}
_SURE = 0.9


def write_run(
    folder: Path,
    kind: str = "class",
    *,
    rows: int = 60,
    labelled: int = 18,
    dropped: int = 9,
    word: str = "",
    hits: bool = True,
    overwrite: bool = False,
    **settings: Any,
) -> Path:
    """Write a finished run whose teacher is always right.

    Args:
        folder: of the run.
        kind: `class`, `multi` or `tags`.
        rows: kept sentences.
        labelled: rows of the training set; as many for validation.
        dropped: dropped sentences.
        word: at the end of every retrieved sentence, and in every name.
        hits: whether the folder of hits is there.
        overwrite: begin the run anew.
        settings: more that was asked.
    """
    make = ROWS[kind]
    asked = {
        "train": f"train.jsonl{word}", "bank": f"bank{word}", "query": "label-average",
        "teacher": f"tiny{word}", "test": None, "text": None, "label": None, "seed": 0, **settings,
    }  # fmt: skip
    run = Run.open(
        folder, command="augment", settings=asked, fingerprints={}, parts=1, overwrite=overwrite,
        outputs=["hits", "dataset", "results.json"],
    )  # fmt: skip
    found = make(rows + dropped, seed=1)
    for number, row in enumerate(found):
        _add(row, kind, number, word)
    with run:
        run.write_part(0, pa.table({"done": [True]}))
        steps = ("training", "retrieved", "labelled", "kept")
        run.write_results({
            "teacher": {}, "retrieved": len(found), "kept": rows,
            "classes": {name: dict.fromkeys(steps, len(name)) for name in NAMES[kind]},
        })  # fmt: skip
    with DatasetWriter(folder / "dataset", features=_features(kind)) as writer:
        writer.write(_table(make(labelled, seed=2), kind), config="labelled")
        writer.write(_table(make(labelled, seed=3), kind), config="validation")
        writer.write(_table(found[:rows], kind, soft=True))
        if dropped:
            some = [
                {**row, "drop_reason": f"{('class is full', 'not drawn')[number % 2]}{word}"}
                for number, row in enumerate(found[rows:])
            ]
            writer.write(_table(some, kind, dropped=True), config="dropped")
    if hits:
        _write_hits(folder / "hits", found, kind)
    return folder


def _add(row: dict[str, Any], kind: str, number: int, word: str) -> None:
    """Add what a run says of a retrieved sentence."""
    if word and kind != "tags":
        row["text"] = f"{row['text']} {word}"
    names = NAMES[kind]
    own = row.get("label", row.get("labels", row.get("tags")))
    if kind == "class":
        rest = (1 - _SURE) / (len(names) - 1)
        row["probabilities"] = [_SURE if name == own else rest for name in names]
    elif kind == "multi":
        row["probabilities"] = [_SURE if name in own else 1 - _SURE for name in names]
    else:
        rest = (1 - _SURE) / (len(names) - 1)
        row["probabilities"] = [[_SURE if name == tag else rest for name in names] for tag in own]
    row |= {
        "confidence": 0.5 + 0.5 * (number % 50) / 50, "similarity": 0.9 - 0.01 * (number % 40),
        "query": f"{own if kind == 'class' else 'animal'}{word}", "source": f"novels.txt{word}",
        "document": number, "id": number,
    }  # fmt: skip


def _features(kind: str) -> dict[str, Any]:
    from datasets import ClassLabel, Features, List, Value

    label: Any = ClassLabel(names=NAMES[kind])
    probabilities: Any = List(Value("float32"))
    if kind == "tags":
        truth = {"tokens": List(Value("string")), "tags": List(label)}
        probabilities = List(probabilities)
    else:
        truth = {"text": Value("string"), "label": label if kind == "class" else List(label)}
    about = {
        "confidence": Value("float32"), "similarity": Value("float32"), "query": Value("string"),
    }  # fmt: skip
    origin = {"source": Value("string"), "document": Value("int64"), "id": Value("int64")}
    return {
        "default": Features({**truth, "probabilities": probabilities, **about, **origin}),
        "dropped": Features({**truth, **about, "drop_reason": Value("string")}),
        "labelled": Features(truth),
        "validation": Features(truth),
    }


def _table(
    rows: list[dict[str, Any]], kind: str, *, soft: bool = False, dropped: bool = False
) -> pa.Table:
    names = NAMES[kind]
    own = {"class": "label", "multi": "labels", "tags": "tags"}[kind]
    given = [row[own] for row in rows]
    columns: dict[str, Any] = {
        "tags" if kind == "tags" else "label": [
            names.index(one) if kind == "class" else [names.index(name) for name in one]
            for one in given
        ]
    }
    first = "tokens" if kind == "tags" else "text"
    columns[first] = [row[first] for row in rows]
    more = ["confidence", "similarity", "query"] if soft or dropped else []
    more += ["probabilities", "source", "document", "id"] if soft else []
    more += ["drop_reason"] if dropped else []
    return pa.table(columns | {name: [row[name] for row in rows] for name in more})


def _write_hits(folder: Path, rows: list[dict[str, Any]], kind: str) -> None:
    run = Run.open(folder, command="augment hits", settings={}, fingerprints={}, parts=2)
    middle = len(rows) // 2
    with run:
        for part, some in enumerate((rows[:middle], rows[middle:])):
            texts = [row.get("text") or " ".join(row["tokens"]) for row in some]
            labels = [row["query"] if kind == "class" else None for row in some]
            table = {
                "query": [row["query"] for row in some],
                "query_label": pa.array(labels, pa.string()),
                "similarity": [row["similarity"] for row in some],
                "text": texts,
            }
            run.write_part(part, pa.table(table))
