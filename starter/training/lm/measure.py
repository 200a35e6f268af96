"""Measure how well a language model follows the DINO instructions.

    python -m starter.training.lm.measure --model starter --data ../shared/data

draws sentences with a fixed seed, lets tilth write two outputs for each (input, label), and
compares inputs and outputs with all-MiniLM-L6-v2. Prints one JSON object for each decay.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyarrow import parquet
from starter.training.lm.pairs import plain
from starter.training.lm.sentences import DEFAULT_DATA, Encoder, read_rows

from tilth import generate, load_lm

SETS = ("sts12", "sts14", "sts16")


def drawn_sentences(data: Path, count: int, seed: int) -> list[str]:
    """Draw distinct sentences from the STS sets."""
    texts = {
        row[side]
        for name in SETS
        for row in read_rows(data / "sts" / f"{name}.jsonl.gz")
        for side in ("text_a", "text_b")
        if row[side].strip()
    }
    return random.Random(seed).sample(sorted(texts), count)


def all_tries(model: str, inputs: list[str], decay: float, seed: int) -> list[dict[str, Any]]:
    """Return every try, kept and dropped: two for each (input, label)."""
    with tempfile.TemporaryDirectory() as folder:
        generate(
            "sts-x2", load_lm(model), inputs, per_input=2, max_tries=2, decay=decay, seed=seed,
            out=Path(folder) / "run",
        )  # fmt: skip
        parts = sorted((Path(folder) / "run" / "parts").glob("*.parquet"))
        return [row for part in parts for row in parquet.read_table(part).to_pylist()]


def greater(left: dict[str, list[float]], right: dict[str, list[float]]) -> float:
    """Return the share of (left, right) outputs of one input where the left cosine is greater."""
    wins = [a > b for text in left for a in left[text] for b in right.get(text, ())]
    return float(np.mean(wins))


def distinct(texts: list[str]) -> float:
    """Return distinct pairs of successive words over all pairs."""
    grams = [pair for words in (t.split() for t in texts) for pair in pairwise(words)]
    return len(set(grams)) / max(1, len(grams))


def figures(rows: list[dict[str, Any]], encoder: Encoder) -> dict[str, Any]:
    """Return the figures of one run over all its tries."""
    # A text equal to its input counts as closed.
    closed = [r for r in rows if r["drop_reason"] is None or r["drop_reason"] == "equal"]
    a = encoder.encode([r["text_a"] for r in closed]).astype(np.float32)
    b = encoder.encode([r["text_b"] for r in closed]).astype(np.float32)
    cosines: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, cosine in zip(closed, np.einsum("ij,ij->i", a, b), strict=True):
        cosines[row["label"]][row["text_a"]].append(float(cosine))
    ones = [r for r in closed if r["label"] == "1"]
    flat = {label: [c for cs in by.values() for c in cs] for label, by in cosines.items()}
    overlaps = [
        len(set(plain(r["text_a"]).split()) & set(plain(r["text_b"]).split()))
        / max(1, len(set(plain(r["text_b"]).split())))
        for r in ones
    ]
    return {
        "tries": len(rows),
        "closed": len(closed) / len(rows),
        "1 above 0": greater(cosines["1"], cosines["0"]),
        "1 above 0.5": greater(cosines["1"], cosines["0.5"]),
        "0.5 above 0": greater(cosines["0.5"], cosines["0"]),
        "copies at 1": float(np.mean([plain(r["text_a"]) == plain(r["text_b"]) for r in ones])),
        "words kept at 1": float(np.mean(overlaps)),
        "mean cosine": {label: float(np.mean(values)) for label, values in sorted(flat.items())},
        "distinct-2": distinct([r["text_b"] for r in closed]),
    }


def main() -> None:
    """Print the figures with and without self-debiasing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decays", type=float, nargs="+", default=[100.0, 0.0])
    parser.add_argument("--examples", type=int, default=0, help="print outputs for some inputs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    inputs = drawn_sentences(arguments.data, arguments.count, arguments.seed)
    encoder = Encoder()
    for decay in arguments.decays:
        began = time.time()
        rows = all_tries(arguments.model, inputs, decay, arguments.seed)
        result = {"decay": decay, "seconds": time.time() - began, **figures(rows, encoder)}
        print(json.dumps(result, indent=1), flush=True)
        for text in inputs[: arguments.examples]:
            print(text)
            for row in rows:
                if row["text_a"] == text:
                    print(f"    {row['label']:>3}  {row['text_b']}  {row['drop_reason'] or ''}")


if __name__ == "__main__":
    main()
