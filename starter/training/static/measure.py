"""The figures of the starter static encoder's card: STS of every stage, speed, size.

    python -m starter.training.static.measure --work /tmp/static-work --data ../shared/data

prints one JSON object for each model: those of WORK/stages, if they are there, and the shipped one.
Its speed is that on the novels, cut to 20 words, on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pyarrow as pa
import torch
from sentence_transformers import SentenceTransformer
from starter.training.lm.sentences import DEFAULT_DATA, read_lines
from starter.training.static.data import DEFAULT_WORK

from tilth import evaluate_sts, load_encoder
from tilth.models.static import fast_static
from tilth_starter import path

TESTS, DEV = ("sts12", "sts14", "sts16", "stsb"), ("stsb-dev", "sick-dev")
WORDS, AT_ONCE = 20, 50_000


def sentences_per_second(encoder: SentenceTransformer, data: Path) -> float:
    """Return how many texts of 20 words are encoded in a second, once it has seen as many."""
    texts: list[str] = []
    for line in read_lines(data / "bank/novels.txt.gz"):
        words = line.split()
        texts += [" ".join(words[i : i + WORDS]) for i in range(0, len(words) - WORDS + 1, WORDS)]
    torch.set_num_threads(1)
    rows = fast_static(encoder)
    assert rows is not None
    rows.encode(pa.array(texts[:AT_ONCE]))
    began = time.perf_counter()
    rows.encode(pa.array(texts[AT_ONCE : 2 * AT_ONCE]))
    return AT_ONCE / (time.perf_counter() - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    arguments = parser.parse_args()
    stages = sorted((arguments.work / "stages").glob("*/modules.json"))
    for name in [*(str(stage.parent) for stage in stages), "starter-static"]:
        encoder = load_encoder(name)
        found = {}
        for kind, sets in (("mean", TESTS), ("dev mean", DEV)):
            scores = evaluate_sts(encoder, arguments.data / "sts", sets=sets, bootstrap=0)
            found |= {
                kind if key == "mean" else key: round(score["spearman"], 2)
                for key, score in scores.items()
            }
        print(json.dumps({"model": Path(name).name, **found}), flush=True)
    size = sum(file.stat().st_size for file in path("static").rglob("*")) / 1e6
    speed = round(sentences_per_second(encoder, arguments.data))
    print(json.dumps({"megabytes": round(size, 2), "sentences per second": speed}))


if __name__ == "__main__":
    main()
