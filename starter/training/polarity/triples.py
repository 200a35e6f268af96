"""Pairs of hand-written triples for the last stage of the polarity check, and the mean of weights.

    python -m starter.training.polarity.triples --work /tmp/polarity-work
    python -m starter.training.polarity.triples --average FOLDER:0.4 FOLDER:0.3 --out FOLDER

A line of `triples.tsv` holds a sentence, a rewrite that says the same, one that says the opposite,
and what was turned. The mean of the weights before and after a training keeps what was learnt
before (Wortsman et al. 2022, arXiv 2109.01903).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

TRIPLES = Path(__file__).with_name("triples.tsv")
PASSES = 3  # over the pairs, each in an order of its own


def pairs_of(lines: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a triple's pairs in both directions; the harmless one twice, so that both are even."""
    for line in lines:
        source, kept, turned, kind = line.split("\t")
        for first, second, flip in (
            (source, kept, False), (source, kept, False), (source, turned, True),
            (kept, turned, True),
        ):  # fmt: skip
            yield {"first": first, "second": second, "flip": flip, "kind": kind}
            yield {"first": second, "second": first, "flip": flip, "kind": kind}


def average(parts: list[str], out: Path) -> None:
    """Write the weighted mean of updates of one rank: `FOLDER:WEIGHT` each."""
    weighted = []
    for part in parts:
        folder, _, weight = part.rpartition(":")
        weighted.append((load_file(Path(folder) / "model.safetensors"), float(weight)))
    out.mkdir(parents=True, exist_ok=True)
    mean = {
        name: sum(weight * update[name].float() for update, weight in weighted)
        for name in weighted[0][0]
    }
    save_file({name: value.half() for name, value in mean.items()}, out / "model.safetensors")  # type: ignore[union-attr]
    if not (out / "config.json").exists():
        shutil.copy(Path(parts[0].rpartition(":")[0]) / "config.json", out / "config.json")


def main() -> None:
    """Write `triples.jsonl`, or average weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("/tmp/polarity-work"))
    parser.add_argument("--first", type=int, help="read so many lines alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--average", nargs="+", help="FOLDER:WEIGHT ...")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.average:
        average(arguments.average, arguments.out)
        return
    lines = TRIPLES.read_text(encoding="utf-8").splitlines()[: arguments.first]
    pairs, rng = list(pairs_of(lines)), random.Random(arguments.seed)
    arguments.work.mkdir(parents=True, exist_ok=True)
    with (arguments.work / "triples.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(PASSES):
            rng.shuffle(pairs)
            file.writelines(json.dumps(pair) + "\n" for pair in pairs)


if __name__ == "__main__":
    main()
