"""The figures of `starter-encoder`'s card: correlations, symmetry, speed, size.

    python -m starter.training.encoder.measure --model starter --data ../shared/data

prints one JSON object for each set, with symbols and without, and one with speed and size.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from starter.training.lm.sentences import DEFAULT_DATA, read_rows

from tilth.models import load_scorer
from tilth.paraphrase.similarity import without_symbols
from tilth_starter import path

SETS = ("stsb-dev", "stsb-test", "sick-dev")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter", help="as load_scorer takes it")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--sets", nargs="+", default=SETS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    scorer = load_scorer(arguments.model, precision=arguments.precision)
    seconds = processor = pairs = 0.0
    for name in arguments.sets:
        rows = list(read_rows(arguments.data / "sts" / f"{name}.jsonl.gz"))
        gold = [row["score"] for row in rows]
        for symbols in (True, False):
            first, second = (
                [row[key] if symbols else without_symbols(row[key]) for row in rows]
                for key in ("text_a", "text_b")
            )
            began, begun = time.perf_counter(), time.process_time()
            found = scorer.scores(first, second)
            seconds += time.perf_counter() - began
            processor += time.process_time() - begun
            pairs += len(rows)
            figures = {
                "set": name,
                "symbols": symbols,
                "pearson": round(100 * pearsonr(found, gold)[0], 2),
                "spearman": round(100 * spearmanr(found, gold)[0], 2),
            }
            if not symbols:
                swapped = scorer.scores(second, first)
                figures["mean difference of both orders"] = round(
                    float(np.abs(found - swapped).mean()), 2
                )
                figures["pearson of both orders' mean"] = round(
                    100 * pearsonr(found + swapped, gold)[0], 2
                )
            print(json.dumps(figures), flush=True)
    found = {
        "pairs per second": round(pairs / seconds),
        "pairs per second of processor time": round(pairs / processor),
    }
    if arguments.model == "starter":
        size = sum(file.stat().st_size for file in path("encoder").rglob("*"))
        found["megabytes"] = round(size / 1e6, 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
