"""Stage 2 of the starter LM's data: sentence pairs at three levels of similarity.

    python -m starter.training.lm.pairs --data ../shared/data --work /tmp/starter-work

reads what sentences.py wrote and writes `pairs/SOURCE.jsonl`, one pair a line: kind, label, x1,
x2. A source whose file exists is not made again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from starter.training.lm.changes import changed_pairs, gloss
from starter.training.lm.edits import lower_first
from starter.training.lm.rewrites import rewrite
from starter.training.lm.sentences import (
    DEFAULT_DATA,
    DEFAULT_WORK,
    Encoder,
    is_clean,
    load_sentences,
    read_lines,
    read_rows,
    segment,
    tidy,
)
from starter.training.lm.wordings import Fluency

Pair = dict[str, Any]
MIDDLE = (0.35, 0.62)  # cosines of "somewhat similar"
FAR = 0.12  # cosines of "completely different topics" stay below
NEAR = 0.86  # cosines of neighbours taken to mean the same


def plain(text: str) -> str:
    """Return a text without case and punctuation, to tell whether two texts say it alike."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def cosines(vectors: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosine of row a[i] with row b[i]."""
    return np.einsum("ij,ij->i", vectors[a].astype(np.float32), vectors[b].astype(np.float32))


def cotranslations(records: list[dict[str, Any]], vectors: np.ndarray, seed: int) -> Iterator[Pair]:
    """Yield English sentences that share a German translation and mean the same."""
    rng = random.Random(seed)
    groups: dict[str, set[int]] = defaultdict(set)
    for row, record in enumerate(records):
        for german in record.get("translations", ()):
            groups[plain(german) or german].add(row)
    seen: set[tuple[int, int]] = set()
    for rows in groups.values():
        members = sorted(rows)
        if len(members) < 2:
            continue
        options = [(a, b) for a in members for b in members if a != b]
        for a, b in rng.sample(options, min(len(options), 12)):
            if (a, b) not in seen:
                seen.add((a, b))
    left, right = np.array(sorted(seen)).T
    similarity = cosines(vectors, left, right)
    for a, b, cosine in zip(left, right, similarity, strict=True):
        x1, x2 = records[a]["text"], records[b]["text"]
        if cosine >= 0.7 and plain(x1) != plain(x2):
            yield {"kind": "translation", "label": "1", "x1": x1, "x2": x2}


def neighbours(
    records: list[dict[str, Any]], vectors: np.ndarray, queries: int, seed: int
) -> Iterator[Pair]:
    """Yield near neighbours that differ in more than case, punctuation and numbers."""
    generator = np.random.default_rng(seed)
    table = torch.from_numpy(vectors).to(torch.bfloat16)  # (sentences, 384)
    # Short Tatoeba sentences have many near neighbours; other sources come first.
    weight = np.array([0.3 if r["source"] == "tatoeba" else 1.0 for r in records])
    rows = generator.choice(len(records), queries, replace=False, p=weight / weight.sum())
    for start in range(0, queries, 2048):
        block = rows[start : start + 2048]
        similarity = table[block] @ table.T  # (block, sentences)
        similarity[torch.arange(len(block)), torch.from_numpy(block)] = -1.0
        best, where = similarity.max(1)
        for row, cosine, other in zip(block, best.tolist(), where.tolist(), strict=True):
            x1, x2 = records[row]["text"], records[other]["text"]
            digits = re.findall(r"\d+", x1) == re.findall(r"\d+", x2)
            if cosine >= NEAR and digits and plain(x1) != plain(x2):
                yield {"kind": "neighbour", "label": "1", "x1": x1, "x2": x2}


def rewrites(
    records: list[dict[str, Any]],
    vectors: np.ndarray,
    encoder: Encoder,
    fluency: Fluency,
    count: int,
    seed: int,
) -> Iterator[Pair]:
    """Yield rule-made rewrites of bank sentences, checked by the encoder."""
    rng = random.Random(seed)
    share = {"tatoeba": 0.4, "cad": 4.0, "biomedical": 0.5, "dialogue-turns": 0.7, "novels": 0.6}
    weights = [share.get(r["source"], 1.0) for r in records]
    drafts: list[Pair] = []
    rows: list[int] = []
    for row in rng.choices(range(len(records)), weights, k=count * 5):
        x1 = records[row]["text"]
        x2, edits = rewrite(x1, rng, fluency=fluency)
        changed = sum(w not in x1.lower().split() for w in x2.lower().split())
        if edits >= min(3, len(x1.split()) // 7 + 1) and changed and plain(x1) != plain(x2):
            drafts.append({"kind": "rewrite", "label": "1", "x1": x1, "x2": x2})
            rows.append(row)
        if len(drafts) >= count:
            break
    outputs = encoder.encode([p["x2"] for p in drafts]).astype(np.float32)
    similarity = np.einsum("ij,ij->i", vectors[rows].astype(np.float32), outputs)
    for draft, cosine in zip(drafts, similarity, strict=True):
        if cosine >= 0.83:
            # The rules read as well backwards, and then restore what they left out or replaced.
            if rng.random() < 0.15 and len(draft["x1"].split()) <= 24 and '"' not in draft["x1"]:
                draft["x1"], draft["x2"] = draft["x2"], draft["x1"]
            yield draft


def definitions(data: Path, encoder: Encoder, fluency: Fluency, seed: int) -> Iterator[Pair]:
    """Yield pairs of definitions in the style of a dictionary, at all three levels."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    for paragraph in read_lines(data / "bank/wikipedia.txt.gz"):
        text = gloss(tidy(segment(paragraph[:400])[0]))
        if text and is_clean(f"X {text}."):
            found[text] = None
    texts = rng.sample(sorted(found), min(len(found), 20_000))
    vectors = torch.from_numpy(encoder.encode(texts)).float()
    similarity = vectors @ vectors[: len(texts) // 3].T  # (texts, a third)
    for row, x1 in enumerate(texts):
        x2, edits = rewrite(x1, rng, fluency=fluency)
        if edits and plain(x1) != plain(x2):
            yield {"kind": "gloss", "label": "1", "x1": x1, "x2": lower_first(x2)}
        gaps = (similarity[row] - rng.uniform(*MIDDLE)).abs()
        other = int(gaps.argmin())
        if gaps[other] < 0.05:
            yield {"kind": "gloss", "label": "0.5", "x1": x1, "x2": texts[other]}
        other = rng.randrange(len(texts) // 3)
        if similarity[row, other] < FAR:
            yield {"kind": "gloss", "label": "0", "x1": x1, "x2": texts[other]}


def middle_band(
    records: list[dict[str, Any]], vectors: np.ndarray, queries: int, seed: int
) -> Iterator[Pair]:
    """Yield pairs whose cosine lies in the middle band, drawn from random blocks."""
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)
    rows = generator.choice(len(records), queries)
    for start in range(0, queries, 1024):
        block = rows[start : start + 1024]
        others = generator.choice(len(records), 8192, replace=False)
        a = torch.from_numpy(vectors[block]).to(torch.bfloat16)
        b = torch.from_numpy(vectors[others]).to(torch.bfloat16)
        similarity = (a @ b.T).float()  # (block, others)
        centre = torch.empty(len(block), 1).uniform_(*MIDDLE)
        best, where = (similarity - centre).abs().min(1)
        for row, gap, other in zip(block, best.tolist(), where.tolist(), strict=True):
            if gap < 0.06:
                x1, x2 = records[row]["text"], records[others[other]]["text"]
                yield {"kind": "middle", "label": "0.5", "x1": x1, "x2": x2}


def consecutive(
    records: list[dict[str, Any]], vectors: np.ndarray, count: int, seed: int
) -> Iterator[Pair]:
    """Yield sentences of one paragraph that are somewhat similar."""
    documents: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, record in enumerate(records):
        if record["source"] in {"wikipedia", "wikinews"}:
            documents[record["source"], record["doc"]].append(row)
    pairs = [(a, b) for d in documents.values() for a in d for b in d if a != b]
    random.Random(seed).shuffle(pairs)
    left, right = np.array(pairs[: count * 3]).T
    similarity = cosines(vectors, left, right)
    inside = np.flatnonzero((similarity > MIDDLE[0]) & (similarity < MIDDLE[1] + 0.05))
    for i in inside[:count]:
        x1, x2 = records[left[i]]["text"], records[right[i]]["text"]
        yield {"kind": "consecutive", "label": "0.5", "x1": x1, "x2": x2}


def unrelated(
    records: list[dict[str, Any]], vectors: np.ndarray, count: int, seed: int
) -> Iterator[Pair]:
    """Yield random pairs on different topics, four in five from one source, so alike in style."""
    generator = np.random.default_rng(seed)
    sources = np.array([r["source"] for r in records])
    pools = {s: np.flatnonzero(sources == s) for s in set(sources.tolist())}
    left = generator.choice(len(records), count)
    right = generator.choice(len(records), (count, 4))
    for source, pool in sorted(pools.items()):
        inside = np.flatnonzero((sources[left] == source) & (generator.random(count) < 0.8))
        right[inside] = generator.choice(pool, (len(inside), 4))
    chosen = np.full(count, -1)
    for column in range(4):
        similarity = cosines(vectors, left, right[:, column])
        chosen = np.where((chosen < 0) & (similarity < FAR), right[:, column], chosen)
    for a, b in zip(left, chosen, strict=True):
        if b >= 0:
            x1, x2 = records[a]["text"], records[b]["text"]
            yield {"kind": "unrelated", "label": "0", "x1": x1, "x2": x2}


def inference(data: Path) -> Iterator[Pair]:
    """Yield the counterfactual NLI pairs, as inference and as similarity."""
    similarity = {"entailment": "1", "neutral": "0.5", "contradiction": "0.5"}
    for row in read_rows(data / "nli/cad/train.jsonl.gz"):
        x1, x2 = tidy(row["premise"]), tidy(row["hypothesis"])
        if plain(x1) == plain(x2) or not x1 or not x2:
            continue
        yield {"kind": "nli", "label": row["label"], "x1": x1, "x2": x2}
        yield {"kind": "cad", "label": similarity[row["label"]], "x1": x1, "x2": x2}


def main() -> None:
    """Write the pairs of every source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--work", type=Path, default=DEFAULT_WORK)
    parser.add_argument("--size", type=int, default=200_000, help="pairs wanted per label, about")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    records, vectors = load_sentences(arguments.work)
    size, seed = arguments.size, arguments.seed
    torch.set_num_threads(arguments.threads)
    encoder = Encoder()
    texts = [record["text"] for record in records]
    fluency = Fluency(texts)
    parts = {
        "cotranslations": cotranslations(records, vectors, seed),
        "inference": inference(arguments.data),
        "middle": middle_band(records, vectors, int(size * 0.9), seed),
        "consecutive": consecutive(records, vectors, size // 4, seed),
        "unrelated": unrelated(records, vectors, size, seed),
        "changed": changed_pairs(texts, fluency, size // 2, seed),
        "definitions": definitions(arguments.data, encoder, fluency, seed),
        "rewrites": rewrites(records, vectors, encoder, fluency, int(size * 0.9), seed),
        "neighbours": neighbours(records, vectors, size // 2, seed),
    }
    began = time.time()
    folder = arguments.work / "pairs"
    folder.mkdir(exist_ok=True)
    for name, pairs in parts.items():
        if (folder / f"{name}.jsonl").exists():
            continue
        count = 0
        with open(folder / f"{name}.tmp", "w", encoding="utf-8") as handle:
            for count, pair in enumerate(pairs, 1):  # noqa: B007
                handle.write(json.dumps(pair, ensure_ascii=False) + "\n")
        (folder / f"{name}.tmp").replace(folder / f"{name}.jsonl")
        print(f"{name}: {count} pairs, {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
