"""Run folders as `tilth generate` leaves them, made without a model."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SENTENCES = (
    (Path(__file__).parents[2] / "src/tilth/workflows/quickstart_sentences.txt")
    .read_text(encoding="utf-8")
    .splitlines()
)
SWAPS = {
    "a": "one", "the": "this", "is": "was", "man": "gentleman", "woman": "lady", "two": "a pair of",
    "in": "inside", "on": "upon", "of": "from", "and": "with", "to": "towards", "will": "shall",
    "has": "had", "for": "over", "old": "ancient", "small": "tiny", "new": "recent",
}  # fmt: skip
SETTINGS: dict[str, Any] = {
    "task": {
        "task_name": "sts-x2",
        "labels": {
            "1": {
                "instruction": "Task: Write two sentences that mean the same thing.\n"
                'Sentence 1: "<X1>"\nSentence 2: "',
                "counter_labels": [],
            },
            "0": {
                "instruction": "Task: Write two sentences that are on completely different "
                'topics.\nSentence 1: "<X1>"\nSentence 2: "',
                "counter_labels": ["1"],
            },
        },
    },
    "model": "starter",
    "precision": "float32",
    "rows": None,
    "per_input": 2,
    "max_tries": 5,
    "seed": 42,
    "part_size": 256,
    "decay": 100.0,
    "floor": 0.01,
    "temperature": 1.0,
    "top_k": 5,
    "top_p": 0.9,
    "max_new_tokens": 40,
}


def pair_rows(sentences: Sequence[str], *, close: float = 0.9) -> list[dict[str, Any]]:
    """Return tries of a task like sts-x2: near rewrites, half rewrites, other sentences."""
    draw = random.Random(0)
    rows = []
    for item, text_a in enumerate(sentences):
        for label, changed in (("1", 0.35), ("0.5", 0.6), ("0", 1.0)):
            for attempt in range(3):
                text_b = _rewrite(text_a, changed, draw)
                reason = (
                    None if draw.random() < close else draw.choice(["not-closed"] * 4 + ["newline"])
                )
                if attempt == 2 and reason is None:
                    continue  # enough outputs: no further try
                rows.append(
                    {
                        "source_id": source_id(text_a),
                        "text_a": text_a,
                        "text_b": text_b,
                        "label": label,
                        "tokens": 40 if reason else len(text_b.split()) + 3,
                        "floor_share": 0.0 if label == "1" else draw.random() * 0.2,
                        "drop_reason": reason,
                        "try": attempt,
                        "item": item,
                    }
                )
    return rows


def single_rows(texts: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return tries of a single-text task: label -> texts."""
    return [
        {
            "source_id": "", "text": text, "label": label, "tokens": len(text.split()) + 1,
            "floor_share": None, "drop_reason": None, "try": 0, "item": item,
        }
        for label, these in texts.items()
        for item, text in enumerate(these)
    ]  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows with the schema of a generate run."""
    names = list(rows[0])
    kinds = {"tokens": pa.int16(), "floor_share": pa.float32(), "try": pa.int16()}
    text = pa.string()
    schema = [(n, kinds.get(n, pa.int64() if n == "item" else text)) for n in names]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(schema))


def write_run(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    parts: int = 3,
    planned: int | None = None,
    settings: Mapping[str, Any] = SETTINGS,
) -> Path:
    """Write a run folder: run.json and the tries in so many parts."""
    (folder / "parts").mkdir(parents=True)
    asked = {
        "command": "generate",
        "settings": dict(settings),
        "fingerprints": {"inputs": "0", "model": "0"},
        "parts": planned if planned is not None else parts,
        "versions": {"tilth": "0.1.0", "torch": "2.9.0", "transformers": "5.23.0"},
        "created": "2026-11-21T09:00:00+00:00",
        "resolved": {},
        "outputs": [],
    }
    (folder / "run.json").write_text(json.dumps(asked), encoding="utf-8")
    whole = table(rows) if rows else None
    for part in range(parts if whole is not None else 0):
        size = -(-len(rows) // parts)
        pq.write_table(
            whole.slice(part * size, size), folder / "parts" / f"part-{part:05d}.parquet"
        )
    return folder


def write_curated(folder: Path, labels: Mapping[float, int], dropped: Mapping[str, int]) -> Path:
    """Write a curated folder with so many rows per label and drops per reason."""
    (folder / "dataset" / "data").mkdir(parents=True)
    (folder / "dataset" / "dropped").mkdir()
    column = [label for label, count in labels.items() for _ in range(count)]
    cut = len(column) * 9 // 10
    for split, values in (("train", column[:cut]), ("validation", column[cut:])):
        pq.write_table(
            pa.table({"text_a": ["a"] * len(values), "label": values}),
            folder / "dataset" / "data" / f"{split}.parquet",
        )
    reasons = [reason for reason, count in dropped.items() for _ in range(count)]
    pq.write_table(
        pa.table({"label": [1.0] * len(reasons), "drop_reason": reasons}),
        folder / "dataset" / "dropped" / "dropped.parquet",
    )
    return folder


def source_id(text: str) -> str:
    """Return 16 hex digits that name a text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _rewrite(text: str, changed: float, draw: random.Random) -> str:
    if changed >= 1.0:
        return draw.choice(SENTENCES)
    other = draw.choice(SENTENCES).rstrip(".?").split()
    words = []
    for place, word in enumerate(text.rstrip(".?").split()):
        if draw.random() > changed:
            words.append(word)
        elif changed < 0.5:
            words.append(SWAPS.get(word.lower(), word))
        else:
            words.append(other[place % len(other)])
    return " ".join(words) + "."
