"""Stage 3 of the starter LM's data: the tokenizer and the tokenised training mix.

    python -m starter.training.lm.data --data ../shared/data --work /tmp/starter-work

reads `pairs/*.jsonl`, adds the single-text tasks, writes `tokenizer/`, `mix-train.npz` and
`mix-dev.npz`. An example is a task's instruction with its slot filled, then the output and `"`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from starter.training.lm.captions import captions
from starter.training.lm.edits import headline
from starter.training.lm.reviews import reviews
from starter.training.lm.sentences import DEFAULT_DATA, DEFAULT_WORK, HERE, read_rows
from starter.training.lm.tokenizer import train_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

ENTRIES = 10_240
TASKS = (
    HERE.parents[2] / "src/tilth/generation/tasks"
)  # the shipped specs: learned as they are used
MAX_FIRST, MAX_SECOND = 64, 37  # tokens; an output and its quotation mark stay below 40

PAIR_TASK = 'Task: Write two sentences that {}.\nSentence 1: "<X1>"\nSentence 2: "'
INSTRUCTIONS = {
    "1": PAIR_TASK.format("mean the same thing"),
    "0.5": PAIR_TASK.format("are somewhat similar"),
    "0": PAIR_TASK.format("are on completely different topics"),
}
SPECS = {"nli": "nli.json", "review": "review-sentiment.json", "intent": "intents.json"}

# How many examples of each kind one mix holds; a kind with fewer is repeated at most REPEAT times.
QUOTA = {
    "translation": 38_000, "neighbour": 12_000, "rewrite": 90_000, "caption": 15_000,
    "middle": 50_000, "consecutive": 15_000, "altered": 22_000, "gloss": 5_000,
    "unrelated": 60_000, "cad": 9_000, "nli": 22_000, "review": 10_000, "intent": 10_000,
}  # fmt: skip
REPEAT = 3


def instruction_of(pair: dict[str, Any], tasks: Path) -> str:
    """Return the instruction of a pair's or text's task and label."""
    if pair["kind"] == "intent":
        return f'Task: Write what a user says to an assistant in order to {pair["label"]}.\nUser: "'
    if pair["kind"] in SPECS:
        spec = json.loads((tasks / SPECS[pair["kind"]]).read_text(encoding="utf-8"))
        instruction: str = spec["labels"][pair["label"]]["instruction"]
        return instruction
    return INSTRUCTIONS[pair["label"]]


def intents(data: Path, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what users say, with each intent in words; half of it cased and punctuated."""
    rng = random.Random(seed)
    lines = (HERE / "intents.txt").read_text(encoding="utf-8").splitlines()
    phrases = dict(line.split(": ", 1) for line in lines)
    for row in read_rows(data / "classify/clinc150/train.jsonl.gz"):
        text = re.sub(r"\bi\b", "I", row["text"].replace('"', "'"))
        if rng.random() < 0.7:
            asks = re.match(r"(?:what|who|when|where|why|how|is|are|do|does|can|could|will|would|"
                            r"did|am|which|has|have|should|may)\b", text)  # fmt: skip
            text = text[:1].upper() + text[1:] + ("?" if asks else ".")
        yield {"kind": "intent", "label": phrases[row["label"]], "x1": "", "x2": text}


def restyle(pair: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Now and then write both sentences small, or without the closing stop, as inputs often are."""
    if pair["kind"] in {"intent", "review"}:
        return pair
    x1, x2 = pair["x1"], pair["x2"]
    if rng.random() < 0.06:
        x1, x2 = headline(x1, rng) or x1, headline(x2, rng) or x2
    if rng.random() < 0.10:
        x1, x2 = x1.rstrip(".").rstrip(), x2.rstrip(".").rstrip()
    if rng.random() < 0.06:
        x1, x2 = x1.lower(), x2.lower()
    return {**pair, "x1": x1, "x2": x2.replace('"', "'")}


def shared_bigrams(a: str, b: str) -> float:
    """Return the share of two texts' word bigrams that both have."""
    left, right = (set(pairwise(["^", *t.lower().split(), "$"])) for t in (a, b))
    return len(left & right) / len(left | right)


def is_useful(pair: dict[str, Any]) -> bool:
    """Tell whether a small model learns the right thing from a pair.

    Pairs that mean the same must differ enough that copying is not the best answer; sentences on
    another topic are short, so that the model writes them whole and without mistakes.
    """
    words = len(pair["x2"].split())
    if pair["kind"] in {"rewrite", "neighbour", "translation"}:
        return words <= 26 and shared_bigrams(pair["x1"], pair["x2"]) < 0.56
    if pair["kind"] in {"unrelated", "middle", "consecutive"}:
        return 3 <= words <= 15 and len(pair["x1"].split()) <= 28
    return words <= 24


def choose(pairs: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Draw each kind's quota, repeating small kinds a little, and shuffle."""
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for pair in pairs:
        if is_useful(pair):
            kinds[pair["kind"]].append(pair)
    chosen: list[dict[str, Any]] = []
    for kind, members in sorted(kinds.items()):
        rng.shuffle(members)
        quota = min(QUOTA[kind], len(members) * REPEAT)
        chosen += [members[i % len(members)] for i in range(quota)]
    rng.shuffle(chosen)
    return chosen


def tokenise(
    pairs: list[dict[str, Any]], tokenizer: PreTrainedTokenizerFast, tasks: Path
) -> dict[str, np.ndarray]:
    """Return the arrays of a mix (see mix.Mix); pairs that are too long are left out."""

    def encode(texts: list[str]) -> list[list[int]]:
        return tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []  # type: ignore

    first = encode([p["x1"] for p in pairs])
    second = encode([p["x2"] + '"' for p in pairs])
    heads: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    flat: list[list[int]] = []
    spans: list[tuple[int, int, int]] = []
    dropped: Counter[str] = Counter()
    for pair, a, b in zip(pairs, first, second, strict=True):
        if len(a) > MAX_FIRST or len(b) > MAX_SECOND or len(b) < 2:
            dropped[pair["kind"]] += 1
            continue
        key = pair["kind"], pair["label"]
        if key not in heads:
            before, _, after = instruction_of(pair, tasks).partition("<X1>")
            heads[key] = (encode([before])[0], encode([after])[0] if after else [])
        before_ids, after_ids = heads[key]
        if a:
            # The quotation mark after sentence 1 is learned with it.
            spans.append(
                (len(before_ids), len(before_ids) + len(a) + 1,
                 len(before_ids) + len(a) + len(after_ids))
            )  # fmt: skip
        else:
            spans.append((len(before_ids), len(before_ids), len(before_ids)))
        flat.append([*before_ids, *a, *after_ids, *b])
    print(f"{len(flat)} examples, too long: {dict(dropped)}", flush=True)
    lengths = np.array([len(ids) for ids in flat])
    span = np.array(spans, dtype=np.int32)
    return {
        "tokens": np.concatenate([np.array(ids, dtype=np.uint16) for ids in flat]),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "first": span[:, 0],
        "first_end": span[:, 1],
        "second": span[:, 2],
    }


def main() -> None:
    """Write the tokenizer (once) and the mixes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--tasks", type=Path, default=TASKS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    work: Path = arguments.work
    began = time.time()
    rng = random.Random(arguments.seed)
    pairs: list[dict[str, Any]] = []
    for path in sorted((work / "pairs").glob("*.jsonl")):
        with open(path, encoding="utf-8") as handle:
            pairs += [json.loads(line) for line in handle]
    pairs += intents(arguments.data, arguments.seed)
    pairs += captions(60_000, arguments.seed)
    pairs += reviews(QUOTA["review"], arguments.seed)
    pairs = [restyle(pair, rng) for pair in choose(pairs, rng)]
    print(f"{Counter((p['kind'], p['label']) for p in pairs if p['kind'] != 'intent')}", flush=True)
    if not (work / "tokenizer").exists():
        sample = rng.sample(pairs, min(len(pairs), 250_000))
        texts = [t for p in sample for t in (p["x1"], p["x2"]) if t]
        train_tokenizer([*texts, *(INSTRUCTIONS.values())], ENTRIES, work / "tokenizer")
        print(f"tokenizer, {time.time() - began:.0f} s", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer")
    held_out = [p for p in pairs[:3000] if p["kind"] not in {"review"}][:1500]
    held = {p["x1"] for p in held_out if p["x1"]} | {p["x2"] for p in held_out}
    train = [p for p in pairs[3000:] if p["x1"] not in held and p["x2"] not in held]
    for name, part in (("dev", held_out), ("train", train)):
        mix = tokenise(part, tokenizer, arguments.tasks)
        np.savez(work / f"mix-{name}.tmp.npz", **mix)
        (work / f"mix-{name}.tmp.npz").replace(work / f"mix-{name}.npz")
        millions = len(mix["tokens"]) / 1e6
        print(f"{name}: {millions:.2f}M tokens, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
