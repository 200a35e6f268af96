"""tilth's searches against plain `generate`: sentences per second, in one process.

    python benchmarks/paraphrase.py                         # the starter
    python benchmarks/paraphrase.py --model runs/rewriter --sentences 64

Plain is what the paper's users run: float32, batches of 8 in the order of the file, padded to the
longest. Both work on the same sentences, in turn, several rounds; the ratio of each round's
seconds is taken and their median printed. On a machine that does other work, --cpu-time compares
the processor's seconds. The limit is what the matrix products of tilth's run take at the rate of a
large product, measured beside each round.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from inputs import script_parser
from limits import product_count, product_rate
from tilth.models import Seq2Seq, load_seq2seq
from tilth.paraphrase.search import BeamSearch, decode
from tilth.paraphrase.settings import SAMPLING

BATCH = 8
TAGS = "<SIM95> <BLEU0_5> "


@dataclass(frozen=True)
class Models:
    """One model in float32, for plain `generate`, and as tilth runs it."""

    plain: Seq2Seq
    ours: Seq2Seq


def sentences(data: Path, count: int) -> list[str]:
    """Return sentences of news and of a translation test set, by turns."""
    with gzip.open(data / "bank/wikinews.txt.gz", "rt", encoding="utf-8") as file:
        documents = [line.strip() for _, line in zip(range(6000), file, strict=False)]
    news = [
        sentence
        for document in documents
        for sentence in re.split(r"(?<=[.!?])\s+", document)
        if 20 <= len(sentence) <= 250
    ]
    with gzip.open(data / "parallel/tatoeba/test.jsonl.gz", "rt", encoding="utf-8") as file:
        short = [json.loads(line)["en"] for line in file]
    rng = random.Random(0)
    half = -(-count // 2)
    mixed = zip(rng.sample(news, half), rng.sample(short, half), strict=True)
    return [text for pair in mixed for text in pair][:count]


def plain(models: Models, prefix: str, texts: list[str], search: BeamSearch, _: int) -> list[str]:
    """BeamSearch as a user of `generate` does."""
    seq2seq, found = models.plain, list[str]()
    model: Any = seq2seq.model
    options: dict[str, Any] = {"do_sample": False}
    if search.samples:
        options = {"do_sample": True, "top_k": search.top_k, "temperature": search.temperature}
    for start in range(0, len(texts), BATCH):
        some = [prefix + text for text in texts[start : start + BATCH]]
        given = seq2seq.tokenizer(some, padding=True, truncation=True, return_tensors="pt")
        if search.longest is not None:  # one limit for the batch, as in published code
            length = given["input_ids"].shape[1]
            options |= {
                "min_length": int(search.shortest * length),
                "max_length": int(search.longest * length),
            }
        outputs = model.generate(**given, num_beams=search.beams, **options)
        found += seq2seq.tokenizer.batch_decode(outputs, skip_special_tokens=True)
    return found


def ours(models: Models, prefix: str, texts: list[str], search: BeamSearch, seed: int) -> list[str]:
    """BeamSearch as tilth does."""
    prefixed = [prefix + text for text in texts]
    found = decode(models.ours, prefixed, search, seed=seed)
    return [outputs[0] if outputs else "" for outputs in found]


Way = Callable[[Models, str, list[str], BeamSearch, int], list[str]]


def candidates(way: Way, models: Models, texts: list[str]) -> None:
    """Make 4 candidates a sentence, both directions."""
    searches = [BeamSearch(5, top_k, temperature) for top_k, temperature in SAMPLING]
    pivots = [way(models, ">>de<< ", texts, search, n) for n, search in enumerate(searches)]
    for number, search in enumerate(searches):
        if way is ours:  # as `round_trip`: all pivots together
            way(models, ">>en<< ", [text for row in pivots for text in row], search, number)
        else:
            for row in pivots:
                way(models, ">>en<< ", row, search, number)


def once(prefix: str, search: BeamSearch) -> Callable[[Way, Models, list[str]], None]:
    """Return work that searches once for each sentence."""

    def work(way: Way, models: Models, texts: list[str]) -> None:
        way(models, prefix, texts, search, 0)

    return work


WORK: dict[str, Callable[[Way, Models, list[str]], None]] = {
    "candidates": candidates,
    "beam 5": once(">>de<< ", BeamSearch(5)),
    "beam 20, rewriting": once(TAGS, BeamSearch(20, shortest=0.75, longest=1.5)),
    "greedy": once(">>de<< ", BeamSearch(1)),
}


def main() -> None:
    """Run both in turn and print sentences per second and ratios."""
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="starter", help="starter, a folder or a run")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(WORK), default=None)
    parser.add_argument("--cpu-time", action="store_true", help="of the process, not of the clock")
    args = parser.parse_args()
    clock = time.process_time if args.cpu_time else time.perf_counter
    texts = sentences(args.data, args.sentences)
    models = Models(load_seq2seq(args.model, precision="float32"), load_seq2seq(args.model))
    print(f"{args.model}: {len(texts)} sentences, tilth in {models.ours.precision}", flush=True)
    dtype = getattr(torch, models.ours.precision)
    with torch.inference_mode():
        for name, work in WORK.items():
            if args.only not in (None, name):
                continue
            ratios, shares = [], []
            products = product_count(partial(work, ours, models, texts))
            for _ in range(args.rounds):
                seconds = {}
                for way in (plain, ours):
                    work(way, models, texts[:BATCH])  # a new shape's first time is no work
                    start = clock()
                    work(way, models, texts)
                    seconds[way] = clock() - start
                ratios.append(seconds[plain] / seconds[ours])
                shares.append(products / product_rate(clock, dtype) / seconds[ours])
                rates = [f"{len(texts) / seconds[way]:.1f}" for way in (plain, ours)]
                print(f"{name}: plain {rates[0]}, tilth {rates[1]} sentences/s: {ratios[-1]:.1f}x, "
                      f"{shares[-1]:.0%} of the limit", flush=True)  # fmt: skip
            print(f"{name}: median ratio {statistics.median(ratios):.1f}x, "
                  f"{statistics.median(shares):.0%} of the limit", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
